"""The result of a solve: the plan, the bound that proves it, and everything that is needed to repeat the solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from provision.models.base.shown import Shown, frame
from provision.models.base.tolerances import DUST
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class SloMet:
    """An SLO and the latency in a replay: ``met_ms`` is the percentile of the latency in the worst replication,
    ``late`` the part of all requests that were late over all replications.

    ``met_ms`` is None if so many requests were not answered that the percentile does not exist. ``name`` is the name of
    a workload or workflow; for language models it also tells which tokens are timed.
    """

    name: str
    percentile: float
    limit_ms: float
    met_ms: float | None
    late: float = 0.0

    @property
    def held(self) -> bool:
        """Whether no more requests were late over all replications than the percentile allows."""
        return self.late <= 1 - self.percentile / 100 + DUST

    @property
    def margin(self) -> float | None:
        """The part of ``limit_ms`` that ``met_ms`` leaves, as a fraction; None if ``met_ms`` is None.

        It is negative if the SLO is missed.
        """
        return None if self.met_ms is None else 1 - self.met_ms / self.limit_ms


@dataclass(frozen=True)
class Replay:
    """The result of replaying a plan under the traffic of its instance.

    ``workload`` is the workload or workflow with the worst latency relative to its SLO; ``over_slo`` is the
    ``percentile`` of its latency divided by its SLO, in the worst replication. ``late`` has the workloads and workflows
    that miss their SLO in the long run: all replications together show this beyond chance. ``by_chance`` has, for
    workloads that keep their SLO in the long run, the probability that a single minute misses it. ``slos`` has every
    SLO that the instance states.
    """

    seconds: float
    replications: int
    seed: int
    workload: str
    percentile: float
    over_slo: float
    late: tuple[str, ...]
    by_chance: Mapping[str, float] = field(default_factory=dict)
    slos: tuple[SloMet, ...] = ()


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """The verified outcome of one method on one instance.

    ``status`` is optimal, feasible, refuted, infeasible or unknown; ``termination`` tells why the method stopped
    (proved, completed, time_limit, stopped, died). A plan is refuted if its latency rule promises that all SLOs hold
    under random arrivals while replays miss them beyond chance; ``replay`` names the workloads. ``bound`` is a proven
    bound on the objective: a lower bound, or for throughput an upper bound. ``gap`` is the distance between objective
    and bound, divided by the objective. ``bound`` and ``gap`` are None if unknown. Without a plan, ``plan``,
    ``objective`` and ``report`` are None, and ``reason`` tells why. ``replay`` is None if nothing was replayed.
    ``notes`` has lines that a reader of the result should know.
    """

    instance: str
    digest: str
    method: str
    parameters: Mapping[str, Any]
    seed: int
    status: str
    termination: str
    reason: str
    plan: Plan | None
    report: Report | None
    objective: float | None
    bound: float | None
    build_seconds: float
    solve_seconds: float
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    replay: Replay | None = None

    @property
    def gap(self) -> float | None:
        """The relative distance of the objective from the bound; None if one of them is unknown."""
        return relative_gap(self.objective, self.bound)

    @property
    def verified(self) -> bool:
        """Whether there is a plan and the verifier found nothing wrong with it."""
        return self.report is not None and self.report.ok

    def __repr__(self) -> str:
        value = "no plan" if self.objective is None else f"objective {self.objective:g}"
        bound = "no bound" if self.bound is None else f"bound {self.bound:g}"
        return f"<Result of {self.instance} by {self.method}: {self.status}, {value}, {bound}>"

    def to_frame(self) -> DataFrame:
        """A pandas frame with one row: the numbers of ``summary``."""
        return frame([{name: value for name, value in self.summary().items() if not isinstance(value, (dict, list))}])

    @classmethod
    def of_summary(cls, content: Mapping[str, Any], plan: Plan | None, report: Report | None) -> Result:
        """The result that ``summary`` tells of, with its plan and the verifier's report on that."""
        rest = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        if told := rest.get("replay"):
            slos = tuple(SloMet(**one) for one in told.get("slos", ()))
            rest["replay"] = Replay(**told | {"late": tuple(told["late"]), "slos": slos})
        return cls(**rest | {"plan": plan, "report": report})

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision solve --json`` prints, except for ``plan_file``."""
        report = self.report
        return {
            "instance": self.instance,
            "digest": self.digest,
            "method": self.method,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "status": self.status,
            "termination": self.termination,
            "reason": self.reason,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "gpus": report.gpus if report else None,
            "gpcs": report.gpcs if report else None,
            "cost_per_hour": report.cost_per_hour if report else None,
            "build_seconds": round(self.build_seconds, 6),
            "solve_seconds": round(self.solve_seconds, 6),
            "verified": self.verified,
            "replay": asdict(self.replay) if self.replay else None,
            "versions": dict(self.versions),
            "notes": list(self.notes),
        }


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """The distance between objective and bound as a fraction of the objective; None if one of them is unknown.

    A distance within the rounding errors of floating-point sums counts as 0.
    """
    if objective is None or bound is None:
        return None
    gap = abs(objective - bound) / objective if objective else 0.0
    return gap if gap > DUST else 0.0
