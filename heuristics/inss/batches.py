"""InSS's batch decision (Algorithm 1, BDA): the largest batches that a placement carries, by binary search.

From the paper: workloads are decided one after the other (line 2), each by a search from 1 to the largest batch that
the data describes, 32 in the paper (line 3), with three cases (lines 5-11); the algorithm also tells if some workload
has no batch (lines 13-17).

Where the listing is silent or contradicts the text, this module does the following:

- flag_i is set if all constraints hold, as the text says; line 7 sets it if they do not.
- A workload without a batch keeps the default, and the others are searched nevertheless (public program); line 14
  leaves them at the default too.
- The default is 1. But as long as a workload's batch is undecided, its neighbours are judged beside its largest batch,
  with which it disturbs them most. So the constraints of workloads decided earlier also hold at the end.
- (4b) asks by eq. 2 that two tasks are in time: the first task of a batch in the steady state, and the next task to
  arrive behind those that wait now. The instance's latency budget for the batch itself counts too.
- (4a) counts where the performance data states memory; a batch that does not fit is treated as one that is too slow,
  as in the public program.
"""

import numpy as np

from provision.heuristics.inss.system import Provisioning, System
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.traffic.rules import task_latency_ms

DEFAULT = 1


def decide_batches(system: System, given: Provisioning, rates_rps: Floats, queued: Floats) -> tuple[Ints, Bools]:
    """Choose the batch size of every workload by InSS's Algorithm 1, for many systems at once.

    Parameters
    ----------
    system
        The system, with its workloads and GPUs.
    given
        The placements, as arrays (systems, workloads).
    rates_rps, queued
        Arrays (systems, workloads): the arrival rates in requests/s, and the numbers of waiting tasks.

    Returns
    -------
    tuple of two arrays
        Two arrays (systems, workloads): the batches, and whether each workload has a batch that satisfies the
        constraints.
    """
    assumed = np.full(given.gpu.shape, system.max_batch)
    found = np.zeros_like(assumed)
    for workload in range(system.workloads):
        found[:, workload] = _search(system, given, assumed, workload, rates_rps[:, workload], queued[:, workload])
        assumed[:, workload] = np.maximum(found[:, workload], DEFAULT)
    return np.maximum(found, DEFAULT), found > 0


def keeping(system: System, given: Provisioning, batch: Ints, rates_rps: Floats, queued: Floats) -> Bools:
    """(systems, workloads), whether each batch satisfies the constraints of Algorithm 1 beside the others' batches."""
    latency_ms, throughput_rps = system.run(given, batch)
    holds = throughput_rps >= rates_rps * (1 - TOLERANCE)
    for at in range(system.workloads):
        holds[:, at] &= system.fits(given, batch, at, batch[:, at])
        holds[:, at] &= _in_time(system, at, batch[:, at], rates_rps[:, at], queued[:, at], latency_ms[:, at])
    return holds


def _search(system: System, given: Provisioning, assumed: Ints, workload: int, rate_rps: Floats,
            queued: Floats) -> Ints:
    """(systems,), the batch of one workload; 0 if none was found (lines 3-12). A binary search would evaluate at most
    six batches, one after the other; it is faster to evaluate all batches at once.
    """
    members, kind = given.together_with(workload), system.kind[given.gpu[:, workload]]
    latency_ms, throughput_rps = system.at_every_batch(workload, members, given.units, assumed, kind)
    sizes = np.arange(1, system.max_batch + 1)[:, None]
    in_time = _in_time(system, workload, sizes, rate_rps, queued, latency_ms)
    in_time &= system.fits(given, assumed, workload, sizes)
    return _halving(in_time, in_time & (throughput_rps >= rate_rps * (1 - TOLERANCE)))


def _halving(in_time: Bools, holds: Bools) -> Ints:
    """(systems,) the batch that InSS's binary search returns; 0 where it finds none.

    ``in_time`` (batches, systems) says whether a batch satisfies the paper's constraints (4a) and (4b), memory and
    latency. ``holds``, of the same shape, says whether it satisfies all constraints.
    """
    sizes, systems = in_time.shape
    low, high, best = np.ones(systems, int), np.full(systems, sizes), np.zeros(systems, int)
    searching, each = low <= high, np.arange(systems)
    while searching.any():
        middle = (low + high) // 2
        timely, found = in_time[middle - 1, each], searching & holds[middle - 1, each]
        best, low = np.where(found, middle, best), np.where(found, middle + 1, low)
        high = np.where(timely, high, middle - 1)
        searching &= (found | ~timely) & (low <= high)
    return best


def _in_time(system: System, workload: int, batch: Ints, rate_rps: Floats, queued: Floats, latency_ms: Floats) -> Bools:
    """Whether a workload satisfies constraint (4b): its tasks keep the SLO, and its batches keep the latency budget."""
    first_ms = task_latency_ms(1, batch, rate_rps, latency_ms)
    next_ms = task_latency_ms(queued + 1, batch, rate_rps, latency_ms)
    task_ms, slo_ms = np.maximum(first_ms, next_ms), system.slo_ms[workload]
    return (task_ms <= slo_ms * (1 + TOLERANCE)) & (latency_ms <= system.budget_ms[workload] * (1 + TOLERANCE))
