"""Reads and extends the ledger: for every instance the best verified plan so far, and the best proven bound.

Every entry contains its plan, which tests verify again; a value without a plan is not accepted.
"""

from datetime import date
from functools import cache
from importlib.resources import as_file, files

from provision.instances.files.files import load, validate
from provision.models.base.fields import Name, NonNegative, Number, Record, Text, Version
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of


class BestKnown(Record):
    """One entry: ``value`` and ``bound`` of the objective, and how they were found.

    ``seconds`` is the time to build the model and to solve it on the machine that found the plan.
    """

    version: Version
    instance: Name
    digest: Text
    value: NonNegative
    bound: Number | None
    date: Text
    method: Name
    seed: int
    time_limit_s: Number
    seconds: NonNegative
    versions: dict[Name, Text]
    plan: Plan


def entry(result: Result) -> BestKnown:
    """An entry made from a verified Result, with today's date."""
    return BestKnown(
        version=1, instance=result.instance, digest=result.digest, value=result.objective, bound=result.bound,
        date=date.today().isoformat(), method=result.method, seed=result.seed,
        time_limit_s=result.parameters["time_limit_s"],
        seconds=round(result.build_seconds + result.solve_seconds, 2), versions=dict(result.versions),
        plan=result.plan,
    )


def better(instance: Instance, new: BestKnown, old: BestKnown | None) -> bool:
    """Whether ``new`` has a better value or bound than ``old``; also if ``old`` is None or of another version of the
    instance.
    """
    if old is None or old.digest != new.digest:
        return True
    return objective_of(instance).better(new.value, old.value) or objective_of(instance).tighter(new.bound, old.bound)


def joined(instance: Instance, new: BestKnown, old: BestKnown | None) -> BestKnown:
    """An entry with the better plan and the better bound of two entries."""
    if old is None or old.digest != new.digest:
        return new
    plan = new if objective_of(instance).better(new.value, old.value) else old
    tight = new if objective_of(instance).tighter(new.bound, old.bound) else old
    return plan.model_copy(update={"bound": tight.bound})


@cache
def ledger() -> dict[str, BestKnown]:
    """All entries by the name of their instance."""
    folder = files(__package__)
    with as_file(folder) as path:
        found = (validate(BestKnown, load(file), file.name) for file in sorted(path.glob("*.json")))
        return {one.instance: one for one in found}
