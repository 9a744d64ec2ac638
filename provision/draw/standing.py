"""Tells what is known about a plan: the step that found it, what is proven, and how it fares in a replay."""

from collections.abc import Mapping
from typing import NamedTuple

from provision.draw.verdict import sentence
from provision.draw.words import part_of_slo, plural
from provision.models.plans.result import Replay, Result, relative_gap
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.objective import PER_HOUR, REQUESTS, objective_of

NOTHING: Mapping[str, float] = {}
BETTER = {PER_HOUR: ("costs less", "{:,.6g} $ per hour"), REQUESTS: ("carries more", "{:.6g} requests/s")}
"""The words for "is better" and the format of amounts, by the unit of the objective. Objectives with another unit count
GPUs.
"""


class Standing(NamedTuple):
    """What is proven about a plan, and how it fares in a replay.

    ``objective`` and ``bound`` are in ``unit``; ``proved`` says that no plan is better. ``p99_over_slo`` is, by
    workload, the replayed percentile divided by the SLO, and ``replayed_s`` the seconds of replayed arrivals.
    ``rehearsed`` is the replay that ``solve`` made before it returned the plan; it is shown if there is no other
    replay. ``verdict`` is the first sentence of the answer, with GPUs, cost and proof.
    """

    method: str
    unit: str
    objective: float | None = None
    bound: float | None = None
    proved: bool = False
    p99_over_slo: Mapping[str, float] = NOTHING
    replayed_s: float | None = None
    rehearsed: Replay | None = None
    verdict: str = ""

    @property
    def lines(self) -> list[str]:
        """The sentence on the proof and the sentence on the replay; a sentence is left out if there is nothing to tell.
        """
        return list(self.moods)

    @property
    def moods(self) -> dict[str, bool | None]:
        """The sentences on proof and replay, each with whether it is good news (True), bad (False) or neither
        (None)."""
        told = {self.verdict or self._proof: self.proved or None, self._replay or self._rehearsal: not self.late}
        return {line: mood for line, mood in told.items() if line}

    @property
    def late(self) -> list[str]:
        """The names of the workloads that miss their SLO in the replay."""
        replayed = [name for name, part in self.p99_over_slo.items() if part > 1]
        return replayed or list(self.rehearsed.late if self.rehearsed and not self.p99_over_slo else ())

    @property
    def _proof(self) -> str:
        if self.objective is None or self.bound is None:
            return ""
        better, amount = BETTER.get(self.unit, ("takes fewer", "{:.6g} GPUs"))
        if self.proved:
            return f"Proven: no plan {better} than {amount.format(self.objective)}."
        gap = relative_gap(self.objective, self.bound)
        bound = f"no plan {better} than {amount.format(self.bound)}"
        return f"The plan stands at {amount.format(self.objective)}; proven is that {bound}, a gap of {gap:.1%}."

    @property
    def _replay(self) -> str:
        if self.replayed_s is None or not self.p99_over_slo:
            return ""
        late = self.late
        worst = max(self.p99_over_slo.values())
        fared = f"{len(late)} of {len(self.p99_over_slo)} workloads miss their SLO" if late else "every SLO is kept"
        arrivals, of_slo = f"{self.replayed_s:g} s of arrivals", part_of_slo(worst)
        return f"Replayed for {arrivals}: {fared}, the worst P99 is {of_slo} of its SLO."

    @property
    def _rehearsal(self) -> str:
        one = self.rehearsed
        if one is None:
            return ""
        fared = f"{plural(len(one.late), 'workload')} late" if one.late else "every SLO is kept"
        worst = f"the worst P{one.percentile:g} is {part_of_slo(one.over_slo)} of its SLO ({one.workload})"
        return f"Replayed for {one.replications} x {one.seconds:.3g} s of arrivals: {fared}, {worst}."


def standing_of(instance: Instance, result: Result, replay: SimulationReport | None = None) -> Standing:
    """The Standing of a result with a plan, and of its replay."""
    found = "" if result.plan is None or result.plan.method in ("", result.method) else result.plan.method
    return Standing(
        f"{result.method} (its step {found})" if found else result.method,
        objective_of(instance).unit,
        result.objective,
        result.bound,
        objective_of(instance).proved(result.objective, result.bound),
        *replayed(replay),
        result.replay,
        sentence(instance, result) if result.report is not None else "",
    )


def replayed(replay: SimulationReport | None) -> tuple[Mapping[str, float], float | None]:
    """The pair (by workload, the replayed percentile divided by its SLO; the seconds of replayed arrivals)."""
    if replay is None:
        return NOTHING, None
    return {one.workload: one.over_slo for one in replay.workloads if one.offered_rps}, replay.settings.seconds
