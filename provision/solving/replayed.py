"""Replays a plan before it is returned, and decides from the replays which workloads are late.

The latency rule is about the percentile in the long run. A plan is refuted if that percentile exceeds an SLO. In single
minutes, the fraction of late requests varies around its mean, and more so with fewer requests.

To judge a further minute from the replays, the square root of the fraction of late requests is used. Late requests come
in clusters, so the standard deviation of the fraction grows with its square root. The square root itself has about the
same standard deviation for any mean. A workload surely keeps its SLO in a further minute if the upper prediction bound
for a new draw of the square root (Student's t) is below the square root of the allowed fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.plans.result import Replay, SloMet
from provision.models.plans.simulation_report import TAIL_LEVELS, SimulatedWorkload, SimulationReport
from provision.models.problem.executor import IN_PROCESS, Executor, shared
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.simulation.simulate import simulate
from provision.simulation.tokens import further_limits
from provision.solving.schedule import SOLVE

SECONDS = 60.0
"""The longest replay of workloads without tokens, and the minute of ``policy.holds``, in seconds."""
BEYOND = 0.01
"""The probability that a further minute exceeds the prediction bound."""


def reports_of(
    instance: Instance, plan: Plan, seed: int, end: Deadline | None = None,
    tell: Callable[[str], None] = lambda text: None, executor: Executor = IN_PROCESS,
) -> list[SimulationReport]:
    """Replay a plan under the traffic of the instance several times.

    Parameters
    ----------
    instance, plan
        The Instance and its Plan.
    seed
        The seed of the first replay. Each further replay has the next seed.
    end
        The deadline for all replays; None for no limit. To meet it, there are fewer of them, but at least one.
    tell
        Called with a text that has the number of the current replay.
    executor
        Where the replays run.

    Returns
    -------
    list of SimulationReport
        Empty if the plan cannot be replayed.
    """
    given, planned, seconds, watch = executor.share(instance), executor.share(plan), _seconds(instance), Stopwatch()
    tasks = [(given, planned, seconds, seed + number) for number in range(SOLVE.replays)]
    found: dict[int, SimulationReport] = {}
    tell(f"replaying 1 of {len(tasks)}")
    with suppress(InputError):
        for number, report in executor.results(_simulated, tasks):
            found[number] = report
            late = end is not None and watch.elapsed_s / len(found) > end.left_s
            if late or len(found) == len(tasks):
                break
            tell(f"replaying {len(found) + 1} of {len(tasks)}")
    return [found[number] for number in sorted(found)]


def _simulated(instance: Any, plan: Any, seconds: float, seed: int) -> SimulationReport:
    """One replay of a shared plan, as a task."""
    return simulate(shared(instance), shared(plan), seconds, seed)


def too_many(instance: Instance) -> tuple[str, ...]:
    """A note if so many requests come that even the shortest replay has too many; else nothing."""
    seconds = SOLVE.shortest_s
    requests = seconds * sum(one.rate_rps for one in instance.workloads)
    return (f"not replayed: {requests:.3g} requests come in {seconds:g} s; provision simulate --seconds replays less",
            ) if requests > SOLVE.requests else ()


def _seconds(instance: Instance) -> float:
    """The seconds of arrivals in a replay."""
    rates_rps = [one.rate_rps for one in instance.workloads if one.rate_rps]
    slowest_rps = min((one.rate_rps for one in instance.workloads if one.tokens and one.rate_rps), default=math.inf)
    most = SOLVE.requests / SOLVE.replays / sum(rates_rps) if rates_rps else 0.0
    return max(min(max(SECONDS, SOLVE.each_requests / slowest_rps), most), SOLVE.shortest_s)


def replay_of(instance: Instance, reports: list[SimulationReport]) -> Replay | None:
    """The result of replays of a plan, in the long run and for a single minute; None if there are no replays."""
    if not reports:
        return None
    worst = max((report.worst for report in reports), key=lambda one: one.over_slo)
    settings, seconds = reports[0].settings, reports[0].settings.seconds
    late, by_chance = refuted(reports), {}
    for times in _timed(reports):
        chance = minute_late(_late_parts(times), _limit(times), seconds)
        if times[0].workload not in late and chance > BEYOND:
            by_chance[times[0].workload] = chance
    return Replay(seconds, len(reports), settings.seed, worst.workload, worst.percentile, worst.over_slo, tuple(late),
                  by_chance, tuple(_slos(instance, reports)))


def _slos(instance: Instance, reports: list[SimulationReport]) -> Iterator[SloMet]:
    """Yield every SLO with the latency in the worst replay.

    Workloads without traffic are left out. So is the time of the whole answer of a language model if its SLO does not
    limit that time.
    """
    answers = {one.name for one in instance.workloads if one.slo is not None and one.slo.e2e_ms is None}
    for times in _timed(reports):
        worst = max(times, key=lambda one: one.over_slo)
        if worst.workload not in answers and worst.offered_rps:
            yield SloMet(worst.workload, worst.percentile, worst.slo_ms, worst.at_slo.mean_ms,
                         float(_late_parts(times).mean()))


def replayed(instance: Instance, plan: Plan, seed: int) -> Replay | None:
    """Replay a plan under the traffic of the instance; None if it cannot be replayed."""
    return replay_of(instance, reports_of(instance, plan, seed))


def unsure(reports: list[SimulationReport], holds: str = "every_minute") -> dict[str, float]:
    """The workloads and workflows that may be late by ``policy.holds``, each with the ratio of its latency to its SLO.
    In a minute they may be late if they are late in some replay, or in time only by chance.
    """
    found: dict[str, float] = {}
    for times in _timed(reports):
        late, limit, seconds = _late_parts(times), _limit(times), reports[0].settings.seconds
        if holds == "long_run":
            error = _error(late, limit, times[0].offered_rps * seconds)
            part, over = limit, late.mean() > limit + SOLVE.clear * error
        else:
            part = max(math.sqrt(limit) - swing(np.sqrt(late), seconds), 0.0)**2
            over = late.max() > limit or np.sqrt(late).mean() > math.sqrt(part)
        if over:
            found[times[0].workload] = max(1.0, _needed(times, part), *(one.over_slo for one in times))
    return found


def refuted(reports: list[SimulationReport]) -> dict[str, float]:
    """The workloads and workflows that the replays show to be late in the long run, each with latency over SLO."""
    return unsure(reports, "long_run")


def _error(late: Floats, limit: float, requests: float) -> float:
    """The standard error of the mean of ``late`` (replays,), the fraction of late requests in each replay; if there is
    but one, with so many requests, that of its fraction if the true fraction were ``limit``.
    """
    if len(late) > 1:
        return float(late.std(ddof=1)) / math.sqrt(len(late))
    return math.sqrt(limit * (1 - limit) * SOLVE.cluster / requests) if requests > 0 else math.inf


def minute_late(late: Floats, limit: float, seconds: float) -> float:
    """The probability that a further minute has a larger fraction of late requests than allowed.

    Parameters
    ----------
    late
        (replays,) the fraction of late requests in each replay.
    limit
        The allowed fraction.
    seconds
        The length of a replay in seconds.
    """
    if len(late) < 2:
        return 0.0
    roots = np.sqrt(late)
    spread, over = _spread(roots, seconds), roots.mean() - math.sqrt(limit)
    return float(stdtr(len(roots) - 1, over / spread)) if spread else float(over > 0)


def swing(draws: Floats, seconds: float) -> float:
    """By how much a further minute exceeds the mean of ``draws`` (replays,) with the probability BEYOND at most: the
    upper bound of a prediction interval, less the mean. Each draw comes from a replay of ``seconds``.
    """
    spread = _spread(draws, seconds)
    return float(stdtrit(len(draws) - 1, 1 - BEYOND) * spread) if spread else 0.0


def _spread(draws: Floats, seconds: float) -> float:
    """The standard error of predicting a further minute from ``draws`` (replays,), each from a replay of ``seconds``; 0
    for a single draw, which tells nothing about the next.
    """
    many = len(draws)
    return float(draws.std(ddof=1)) * math.sqrt((1 + 1 / many) * min(seconds / SECONDS, 1.0)) if many > 1 else 0.0


def _timed(reports: list[SimulationReport]) -> Iterator[tuple[SimulatedWorkload, ...]]:
    """Yield for everything that has an SLO its results in all replays."""
    return zip(*(report.timed for report in reports), strict=True)


def _late_parts(times: Sequence[SimulatedWorkload]) -> Floats:
    """(replays,) the fraction of late requests in each replay."""
    return np.array([one.violation_rate for one in times])


def _limit(times: Sequence[SimulatedWorkload]) -> float:
    """The fraction of requests that may be late."""
    return 1 - times[0].percentile / 100


def _needed(times: Sequence[SimulatedWorkload], part: float) -> float:
    """The latency that at most the fraction ``part`` of the requests exceeds, divided by the SLO."""
    tails_ms = np.mean([[math.inf if ms is None else ms for ms in one.tail_ms] for one in times], axis=0)
    return float(np.nan_to_num(np.interp(1 - part, TAIL_LEVELS, tails_ms), nan=np.inf)) / times[0].slo_ms


def tightened(instance: Instance, over_slo: Mapping[str, float]) -> Instance:
    """The instance with the SLO of each late workload divided by its ratio of latency to SLO. A late workflow counts
    for all of its workloads, a late limit on tokens for its workload.
    """
    served: dict[str, Sequence[str]] = {one.name: (one.name,) for one in instance.workloads}
    served |= {one.name: (instance.workloads[one.workload].name,) for one in further_limits(instance)}
    served |= {flow.name: flow.workloads for flow in instance.workflows}
    over = dict[str, float]()
    for late, ratio in over_slo.items():
        over |= {name: max(over.get(name, 0.0), ratio) for name in served[late]}
    return instance.replace(workloads=[
        Workload(**one.with_slo(max(SOLVE.spare / over[one.name], SOLVE.least_slo))) if one.name in over else one
        for one in instance.workloads
    ])
