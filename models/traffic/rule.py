"""Defines the interface of latency rules, which decide how long batches may take and what rates replicas can carry."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provision.models.base.tolerances import DUST
from provision.models.performance.operating_points import OperatingPoints, Prediction
from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace

Floats = NDArray[np.float64]
BLOCK = 16
"""The number of operating points whose rates are looked up at once."""


class Traffic(NamedTuple):
    """What a replica must bear: how requests arrive at it, and the percentile of their latency that the SLO is for.

    ``burst`` is how many requests of a workload may arrive at the same moment. ``whole_rps`` is the rate of the
    workload, from which a replica's part of a burst follows; if it is 0, the replica may get the whole burst.
    ``most_batch`` is the largest batch that may run, None for any; a replica with larger batches would send larger
    bursts to the next stage of its workflow.
    """

    arrivals: Poisson | Renewal | Mmpp | Trace = POISSON
    percentile: float = 99.0
    burst: int = 1
    whole_rps: float = 0.0
    most_batch: int | None = None


class Bends(NamedTuple):
    """How the rate that a replica carries depends on its hold time: ascending hold times (ms), and the requests/s at
    each, the breakpoints.

    Between breakpoints, and from 0 to the first, the time per request is linear in the hold time. With a hold time
    beyond the last breakpoint the replica carries nothing.
    """

    hold_ms: Floats
    rps: Floats


class LatencyRule(ABC):
    """Decides which batch times keep an SLO. A subclass has to define the four abstract methods; the other methods use
    them.

    The *budget* of a workload is the part of its SLO that a plan may use, in ms. A batch *holds* its process for the
    hold time, and is answered a latency after its start. Arguments that are arrays broadcast against each other.

    Attributes
    ----------
    random_arrivals
        Whether plans keep their SLOs under random arrivals.
    part_of_slo
        The budget as a fraction of the SLO.
    """

    random_arrivals: ClassVar[bool] = False
    part_of_slo: ClassVar[float] = 1.0

    @abstractmethod
    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """Return the longest hold times with which replicas carry a rate (requests/s) within the rule, in ms.

        A batch is loaded in ``load_ms`` before it holds its process, so that its latency is ``load_ms`` plus the hold
        time. Replicas with a shorter hold time keep the rule too.
        """

    @abstractmethod
    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """Return the highest rates that replicas carry within the rule, in requests/s; 0 where no rate keeps the rule.

        A full batch holds its process for ``hold_ms`` and is answered ``latency_ms`` after its start.
        """

    @abstractmethod
    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """Return the longest duty cycles of replicas that run in turn with others, in ms.

        A request waits for its replica's turn: at most one cycle, if all waiting requests fit into one batch. It is
        answered ``execution_ms`` after its batch starts.
        """

    @abstractmethod
    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """The percentile of the latency of requests at a replica with rate ``rate_rps``, in ms.

        It is None if the rule does not tell it, and infinite if the queue grows without limit. A replica keeps the rule
        if this value, or the batch latency if the value is None, is within the budget. With ``found.in_turns`` the
        replica starts one batch in every duty cycle.
        """

    def under(self, traffic: Traffic) -> Self:
        """The rule for replicas with this traffic; by default the rule itself, for rules that do not depend on traffic.
        """
        return self

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """The longest time, in ms, that a request should wait for its batch to fill while a process is idle."""
        return max(0.0, slo_ms * self.part_of_slo * safety - latency_ms)

    def bends(self, batch: int, load_ms: float, budget_ms: float) -> Bends:
        """The rate that a replica with one process carries, as a function of its hold time.

        A batch is loaded in ``load_ms`` before it holds the process. By default the rate is the throughput with full
        batches as long as the batch latency is within the budget.
        """
        longest_ms = budget_ms - load_ms
        hold_ms = np.array([longest_ms] if longest_ms > 0 else [])
        return Bends(hold_ms, 1000 * batch / hold_ms)

    def carried_rps(self, batch: int, processes: int, found: Prediction, budget_ms: float) -> float:
        """The highest rate, in requests/s, at which a replica keeps the rule; by default its throughput.

        The caller has checked that its batch latency is within the budget.
        """
        return found.throughput_rps

    def best_points(self, points: OperatingPoints, max_processes: int, budgets_ms: Floats) -> Floats:
        """Return for every budget the operating point that carries the highest rate.

        Points with more than ``max_processes`` processes are left out. Of points with the same rate, the point with the
        least latency is returned.

        Returns
        -------
        array (budgets, 4)
            Rate (requests/s), latency (ms), batch size and processes of the point; zeros where no point keeps the
            budget.
        """
        table = np.column_stack([points.throughput_rps, points.latency_ms, points.batch, points.processes])
        table = table[points.processes <= max_processes]
        table = table[np.lexsort((table[:, 3], table[:, 1], -table[:, 0]))]
        different, which = np.unique(budgets_ms, return_inverse=True)
        best, left = np.zeros((len(different), 4)), np.arange(len(different))
        for start in range(0, len(table), BLOCK):
            # No point carries more than its throughput, and points come in descending order of throughput. So the
            # search for a budget ends when its best rate so far is at least the next throughput.
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
        """The rates (requests/s) that operating points carry within budgets, (points, budgets)."""
        throughput, latency, batch, processes = (column[:, None] for column in block.T)
        hold = 1000 * batch * processes / throughput
        return self.capacity_rps(batch.astype(int), processes.astype(int), hold, latency, budgets_ms)
