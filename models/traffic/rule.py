"""The interface of a latency rule: what an SLO leaves a batch, at the rate that a replica is routed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.base.tolerances import DUST
from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace

Floats = NDArray[np.float64]
BLOCK = 16
"""Operating points whose rates are looked up together."""


class Traffic(NamedTuple):
    """What a replica must bear: how requests arrive at it, and the percentile of their latency that the SLO is for.

    ``burst`` is how many requests may arrive at the same moment, ``most_batch`` the largest batch that may run, None
    for any: what runs larger ones sends larger bursts to those that follow it in a workflow.
    """

    arrivals: Poisson | Renewal | Mmpp | Trace = POISSON
    percentile: float = 99.0
    burst: int = 1
    most_batch: int | None = None


class Bends(NamedTuple):
    """What a replica carries by its hold time: ascending hold times in ms, and the requests/s at each.

    Between them, and from 0 to the first, the time per request is linear in the hold time; what holds its process for
    longer than the last carries nothing.
    """

    hold_ms: Floats
    rps: Floats


class LatencyRule(ABC):
    """Decides which batch times keep an SLO. A rule of its own has the four abstract methods; the rest follows.

    The *budget* of a workload is the part of its SLO that a plan may use, in ms. Arguments that are arrays broadcast
    against each other.

    Attributes
    ----------
    random_arrivals
        Whether plans keep their SLOs under random arrivals.
    part_of_slo
        The part of an SLO that is the budget.
    """

    random_arrivals: ClassVar[bool] = False
    part_of_slo: ClassVar[float] = 1.0

    @abstractmethod
    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """Longest time that a batch may hold its process, in ms.

        A batch is loaded in ``load_ms`` before; so it is answered ``load_ms`` plus the hold after it starts. Whoever
        has a shorter hold keeps the rule too.
        """

    @abstractmethod
    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The highest rates, in requests/s, that replicas carry; 0 where they keep the rule at no rate.

        A full batch holds its process for ``hold_ms`` and is answered ``latency_ms`` after its start.
        """

    @abstractmethod
    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """Longest cycle of a replica that takes turns with others, in ms.

        Requests wait for their turn, a cycle at most when they all fit into one batch, and are answered
        ``execution_ms`` after its begin.
        """

    @abstractmethod
    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """The percentile of a request's latency, in ms, for a replica at a rate; None where the rule knows none.

        Infinite where there is none. A replica keeps the rule when this, or else its batch latency, is in the budget.
        Where ``found.in_turns``, a batch starts within a cycle of a request's arrival, one in every cycle.
        """

    def under(self, traffic: Traffic) -> Self:
        """The rule for replicas that bear this traffic; by default a rule does not look at it."""
        return self

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """Longest time, in ms, that a request should wait for its batch to fill while a process is idle."""
        return max(0.0, slo_ms * self.part_of_slo * safety - latency_ms)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """What a replica with one process carries, by its hold time; its batches are loaded in ``load_ms`` before.

        By default that is its throughput, as long as a batch is in the budget.
        """
        longest_ms = budget_ms - load_ms
        hold_ms = np.array([longest_ms] if longest_ms > 0 else [])
        return Bends(hold_ms, 1000 * batch / hold_ms)

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate, in requests/s, at which a replica keeps the rule; its batch latency is in the budget.

        By default its throughput.
        """
        return found.throughput_rps

    def best_points(self, points: OperatingPoints, max_processes: int, budgets_ms: Floats) -> Floats:
        """(budgets, 4): the highest rate of any point in requests/s, its latency in ms, batch and processes, or zeros.

        Points with more than ``max_processes`` do not count. Of points that carry the same rate the one that is
        answered first is taken.
        """
        table = np.column_stack([points.throughput_rps, points.latency_ms, points.batch, points.processes])
        table = table[points.processes <= max_processes]
        table = table[np.lexsort((table[:, 3], table[:, 1], -table[:, 0]))]
        different, which = np.unique(budgets_ms, return_inverse=True)
        best, left = np.zeros((len(different), 4)), np.arange(len(different))
        for start in range(0, len(table), BLOCK):
            # No point carries more than its throughput: budgets whose best rate is as high are done.
            left = left[best[left, 0] < table[start, 0] * (1 - DUST)]
            if not len(left):
                break
            block = table[start : start + BLOCK]
            rates = self._rates_rps(block, different[left])
            chosen = (rates >= rates.max(axis=0) * (1 - DUST)).argmax(axis=0)
            rate = rates[chosen, np.arange(len(left))]
            better = rate > best[left, 0] * (1 + DUST)
            best[left[better]] = np.column_stack([rate[better], block[chosen[better], 1:]])
        return best[which]

    def _rates_rps(self, block: Floats, budgets_ms: Floats) -> Floats:
        """(points, budgets) rates that operating points carry within budgets."""
        throughput, latency, batch, processes = (column[:, None] for column in block.T)
        hold = 1000 * batch * processes / throughput
        return self.capacity_rps(batch.astype(int), processes.astype(int), hold, latency, budgets_ms)
