"""The interface of a latency rule: what an SLO leaves a batch, at the rate that a replica is routed."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace

Floats = NDArray[np.float64]


class Traffic(NamedTuple):
    """What a replica must bear: how requests arrive at it, and the percentile of their latency that the SLO is for."""

    arrivals: Poisson | Renewal | Mmpp | Trace = POISSON
    percentile: float = 99.0


class Bends(NamedTuple):
    """What a replica carries by its hold time: ascending hold times in ms, and the requests/s at each.

    Between them, and from 0 to the first, the time per request is linear in the hold time; what holds its process for
    longer than the last carries nothing.
    """

    hold_ms: Floats
    rps: Floats


def full_rate(batch: int, longest_ms: float) -> Bends:
    """The Bends of a replica that carries its throughput while it holds its process for no longer than this."""
    hold_ms = np.array([longest_ms] if longest_ms > 0 else [])
    return Bends(hold_ms, 1000 * batch / hold_ms)


class LatencyRule(Protocol):
    """Decides which batch times keep an SLO; a budget is what ``budget_ms`` makes of one."""

    random_arrivals: bool
    """Whether plans keep their SLOs under random arrivals."""

    def under(self, traffic: Traffic) -> Self:
        """The rule for replicas that bear this traffic; a rule without it is for Poisson arrivals and the P99."""
        ...

    def budget_ms(self, slo_ms: float, safety: float) -> float:
        """What a plan may use of an SLO, in ms."""
        ...

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """Longest time, in ms, that a request should wait for its batch to fill while a process is idle."""
        ...

    def best_points(self, points: OperatingPoints, max_processes: int, budgets_ms: Floats) -> Floats:
        """(budgets, 4): the highest rate of any point in requests/s, its latency in ms, batch and processes, or zeros.

        Points with more than ``max_processes`` do not count.
        """
        ...

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """Longest time that a batch may hold its process, in ms, arrays that broadcast against each other.

        A batch is loaded in ``load_ms`` before; so it is answered ``load_ms`` plus the hold after it starts. Whoever
        has a shorter hold keeps the rule too.
        """
        ...

    def most_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                 budget_ms: ArrayLike) -> Floats:
        """The highest rates, in requests/s, that replicas carry; arrays that broadcast against each other.

        A full batch holds its process for ``hold_ms`` and is answered ``latency_ms`` after its start.
        """
        ...

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """What a replica with one process carries, by its hold time; its batches are loaded in ``load_ms`` before."""
        ...

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """Longest cycle of a replica that takes turns with others, in ms; arrays that broadcast against each other.

        Requests wait for their turn, a cycle at most when they all fit into one batch, and are answered
        ``execution_ms`` after its begin.
        """
        ...

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate, in requests/s, at which a replica keeps the rule; its batch latency is in the budget."""
        ...

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """The percentile of a request's latency, in ms, for a replica at a rate; None where the rule knows none.

        Infinite where there is none. A replica keeps the rule when this, or else its batch latency, is in the budget.
        Where ``found.in_turns``, a batch starts within a cycle of a request's arrival, one in every cycle.
        """
        ...
