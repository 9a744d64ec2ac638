"""Makes the row of a method in a comparison: the cost of its plan, the proof, and the lateness of replayed requests."""

from collections.abc import Callable
from dataclasses import dataclass

from provision.models.base.errors import UnsupportedError
from provision.models.base.known import known
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Incumbent, Outcome, Search
from provision.simulation.simulate import simulate
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
