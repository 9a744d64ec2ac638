"""Tells an answer in words: what the plan costs and which step found it, what is proven, and which SLOs it keeps.

By how much it keeps them comes from the verifier or, if the plan was replayed, from the replay.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rich.style import Style
from rich.table import Table
from rich.text import Text

from provision.draw.output import number, part_of_slo, plural, printable, ranges
from provision.models.base.objects import known
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report
from provision.models.plans.result import Replay, Result, relative_gap
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import (
    HOURS_PER_MONTH,
    PER_HOUR,
    REQUESTS,
    committed_per_hour,
    least_per_hour,
    objective_of,
)

MOST_LINES = 24
"""The most SLOs that are listed; a line tells how many more there are."""
NAME_WIDTH = 20
"""A name of a workload is not broken into pieces shorter than this."""
KEPT, BY_CHANCE, MISSED = Style(color="green"), Style(color="yellow"), Style(color="red", bold=True)


class SloLine(NamedTuple):
    """An SLO in the list: the workload's ``name``, ``what`` is limited to ``limit_ms``, and the value ``met_ms`` that
    is reached, in milliseconds (None if it does not exist, since requests were dropped).

    ``by_chance`` tells that the replays do not refute the limit, though the worst of them may miss it; ``held`` that it
    is kept over all of them.
    """

    name: str
    what: str
    limit_ms: float
    met_ms: float | None
    by_chance: bool = False
    held: bool = True

    @property
    def kept(self) -> bool:
        """Whether the limit is kept, up to rounding."""
        return self.met_ms is not None and self.met_ms <= self.limit_ms * (1 + 1e-9)

    @property
    def part(self) -> float:
        """The value reached divided by the limit; infinite if it does not exist."""
        return math.inf if self.met_ms is None else self.met_ms / self.limit_ms


def money(per_hour: float) -> str:
    """A price per hour in words, with the price per month."""
    return f"{per_hour:,.2f} $ per hour ({per_hour * HOURS_PER_MONTH:,.0f} $ per month)"


def sentence(instance: Instance, result: Result) -> str:
    """A sentence on the GPUs and the cost of the plan, and on the proof."""
    if result.plan is None:
        late = "no plan was found in the time given; a longer --time-limit may help"
        told = late if result.status == "unknown" else result.status
        return f"{result.instance}: {told}: {result.reason}" if result.reason else f"{result.instance}: {told}"
    report = known(result.report)
    cost = "" if report.cost_per_hour is None else f", {money(report.cost_per_hour)}"
    if committed := committed_per_hour(instance):
        cost += f", {committed:,.2f} $ of it committed"
    carries = f"{number(known(result.objective))} requests/s on " if instance.objective == THROUGHPUT else ""
    return f"{result.instance}: {carries}{plural(report.gpus, 'GPU')}{cost}. {_proof(instance, result)}"


def _proof(instance: Instance, result: Result) -> str:
    better, unit = _better(instance)
    if result.objective is None or result.bound is None:
        return f"Nothing is proven: method {result.method} found no bound."
    value, bound = result.objective, result.bound
    if objective_of(instance).unit == PER_HOUR and (committed_per_hour(instance) or instance.power):
        value, bound = known(known(result.report).cost_per_hour), least_per_hour(instance, bound)
    told = unit.format(bound)
    if result.status == "refuted":
        late = ", ".join(result.replay.late) if result.replay else "a workload"
        return f"Replays refute it: {late} late beyond chance; proven is only that no plan {better} than {told}."
    if objective_of(instance).proved(value, bound):
        return f"Proven: no plan {better}."
    gap = known(relative_gap(value, bound))
    return f"No plan {better} than {told}, proven: at most {gap:.1%} better than this one."


def _better(instance: Instance) -> tuple[str, str]:
    """The words for "is better" and the format of an amount, for the instance's objective."""
    if instance.objective == THROUGHPUT:
        return "carries more", "{:,.6g} requests/s"
    if objective_of(instance).unit == "GPUs":
        return "takes fewer", "{:.6g} GPUs"
    return "costs less", "{:,.2f} $ per hour"


def problems(result: Result) -> Iterator[str]:
    """Yield lines on what is wrong with the plan, and the notes that a reader of the answer should know."""
    report = result.report
    if result.status == "infeasible":
        yield "Who goes without, and what would bring each workload back: provision ration."
    if report is not None and not report.ok:
        count, first = plural(len(report.violations), "violation"), report.violations[0].message
        yield f"Does not hold: {count}, the first: {first} (provision verify lists them)"
    if result.replay is not None and result.replay.late:
        yield f"Late in the replay: {', '.join(result.replay.late)}"
    if result.replay is not None:
        yield from _by_chance(result.replay)
    yield from (f"Note: {note}" for note in result.notes)


def _by_chance(replay: Replay) -> Iterator[str]:
    """Yield lines on SLOs that replays do not refute: those that single minutes may miss, and those of which the
    replays say too little.
    """
    open_ = {one.name: one for one in replay.slos if not one.held and one.name not in replay.late}
    chances = ", ".join(f"{name} {chance:.0%}" for name, chance in replay.by_chance.items() if name not in open_)
    if chances:
        yield f"Held over all replays together; single minutes are late by chance: {chances}"
    for one in open_.values():
        yield (f"Not decided: over all replays together {one.late:.2%} of the requests of {one.name} are late, "
               f"{1 - one.percentile / 100:.2%} allowed. By the rule it holds, and so few replays do not refute that; "
               "a longer --time-limit replays more")


def nodes(plan: Plan) -> Iterator[str]:
    """Yield a line that names the node of every GPU, if the plan has nodes."""
    on: dict[str, list[int]] = {}
    for at, gpu in enumerate(plan.gpus):
        if gpu.node is not None:
            on.setdefault(gpu.node, []).append(at)
    if on:
        yield "; ".join(f"Node {name}: GPU {ranges(on[name], 6)}" for name in sorted(on))


def made(result: Result) -> str:
    """A sentence on the method that found the plan, the seconds it took, and how the plan was checked."""
    took_s = result.build_seconds + result.solve_seconds
    how = "violates rules" if not result.verified else "verified"
    one = result.replay
    replays = f"replayed {one.replications} x {number(one.seconds)} s" if one else "not replayed"
    return f"Method {result.method}, {took_s:.1f} s; {how}; {replays}."


def slos_of(instance: Instance, result: Result) -> list[SloLine]:
    """A line for every SLO, with the value reached in the replay; without a replay, with the predicted value."""
    if result.replay is not None:
        late = result.replay.late
        return [SloLine(one.name, f"P{one.percentile:g} replayed", one.limit_ms, one.met_ms, one.name not in late,
                        one.held)
                for one in result.replay.slos]
    return list(_predicted(instance, result.report)) if result.report else []


def _predicted(instance: Instance, report: Report) -> Iterator[SloLine]:
    """Yield a line for every workload without tokens, with the prediction for its tightest replica: the percentile of
    requests if the latency rule predicts it, otherwise the latency of a batch.
    """
    found: dict[str, SloLine] = {}
    for one in report.predictions:
        asked = instance.workload[one.workload]
        if asked.tokens is not None:
            continue
        if one.p99_ms is None:
            line = SloLine(one.workload, "batch", one.budget_ms, one.latency_ms)
        else:
            what = f"P{instance.policy.percentile_of(asked):g} promised at most"
            line = SloLine(one.workload, what, one.budget_ms, one.p99_ms)
        if one.workload not in found or line.part > found[one.workload].part:
            found[one.workload] = line
    yield from found.values()


def slo_table(lines: Iterable[SloLine]) -> Table:
    """A table of the SLOs, tightest first, each with a mark (kept, held but not in every replay, not decided, missed).
    """
    ordered = sorted(lines, key=lambda one: -one.part)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", min_width=min(NAME_WIDTH, max((len(one.name) for one in ordered), default=0)))
    table.add_column(no_wrap=True)
    table.add_column()
    for one in ordered[:MOST_LINES]:
        mark, style = (("✓", KEPT) if one.kept else ("✗", MISSED) if not one.by_chance else
                       ("~" if one.held else "?", BY_CHANCE))
        met = "no answer" if one.met_ms is None else f"{one.what} {number(one.met_ms)} of {number(one.limit_ms)} ms"
        table.add_row(Text(mark, style), Text(printable(one.name)), met, Text(_margin(one), style))
    if len(ordered) > MOST_LINES:
        table.add_row("", f"and {len(ordered) - MOST_LINES} more", f"at most {ordered[MOST_LINES].part:.0%}", "")
    return table


def _margin(one: SloLine) -> str:
    if one.met_ms is None:
        return "all dropped"
    if one.kept:
        return ""
    told = ", held over all" if one.held else ", not decided"
    return f"{one.part - 1:.1%} over" + (f" in the worst replay{told}" if one.by_chance else "")


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
        """The sentences on the proof and on the replay, each with its mood: True if it is good news, False if bad, None
        if neither.
        """
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
