"""The rule for random arrivals: a percentile of the replayed latency, waiting included, must be within the SLO times
safety.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .records import Instance, UndecidedError, Workload
from .replays.arrivals import arrival_times, calmed
from .replays.late import Counts, Late, judged
from .servers import Server, answered

Floats = NDArray[np.float64]

FIRST_REQUESTS = 2**14
WARM_UP = 0.05
"""The fraction of every replay's requests that is not counted, because queues are empty at the start."""
LOWER_RATES = (0.75, 0.4, 0.1)
"""The fractions of the rates at which a plan is also replayed, because it must hold with fewer requests too."""
ROUNDING = 1e-6
"""The part by which a latency may exceed its limit, because files round times."""


@dataclass(frozen=True)
class Found:
    """The result of replays of a workload or workflow at a fraction of the planned rates.

    If ``bounded``, the replays used upper bounds on batch times, which can only show that a plan holds.
    """

    name: str
    limit_ms: float
    percentile: float
    at_rate: float
    late: Late
    how: str
    bounded: bool = False

    @property
    def verdict(self) -> str:
        """"holds", "violated" or "not decided"."""
        return "not decided" if self.bounded and self.late.verdict == "violated" else self.late.verdict

    @property
    def message(self) -> str:
        """The result as a sentence."""
        where = "" if self.at_rate == 1 else f" at {self.at_rate:.0%} of the rate"
        return (f"{self.name}: {self.late.part:.3%} of requests over {self.limit_ms:.6g} ms{where} "
                f"({self.late.low:.3%} to {self.late.high:.3%}, allowed {self.late.allowed:.3%}, {self.how})")


def judge_random(instance: Instance, servers: list[Server], rates: Floats, budget_s: float) -> list[Found]:
    """Replay one workload at the rates of its servers and at LOWER_RATES. Return the result at the full rates, and
    those at lower rates that do not hold.

    If replicas share slices, upper bounds on their batch times are tried first. If the bounds do not show that the plan
    holds, the replicas are replayed together with the others on the slice.
    """
    workload = instance.workloads[servers[0].replica.workload]
    found = [_at(instance, workload, servers, rates, 1.0, budget_s)]
    for part in LOWER_RATES:
        lower = _at(instance, workload, servers, rates, part, budget_s / 4)
        if lower.verdict != "holds":
            found.append(lower)
    return found


def _at(instance: Instance, workload: Workload, servers: list[Server], rates: Floats, part: float,
        budget_s: float) -> Found:
    shared = any(one.shared for one in servers)
    beside = any(len(one.piece.replicas) > 1 for one in servers)
    how = "replayed, neighbours active throughout" if beside else "replayed"
    first = _replayed(instance, workload, servers, rates, part, budget_s, False, how)
    if not shared or first.late.verdict == "holds":
        return first
    if workload.routing == "least_loaded" and len(servers) > 1:
        raise UndecidedError(f"{workload.name}: least-loaded replicas that share slices are not replayed together")
    return _replayed(instance, workload, servers, rates, part, budget_s, True, "replayed with the others on the slice")


def _replayed(instance: Instance, workload: Workload, servers: list[Server], rates: Floats, part: float,
              budget_s: float, exactly: bool, how: str) -> Found:
    limit_ms = workload.slo_ms * instance.policy.safety
    rate_rps = float(rates.sum()) * part

    def replay(seed: int, requests: int) -> Counts:
        rng = np.random.default_rng([seed, int(exactly), int(1000 * part)])
        arrived = calmed(arrival_times(workload.arrivals, rate_rps, requests, rng), limit_ms)
        ended = answered(instance, servers, rates, arrived, rng, exactly)
        counted = slice(int(WARM_UP * len(arrived)), None)
        late = (ended - arrived)[counted] > limit_ms * (1 + ROUNDING)
        return [(int(late.sum()), len(late))]

    (late,) = judged(replay, [1 - workload.percentile / 100], FIRST_REQUESTS, budget_s)
    return Found(workload.name, limit_ms, workload.percentile, part, late, how)
