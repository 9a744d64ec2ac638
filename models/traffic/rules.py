"""The latency rules, by the names that a policy's ``latency_budget`` gives. The two rules that count on full batches
are here; the rule for random arrivals, ``queueing``, has a file of its own.

``half_slo`` is the rule of Nexus, iGniter and ParvaGPU: a batch may take half of the SLO; the other half is for
waiting.

``full_batches`` is InSS's rule (eq. 2): requests arrive evenly, only full batches start, and the first request of a
batch keeps the SLO. The rule is for InSS's problem: the most throughput of shared GPUs with one replica per workload.
There a replica serves the whole rate of its workload, so that the time in which its batch fills is known. At the start
no request waits.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

import numpy as np
from numpy.typing import ArrayLike

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.operating_points import Prediction
from provision.models.traffic.rule import LatencyRule


class HalfSlo(LatencyRule):
    """Keeps the batch latency within half of the SLO times ``safety``; a replica carries its throughput with full
    batches.
    """

    part_of_slo = 0.5

    def queue_delay_ms(self, slo_ms: float, safety: float, latency_ms: float) -> float:
        """Half of the SLO minus the batch latency, in ms."""
        return max(0.0, slo_ms / 2 - latency_ms)

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The budget minus the time to load a batch, but at most the time in which the next batch arrives, in ms."""
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        return np.minimum(np.asarray(budget_ms) - load_ms, every_ms)

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The throughput with full batches in requests/s; 0 where the batch latency exceeds the budget."""
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        return np.where(np.asarray(latency_ms) <= budget_ms, throughput_rps, 0.0)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """Twice the budget minus the execution time, but at most the time in which the next batch arrives, in ms.

        gpu-lets predicts the latency (duty cycle + execution) / 2; this cycle keeps it within the budget.
        """
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) / rate_rps
        return np.minimum(2 * np.asarray(budget_ms) - execution_ms, every_ms)

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """None: the rule tells nothing about the latency of requests."""
        return None


def task_latency_ms(queued: ArrayLike, batch: ArrayLike, rate_rps: ArrayLike, batch_ms: ArrayLike,
                    running_ms: ArrayLike = 0.0) -> Floats:
    """Return the latency of a task from its arrival to the end of its batch (eq. 2), in ms.

    If tasks for at least a batch wait already, they are served batch by batch. Otherwise the task waits until arrivals
    have filled its batch and the process is idle.

    Parameters
    ----------
    queued
        The number of tasks that wait for a batch, with this task (W).
    batch
        The batch size (b).
    rate_rps
        The rate at which tasks arrive, in tasks/s (lambda).
    batch_ms
        The execution latency of a batch (t_inf).
    running_ms
        The time that the running batch still takes when the task arrives (exec).

    Returns
    -------
    ndarray
        The latencies, in the broadcast shape of the arguments; infinite where the batch never fills.
    """
    running_ms, batch_ms = np.asarray(running_ms, float), np.asarray(batch_ms, float)
    missing, rate_rps = np.broadcast_arrays(np.maximum(np.subtract(batch, queued), 0), rate_rps)
    wait_ms = np.divide(1000 * missing, rate_rps, out=np.where(missing > 0, np.inf, 0.0), where=np.greater(rate_rps, 0))
    behind_ms = running_ms + np.ceil(np.divide(queued, batch)) * batch_ms
    return np.where(missing > 0, np.maximum(running_ms, wait_ms) + batch_ms, behind_ms)


FULL_BATCHES = "full_batches"
FILLED = frozenset({"interference"})
"""The features of performance data with which this rule can be used."""


class FullBatches(LatencyRule):
    """Keeps the wait of a batch's first request plus the batch's latency within the SLO times ``safety``."""

    def room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, load_ms: ArrayLike, budget_ms: ArrayLike,
                processes: ArrayLike = 1) -> Floats:
        """The budget minus the time to fill and to load a batch, but at most the time in which the next batch arrives,
        in ms.
        """
        with np.errstate(divide="ignore"):
            every_ms = 1000 * np.asarray(batch, float) * np.asarray(processes) / rate_rps
        room: Floats = np.asarray(budget_ms) - task_latency_ms(1, batch, rate_rps, load_ms)
        return np.minimum(room, every_ms)

    def capacity_rps(self, batch: ArrayLike, processes: ArrayLike, hold_ms: ArrayLike, latency_ms: ArrayLike,
                     budget_ms: ArrayLike) -> Floats:
        """The throughput with full batches in requests/s; 0 where filling a batch at that rate and running it exceeds
        the budget.
        """
        throughput_rps = 1000 * np.asarray(batch, float) * np.asarray(processes) / np.asarray(hold_ms)
        answered_ms = task_latency_ms(1, batch, throughput_rps, latency_ms)
        return np.where(answered_ms <= np.asarray(budget_ms), throughput_rps, 0.0)

    def cycle_room_ms(self, batch: ArrayLike, rate_rps: ArrayLike, execution_ms: ArrayLike, budget_ms: ArrayLike
                      ) -> Floats:
        """The longest duty cycle of a replica that runs in turn with others, in ms.

        It is the smaller of two times: the budget minus the time to fill and execute a batch, and the time in which the
        next batch arrives.
        """
        return self.room_ms(batch, rate_rps, execution_ms, budget_ms)

    def tail_ms(self, batch: int, processes: int, found: Prediction, rate_rps: float, delay_ms: float) -> float | None:
        """The latency of the first request of a batch, in ms; it is the longest."""
        return float(task_latency_ms(1, batch, rate_rps, found.latency_ms))


def _queueing() -> LatencyRule:
    """Make the rule for random arrivals; its module is imported on first use."""
    from provision.models.traffic.queueing import Queueing

    return Queueing()


RULES: dict[str, Callable[[], LatencyRule]] = {"half_slo": HalfSlo, FULL_BATCHES: FullBatches, "queueing": _queueing}
"""What makes each rule of this package, by its name."""
GROUP = "provision.rules"
"""The entry points by which other packages add rules; each names a class that is made without parameters."""


@cache
def rule_names() -> tuple[str, ...]:
    """The names of all rules."""
    return (*RULES, *sorted(entry.name for entry in entry_points(group=GROUP)))


@cache
def rule_of(name: str) -> LatencyRule:
    """Return the latency rule with this name. Raises InputError if there is none; the message lists the rules that
    exist.
    """
    if name in RULES:
        return RULES[name]()
    for entry in entry_points(group=GROUP, name=name):
        made: LatencyRule = entry.load()()
        return made
    raise InputError(f"unknown latency rule {name!r}; use one of {', '.join(rule_names())}")
