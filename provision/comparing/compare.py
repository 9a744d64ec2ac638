"""``provision.compare``: runs several methods, or a user's own functions, on several instances with several seeds. The
row of a method has the cost of its plan, the proof, and the lateness of replayed requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

from provision.comparing.table import ComparisonTable
from provision.instances.files.files import FilePath
from provision.instances.read import read
from provision.models.base.errors import InputError, MethodError, UnsupportedError
from provision.models.base.objects import known
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search
from provision.simulation.simulate import simulate
from provision.solving.methods import method as find_method
from provision.solving.methods import methods as known_methods
from provision.solving.solve import solve
from provision.sweeps.table import TableRow
from provision.verification.verify import verify

Function = Callable[[Instance, Search], Outcome]

COLUMNS = (
    "method",
    "status",
    "objective",
    "gpus",
    "gpcs",
    "cost_per_hour",
    "bound",
    "gap",
    "violations",
    "build_seconds",
    "solve_seconds",
)
REPLAYED = ("violated_workloads", "late_workloads", "violation_rate")
"""Further columns if plans are replayed: the number of workloads with a predicted violation, the number of workloads
(and workflows) whose replayed P99 exceeds the SLO, and the fraction of replayed requests whose latency exceeds the SLO.
"""


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison: time limit and seed of each search, and the arrivals with which every plan is
    replayed.

    Attributes
    ----------
    time_limit_s, seed
        The time limit in seconds and the seed of every method.
    simulate_s
        The seconds of arrivals to replay; None replays nothing.
    arrival_cv
        The coefficient of variation of replayed inter-arrival times; None replays arrivals as the instance states them.
    """

    time_limit_s: float
    seed: int = 0
    simulate_s: float | None = None
    arrival_cv: float | None = None

    def row(self, instance: Instance, method: str | Method | Function,
            report: Callable[[Incumbent], None] | None = None) -> tuple[TableRow, Plan | None]:
        """Run one method; returns (row, plan). The row has COLUMNS, REPLAYED and more; the plan is None if there is
        none.

        A plan that the verifier rejects is replayed too. A method that follows its paper may miss SLOs; the row then
        shows how many workloads the model predicts to be late, and how many are late in the replay.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, which should end the whole comparison.
        """
        try:
            result = solve(instance, method, self.time_limit_s, self.seed, report, replay=False)
        except UnsupportedError as error:
            none = dict.fromkeys((*COLUMNS, *REPLAYED))
            return none | {"method": str(method), "status": "not applicable", "reason": str(error)}, None
        if result.termination == "stopped":
            raise KeyboardInterrupt
        violations = len(result.report.violations) if result.report else None
        replayed = self._replayed(instance, result.plan, result.report)
        return result.summary() | {"violations": violations} | replayed, result.plan

    def given(self, instance: Instance, name: str, plan: Plan) -> TableRow:
        """The row of a given plan: the verifier's verdict, and nothing on how the plan was found."""
        report = verify(instance, plan)
        row = dict.fromkeys((*COLUMNS, *REPLAYED)) | {
            "method": name, "status": "holds" if report.ok else "violated", "reason": "", "gpus": report.gpus,
            "gpcs": report.gpcs, "cost_per_hour": report.cost_per_hour, "objective": objective_of(instance).value(plan),
            "violations": len(report.violations),
        }
        return row | self._replayed(instance, plan, report)

    def _replayed(self, instance: Instance, plan: Plan | None, report: Report | None) -> TableRow:
        """The columns REPLAYED of a plan; their values are None if nothing is replayed."""
        if self.simulate_s is None or plan is None:
            return dict.fromkeys(REPLAYED)
        found = simulate(instance, plan, self.simulate_s, self.seed, arrival_cv=self.arrival_cv)
        violated = len(known(report).violated)
        return dict(zip(REPLAYED, (violated, len(found.late), found.violation_rate), strict=True))


Named = Mapping[str, str | Method | Function]
Given = str | Method | Function
Several = Instance | FilePath | Iterable[Instance | FilePath]


def compare(instances: Several, methods: str | Given | Sequence[Given] | Named = "all", seeds: Iterable[int] = (0,),
            time_limit_s: float = 60.0, simulate_s: float | None = None, arrival_cv: float | None = None,
            report: Callable[[str], None] | None = None) -> ComparisonTable:
    """Run methods on instances and compare their results.

    Parameters
    ----------
    instances
        One or several instances, their shipped names or their paths.
    methods
        ``"all"``; or one or several names of methods, ``Method`` objects, or the user's own functions that take an
        instance and a ``Search`` and return an ``Outcome``. A mapping gives each method a name.
    seeds
        The seeds; every method runs once with each seed.
    time_limit_s
        Time limit of each run, in seconds.
    simulate_s, arrival_cv
        The seconds of arrivals with which every plan is replayed, None for no replay; and the coefficient of variation
        of inter-arrival times, None for arrivals as the instance states them.
    report
        A function that is called with a line before each run.

    Returns
    -------
    ComparisonTable
        All runs, and by instance and method their means with confidence intervals. Ctrl-C ends the comparison with the
        runs that are done; ``missing`` counts the others.

    Raises
    ------
    InputError
        If an instance or method is unknown, an instance is given twice, or there is nothing to compare.
    KeyboardInterrupt
        After Ctrl-C, if no run is done.
    """
    found = [read(one) for one in _several(instances)]
    named, numbers = _named(methods), [int(seed) for seed in seeds]
    for what, there in (("instances", found), ("methods", named), ("seeds", numbers)):
        if not there:
            raise InputError(f"compare: {what}: should be at least one")
    if twice := {one.name for one in found if sum(other.name == one.name for other in found) > 1}:
        raise InputError(f"compare: instances: {min(twice)} stands there twice; give each a name of its own")
    runs: list[TableRow] = []
    asked = list(product(found, named.items(), numbers))
    with suppress(KeyboardInterrupt):
        for instance, (name, method), seed in asked:
            if report is not None:
                report(f"{name} on {instance.name}, seed {seed}")
            runs.append(_run(instance, name, method, Comparison(time_limit_s, seed, simulate_s, arrival_cv)))
    if not runs:
        raise KeyboardInterrupt
    return ComparisonTable(tuple(runs), {one.name: objective_of(one).unit for one in found}, len(asked) - len(runs))


def _several(instances: Several) -> Iterable[Instance | FilePath]:
    if isinstance(instances, Instance | str) or not isinstance(instances, Iterable):
        return [instances]
    return instances


def _named(methods: str | Given | Sequence[Given] | Named) -> dict[str, Given]:
    """The methods to run, by their names in tables."""
    if isinstance(methods, str):
        methods = [*known_methods()] if methods == "all" else [name.strip() for name in methods.split(",")]
    if isinstance(methods, Mapping):
        named = dict(methods)
    else:
        several = methods if isinstance(methods, Iterable) else [methods]
        named = {_name(one): one for one in several}
    return {name: find_method(one).name if isinstance(one, str) else one for name, one in named.items()}


def _name(method: Given) -> str:
    """The name of a method or a function."""
    if isinstance(method, str):
        return method
    return str(getattr(method, "name", "") or getattr(method, "__name__", method))


def _run(instance: Instance, name: str, method: Given, comparison: Comparison) -> TableRow:
    """The row of one run. If the method fails, the row has the status ``error``, and the comparison goes on."""
    try:
        row = comparison.row(instance, method)[0]
    except MethodError as error:
        row = {"status": "error", "reason": str(error)}
    return {"instance": instance.name, **row, "method": name, "seed": comparison.seed}
