"""A plan replayed before it is returned, and what ``auto`` does about a replay that refutes it."""

from __future__ import annotations

from collections.abc import Iterator

from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan
from provision.models.plans.result import Replay
from provision.models.problem.instance import Instance
from provision.simulation.simulate import simulate

SECONDS, LEAST_S, REPLICATIONS = 60.0, 1.0, 3
"""Length of a replay at most and at least, and how often it is repeated."""
MOST_REQUESTS = 2e6
"""Requests of all replays of a plan: a few seconds of compute."""
MANY = 10_000
"""Requests of every language model in a replay, where the others leave room: near saturation few tell little."""
REPAIRS = 2
SPARE = 0.98
"""A repair plans for this part of the latency that would have been in time in the replay."""


def replayed(instance: Instance, plan: Plan, seed: int) -> Replay | None:
    """What a plan's workloads meet under the traffic of the instance; None where it cannot be replayed.

    Its replications have seeds from ``seed`` on; whoever is late in one of them is late.
    """
    rate_rps = sum(one.rate_rps for one in instance.workloads)
    longest = max((MANY / one.rate_rps for one in instance.workloads if one.tokens and one.rate_rps), default=SECONDS)
    seconds = min(max(SECONDS, longest), MOST_REQUESTS / REPLICATIONS / rate_rps) if rate_rps else LEAST_S
    seconds = max(seconds, LEAST_S)
    try:
        reports = [simulate(instance, plan, seconds, seed + number) for number in range(REPLICATIONS)]
    except InputError:
        return None
    worst = max((report.worst for report in reports), key=lambda one: one.over_slo)
    late = dict.fromkeys(name for report in reports for name in report.late)
    return Replay(seconds, REPLICATIONS, seed, worst.workload, worst.percentile, worst.over_slo, tuple(late))


def tightened(instance: Instance, over_slo: float) -> Instance:
    """The instance with a lower ``safety``, at which the latencies of the replay would have kept their SLOs."""
    safety = instance.policy.safety * SPARE / max(min(over_slo, 2.0), 1.0)
    return instance.with_policy(safety=safety)


def lines(replay: Replay | None) -> Iterator[str]:
    """A sentence about a replay."""
    if replay is not None:
        late = f"late: {', '.join(replay.late)}" if replay.late else "nobody late"
        yield (f"replayed {replay.replications} x {replay.seconds:g} s: worst P{replay.percentile:g} "
               f"{replay.over_slo:.2f} of its SLO ({replay.workload}), {late}")
