"""A plan replayed before it is returned, and what ``auto`` does about a replay that refutes it.

The latency rule is about the percentile in the long run. In a minute the percentile of few requests, or of a queue near
its limit, swings around that: a plan is sure only if a workload's percentile, ``SURE`` standard deviations between
replications above their mean, is within its SLO.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import fmean, stdev

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.plans.result import Replay
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.simulation.simulate import simulate

SECONDS, LEAST_S = 60.0, 1.0
"""Length of a replay at most and at least."""
REPLICATIONS, MOST_REPLICATIONS = 3, 10
"""How often a replay is repeated, as far as MOST_REQUESTS allow."""
MOST_REQUESTS = 2.5e6
"""Requests of all replays of a plan: a few seconds of compute."""
MANY = 10_000
"""Requests of every language model in a replay, where the others leave room: near saturation few tell little."""
REPAIRS = 4
SURE = 3.0
SPARE = 0.98
"""A repair plans for this part of the latency that would have been in time in the replay."""
LEAST_SLO = 0.5
"""The part of its SLO that a repair leaves a workload at least."""


def reports_of(instance: Instance, plan: Plan, seed: int) -> list[SimulationReport]:
    """Replays of a plan under the traffic of the instance, with seeds from ``seed`` on; none where it cannot be."""
    rate_rps = sum(one.rate_rps for one in instance.workloads)
    longest = max((MANY / one.rate_rps for one in instance.workloads if one.tokens and one.rate_rps), default=SECONDS)
    seconds = min(max(SECONDS, longest), MOST_REQUESTS / REPLICATIONS / rate_rps) if rate_rps else LEAST_S
    seconds = max(seconds, LEAST_S)
    possible = int(MOST_REQUESTS / (rate_rps * seconds)) if rate_rps else REPLICATIONS
    replications = min(max(possible, REPLICATIONS), MOST_REPLICATIONS)
    try:
        return [simulate(instance, plan, seconds, seed + number) for number in range(replications)]
    except InputError:
        return []


def replay_of(reports: list[SimulationReport]) -> Replay | None:
    """What replays say of a plan; whoever is late in one of them is late."""
    if not reports:
        return None
    worst = max((report.worst for report in reports), key=lambda one: one.over_slo)
    late = dict.fromkeys(name for report in reports for name in report.late)
    settings = reports[0].settings
    return Replay(settings.seconds, len(reports), settings.seed, worst.workload, worst.percentile, worst.over_slo,
                  tuple(late))


def replayed(instance: Instance, plan: Plan, seed: int) -> Replay | None:
    """What a plan's workloads meet under the traffic of the instance; None where it cannot be replayed."""
    return replay_of(reports_of(instance, plan, seed))


def unsure(reports: list[SimulationReport]) -> dict[str, float]:
    """By name, the percentile over the SLO of whoever is late, or not sure to be in time, in replays."""
    met: defaultdict[str, list[float]] = defaultdict(list)
    for report in reports:
        for one in report.timed:
            met[one.workload].append(one.over_slo)
    reached = {name: max(max(found), fmean(found) + SURE * stdev(found)) for name, found in met.items()}
    return {name: over for name, over in reached.items() if over > 1}


def tightened(instance: Instance, over_slo: Mapping[str, float]) -> Instance:
    """The instance with shorter SLOs, at which the named workloads would have been in time.

    A late workflow shortens those of its workloads.
    """
    over = dict(over_slo)
    for flow in instance.workflows:
        for name in flow.workloads if flow.name in over else ():
            over[name] = max(over.get(name, 0.0), over[flow.name])
    return instance.replace(workloads=[
        Workload(**one.with_slo(max(SPARE / over[one.name], LEAST_SLO))) if one.name in over else one
        for one in instance.workloads
    ])


def lines(replay: Replay | None) -> Iterator[str]:
    """A sentence about a replay."""
    if replay is not None:
        late = f"late: {', '.join(replay.late)}" if replay.late else "nobody late"
        yield (f"replayed {replay.replications} x {replay.seconds:g} s: worst P{replay.percentile:g} "
               f"{replay.over_slo:.2f} of its SLO ({replay.workload}), {late}")
