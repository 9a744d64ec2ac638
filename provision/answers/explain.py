"""Explains a plan: its GPU types, its costs, its tightest limits, and what a longer SLO or another GPU would gain."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from provision.answers.difference import difference
from provision.answers.tokens import token_costs, token_limits
from provision.answers.types import Cost, check_type, costs, per_million, types_of, why_type
from provision.draw.output import at_least, number, plural
from provision.draw.verdict import money
from provision.heuristics.core import greedy
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.plans.plan import Plan
from provision.models.plans.report import ReplicaPrediction
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import cost_per_hour, objective_of, unit_in_words
from provision.models.problem.prediction import as_deployed, carried_rps, predict_slice, tokens_rps
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry
from provision.solving.solve import solve
from provision.sweeps.parameters import changed
from provision.verification.verify import verify

LONGER_MS, LONGER = 5.0, 0.1
"""How much longer an SLO is made to see what that gains: by this many milliseconds; for language models by this
fraction of each limit.
"""
STEPS, MOST_GROWTH = 7, 4.0
"""The number of bisection steps that search for the rates that GPUs can carry, and the largest growth that is tried, as
a fraction.
"""
MOST_COSTS = 12


@dataclass(frozen=True)
class Explanation:
    """Sentences on a plan, grouped by topic; ``costs`` has the costs of the workloads, and ``idle`` sentences on
    committed GPUs that no replica uses.
    """

    types: list[str]
    costs: list[Cost]
    limits: list[str]
    more: list[str]
    changes: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)

    def sections(self) -> dict[str, list[str]]:
        """The sentences by title; groups without sentences are left out."""
        found = {
            "What changes": self.changes, "Why these GPUs": self.types,
            "What it costs": [*_told(self.costs), *self.idle, *self.tokens], "What binds": self.limits,
            "What more would give": self.more,
        }
        return {title: lines for title, lines in found.items() if lines}

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision explain --json`` prints."""
        return asdict(self) | {"costs": [one._asdict() for one in self.costs]}


def explain(instance: Instance, plan: Plan, workload: str | None = None, on: str | None = None,
            before: Plan | None = None, time_limit_s: float = 20.0) -> Explanation:
    """Explain a plan.

    Parameters
    ----------
    instance, plan
        The instance and a plan for it.
    workload
        The only workload to explain; None for all workloads.
    on
        A GPU type to compare with, which the fleet need not have; None for the GPU types of the fleet.
    before
        The plan that ran before, if the changes are to be explained.
    time_limit_s
        The seconds for all plans together that are made for comparison.

    Raises
    ------
    InputError
        If the workload or the GPU type is unknown.
    """
    if workload is not None and workload not in instance.workload:
        there = ", ".join(list(instance.workload)[:20])
        raise InputError(f"--workload {workload}: there is {there}{did_you_mean(workload, instance.workload)}")
    if on is not None and on not in types_of(instance):
        check_type(on)
    types = [on] if on else types_of(instance)
    part_s = time_limit_s / (len(types) + 2)
    value = objective_of(instance).value(plan)
    told = [line for gpu in types for line in why_type(instance, gpu, value, part_s, workload)]
    if workload is not None and not needs(instance) & {"tokens"}:
        told += per_million(instance, workload)
    spent = [one for one in costs(instance, plan) if workload in (None, one.workload)]
    return Explanation(
        types=told if instance.objective != THROUGHPUT else [],
        costs=spent,
        limits=[*limits_of(instance, plan, workload), *token_limits(instance, plan, workload)],
        tokens=list(token_costs(instance, spent)),
        more=[*_longer(instance, plan, workload, part_s), *_growth(instance, plan, part_s)],
        changes=[] if before is None else difference(instance, before, plan),
        idle=list(_idle(instance, plan)),
    )


def _told(spent: list[Cost]) -> list[str]:
    """The costs of workloads in sentences."""
    lines = [
        f"{one.workload}: {one.per_hour:,.2f} $ per hour, {one.part:.0%} of the whole"
        + ("" if one.per_million is None else f", {one.per_million:,.3g} $ per million requests")
        for one in spent[:MOST_COSTS]
    ]
    if rest := spent[MOST_COSTS:]:
        lines.append(f"{plural(len(rest), 'more workload')}: {money(sum(one.per_hour for one in rest))}")
    return lines


def _idle(instance: Instance, plan: Plan) -> Iterator[str]:
    """Yield a sentence on the committed GPUs of each fleet entry that no replica uses."""
    used, whole = Counter(objective_of(instance).entries_of(plan)), cost_per_hour(instance, plan)
    for at, one in enumerate(instance.fleet):
        left = (one.count or 0) - used[at]
        if one.committed and one.price_per_hour and whole and left > 0:
            price = left * one.price_per_hour
            yield f"no workload, {left} committed {one.gpu}: {price:,.2f} $ per hour, {price / whole:.0%} of the whole"


def _taken_ms(one: ReplicaPrediction) -> float:
    return one.latency_ms if one.p99_ms is None else one.p99_ms


def limits_of(instance: Instance, plan: Plan, workload: str | None = None) -> Iterator[str]:
    """Yield sentences on the replica that is closest to its latency limit, and on the replica that is closest to its
    capacity.
    """
    report, instance = verify(instance, plan), as_deployed(instance, plan)
    yield from (f"Does not hold: {one.message}" for one in report.violations[:1])
    found = [one for one in report.predictions if workload in (None, one.workload)]
    if not found:
        return
    timed = [one for one in found if instance.workload[one.workload].tokens is None]
    if timed:
        yield _tightest(instance, max(timed, key=lambda one: _taken_ms(one) / one.budget_ms))
    carried = [_carried_rps(instance, plan, one) for one in found]
    full, most = max(zip(found, carried, strict=True), key=lambda pair: pair[0].rate_rps / pair[1])
    yield (f"Fullest replica: {full.workload} on GPU {full.gpu} gets {number(full.rate_rps)} of the {number(most)} "
           f"requests/s that it carries within its SLO ({full.rate_rps / most:.0%}).")


def _carried_rps(instance: Instance, plan: Plan, one: ReplicaPrediction) -> float:
    """The highest rate, in requests/s, at which a replica keeps its SLO beside neighbours that are always active; at
    least the rate that a valid plan routes to it.
    """
    gpu = plan.gpus[one.gpu]
    piece = gpu.slices[one.slice]
    if instance.workload[one.workload].tokens:
        return max(tokens_rps(instance, gpu.gpu, piece), one.rate_rps)
    carried = [carried_rps(instance, replica, found)
               for replica, found in zip(piece.replicas, predict_slice(instance, gpu.gpu, piece), strict=True)
               if found is not None and replica.workload == one.workload and replica.rate_rps == one.rate_rps]
    return max([*carried, one.rate_rps])


def _tightest(instance: Instance, late: ReplicaPrediction) -> str:
    """A sentence on a replica's latency and its limit."""
    what = "a batch takes" if late.p99_ms is None else (
        f"P{instance.policy.percentile_of(instance.workload[late.workload]):g} is at most")
    return (f"Tightest latency: {late.workload} on GPU {late.gpu}: {what} {number(_taken_ms(late))} of "
            f"{number(late.budget_ms)} ms.")


def _longer(instance: Instance, plan: Plan, workload: str | None, time_limit_s: float) -> Iterator[str]:
    """Yield a sentence on what would be gained if the SLO of one workload, or of all workloads, were LONGER_MS longer.
    """
    names = [one.name for one in instance.workloads if workload in (None, one.name)]
    longer, tokens = instance, any(instance.workload[name].tokens for name in names)
    for name in names:
        part = LONGER if tokens else LONGER_MS / instance.workload[name].slo_ms
        longer = changed(longer, {f"slo.{name}": 1 + part})
    more = f"{LONGER:.0%} more" if tokens else f"{LONGER_MS:g} ms more"
    found = solve(longer, time_limit_s=time_limit_s, start=plan, replay=False)
    whose = f"{workload}'s SLO" if workload else "every SLO"
    now = objective_of(instance).value(plan)
    if now == math.inf:  # a GPU of the plan is of no type in the fleet
        return
    if found.objective is not None and objective_of(instance).better(found.objective, now):
        gain = f"{abs(found.objective - now):,.4g} {unit_in_words(objective_of(instance).unit)}"
        yield f"{more} for {whose} saves {gain}, {abs(found.objective / now - 1):.0%}."
    else:
        proven = "proven" if found.status == "optimal" else "as far as was searched"
        yield f"{more} for {whose} saves nothing ({proven})."


def _growth(instance: Instance, plan: Plan, time_limit_s: float) -> Iterator[str]:
    """Yield sentences on how much more traffic the plan's GPUs can carry, and how much more with one additional GPU of
    each type of the fleet.
    """
    if needs(instance) - greedy.METHODS[0].features or instance.objective == THROUGHPUT or not plan.gpus:
        return
    held = Counter((gpu.gpu, gpu.mig) for gpu in plan.gpus)
    there = {(one.gpu, one.partitioned): one for one in reversed(instance.fleet)}
    if held.keys() - there.keys():  # a GPU of the plan is of no type in the fleet
        return
    more = [kind for kind in there if held[kind] < _most_of(instance, kind)]
    same = _most_growth(instance, there, held, time_limit_s / (1 + len(more)))
    now = plan.gpu_count
    carry = "this GPU carries" if now == 1 else f"these {now} GPUs carry"
    yield f"Planned anew, {carry} at least {at_least(same)} more traffic of every workload." if same > 0 else (
        "A quick search finds no room for more traffic on these GPUs.")
    for kind in more:
        grown = _most_growth(instance, there, held + Counter([kind]), time_limit_s / (1 + len(more)))
        mode = "" if sum(gpu == kind[0] for gpu, _ in there) == 1 else f" {'with' if kind[1] else 'without'} MIG"
        yield f"With one more {kind[0]}{mode} they carry at least {at_least(max(grown, same))} more than now."


Kind = tuple[str, bool]
"""A GPU type, and whether its GPUs are partitioned by MIG."""


def _most_of(instance: Instance, kind: Kind) -> float:
    """How many GPUs of a type the fleet has."""
    counts = [one.count for one in instance.fleet if (one.gpu, one.partitioned) == kind]
    return math.inf if None in counts else sum(count or 0 for count in counts)


def _most_growth(instance: Instance, there: dict[Kind, FleetEntry], held: Counter[Kind], time_limit_s: float) -> float:
    """The largest growth of all rates, as a fraction, for which greedy finds a plan on the GPUs ``held``."""
    fleet = [there[kind].model_copy(update={"count": many}) for kind, many in held.items()]
    alone, low, high = instance.replace(fleet=fleet), 0.0, MOST_GROWTH
    for _ in range(STEPS):
        middle = (low + high) / 2
        found = greedy.solve(changed(alone, {"rate": 1 + middle}), Search(time_limit_s / STEPS))
        low, high = (middle, high) if found.plan is not None else (low, middle)
    return low
