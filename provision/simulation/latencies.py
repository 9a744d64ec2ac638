"""Tables of batch times for every slice, by batch size and by the processes that are busy on the slice.

Closed networks of several models: think times and slice times of batches on a slice with processor sharing.

Every busy process alternates between its think time Z, in which it does not use the slice, and its slice time S. Think
times grow with the number of busy processes. During its slice time a process progresses at a speed in inverse
proportion to the number of processes that use the slice.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import gpulets_of
from provision.models.performance.operating_points import Member
from provision.models.plans.plan import Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import performance_beside, predict_slice, slice_members


def network_times(data: FittedNetworks, compute_slices: int, replicas: Sequence[tuple[str, int]],
                  launching: Ints) -> tuple[Floats, Floats]:
    """Times of the two stages of batches.

    Parameters
    ----------
    data
        The FittedNetworks, with ``models`` by name and the list of ``batches``.
    compute_slices
        The number of compute slices (GPCs) of the slice.
    replicas
        (model, planned batch size) of each replica.
    launching
        The number of busy processes for each row of think times, (rows,).

    Returns
    -------
    tuple
        Think times (rows, replicas, largest batch + 1), and slice times of a process that has the slice to itself
        (replicas, largest batch + 1), in ms, by batch size. A size that is not in ``batches`` has the times of the next
        larger one.
    """
    largest = max(batch for _, batch in replicas)
    think_ms, slice_ms = np.zeros((len(launching), len(replicas), largest + 1)), np.zeros((len(replicas), largest + 1))
    for at, (model, batch) in enumerate(replicas):
        sizes = np.array(sorted(size for size in data.batches if size <= batch))
        sizes = sizes[np.searchsorted(sizes, np.arange(1, batch + 1))]
        network = data.models[model].coefficients
        think, work = work_ms_array(network, sizes, np.maximum(launching, 1)[:, None], compute_slices)
        think_ms[:, at, 1 : batch + 1], slice_ms[at, 1 : batch + 1] = think, work
    return think_ms, slice_ms


MOST_PREDICTIONS = 50_000
MOST_ENTRIES = 5_000_000


class BatchTimes(NamedTuple):
    """Batch times of the replicas on a slice, in ms.

    The row of a table is the sum of ``step`` over all busy processes. If every ``step`` is 0, there is a single row,
    and neighbours count as always busy. ``hold_ms`` and ``latency_ms`` have the shape (rows, replicas, largest batch +
    1). They are the time for which a batch holds its process, and the time until its requests are answered. The two
    differ if a model loads a batch while the previous one runs (iGniter's eq. 2), or if measured throughput and latency
    disagree.

    On slices that processes share equally, batches have two ``stages``. The second axis of the tables then has the
    first stage of all replicas, followed by their second stage. A process in its second stage adds 1 to the row.
    """

    step: Ints
    hold_ms: Floats
    latency_ms: Floats
    stages: int = 1

    @property
    def always_busy(self) -> bool:
        """Whether neighbours count as always busy."""
        return len(self.hold_ms) == 1


def batch_times(instance: Instance, gpu: str, piece: Slice) -> BatchTimes:
    """The BatchTimes of a slice, by the instance's performance data.

    Every combination of busy processes is predicted as if the others did not exist. A batch that is not full takes as
    long as the smallest described batch that is at least as large. A combination that the data does not describe takes
    as long as with all processes busy. If there are too many combinations, all processes count as always busy. Of
    replicas that take turns, at most one is busy. Raises InputError if the data does not describe the replicas as
    planned.
    """
    _refuse_unknown(instance, gpu, piece)
    data = _networks(instance, gpu, piece)
    if data:
        return _processor_sharing(data, instance, gpu_type(gpu).slice_compute(piece.profile), piece)
    step, busy = _combinations(piece.replicas, MOST_PREDICTIONS)
    return BatchTimes(step, *_predicted(instance, gpu, piece, busy))


def _processor_sharing(data: FittedNetworks, instance: Instance, compute_slices: int, piece: Slice) -> BatchTimes:
    """The BatchTimes of closed networks. The row is (busy processes) * (processes + 1) + (processes on the slice).

    If that makes too many rows, all processes count as always busy.
    """
    replicas = [(instance.model_of(one), one.batch) for one in piece.replicas]
    processes = sum(one.processes for one in piece.replicas)
    entries = 2 * len(replicas) * (processes + 1) ** 2 * (max(batch for _, batch in replicas) + 1)
    launching = np.arange(processes + 1) if entries <= MOST_ENTRIES else np.array([processes])
    think_ms, slice_ms = network_times(data, compute_slices, replicas, launching)
    shared_ms = slice_ms * np.arange(processes + 1)[:, None, None]
    stages = np.repeat(think_ms, processes + 1, axis=0), np.tile(shared_ms, (len(launching), 1, 1))
    hold_ms = np.concatenate(stages, axis=1)
    step = np.full(len(replicas), processes + 1 if len(launching) > 1 else 0)
    return BatchTimes(step, hold_ms, hold_ms, 2)


def _combinations(replicas: Sequence[Replica], most: int) -> tuple[Ints, Ints]:
    """(replicas,) what a busy process of each replica adds to the row, and (rows, replicas) the busy processes of every
    row.
    """
    parts = gpulets_of(replicas)
    states = [sum(replicas[at].processes for at in part) + 1 for part in parts]
    if math.prod(states) * sum(one.batch for one in replicas) > most:
        return np.zeros(len(replicas), int), np.array([[one.processes for one in replicas]])
    step, busy = np.zeros(len(replicas), int), np.zeros((math.prod(states), len(replicas)), int)
    for number, (part, state) in enumerate(zip(parts, np.indices(states), strict=True)):
        for order, at in enumerate(part, 1):
            step[at] = order * math.prod(states[number + 1 :])
            busy[:, at] = state.ravel() == order if len(part) > 1 else state.ravel()
    return step, busy


def _refuse_unknown(instance: Instance, gpu: str, piece: Slice) -> None:
    """Refuse a slice with a replica that the performance data does not describe."""
    for replica, found in zip(piece.replicas, predict_slice(instance, gpu, piece), strict=True):
        if found is None:
            raise InputError(
                f"plan: no performance data for {replica.workload} at batch {replica.batch}, {replica.processes} "
                f"processes, SM share {replica.sm_share:g} on {piece.profile} of {gpu} with "
                f"{len(piece.replicas) - 1} neighbours; `provision verify` lists what else is wrong"
            )


def _networks(instance: Instance, gpu: str, piece: Slice) -> FittedNetworks | None:
    """The closed networks that describe replicas of different workloads on one slice, else None."""
    models = [instance.model_of(one) for one in piece.replicas]
    data = instance.sharing_of(gpu, models) if len(models) > 1 else None
    return data if isinstance(data, FittedNetworks) else None


def _predicted(instance: Instance, gpu: str, piece: Slice, busy: Ints) -> tuple[Floats, Floats]:
    """The tables of hold times and latencies, with one prediction for every combination, replica and batch size."""
    members = slice_members(instance, piece) or ()
    everyone = [one.processes for one in members]
    hold_ms, latency_ms = np.zeros((2, *busy.shape, max(one.batch for one in members) + 1))
    for row, counts in enumerate(busy.tolist()):
        for at in np.flatnonzero(counts).tolist():
            beside = [_beside(members, who, at) for who in (counts, everyone)]
            times = (math.inf, math.inf)
            for size in range(members[at].batch, 0, -1):
                found = (_times(instance, gpu, piece.profile, members, who, at, size) for who in beside)
                times = next(filter(None, found), times)
                hold_ms[row, at, size], latency_ms[row, at, size] = times
    return hold_ms, latency_ms


def _beside(members: Sequence[Member], counts: Sequence[int], which: int) -> list[int]:
    """The numbers of busy processes, with 0 for the other replicas that take turns with replica ``which``."""
    mates = next(part for part in gpulets_of(members) if which in part)
    return [0 if at in mates and at != which else count for at, count in enumerate(counts)]


def _times(instance: Instance, gpu: str, profile: str, members: Sequence[Member], counts: Sequence[int], which: int,
           size: int) -> tuple[float, float] | None:
    """The time in ms for which a batch occupies its process, and its latency in ms. The batch has ``size`` requests and
    belongs to replica ``which``; ``counts`` is the number of busy processes of each replica. None if the performance
    data does not describe this.
    """
    present = [
        one._replace(processes=count, batch=size, partly_filled=False) if at == which else one._replace(processes=count)
        for at, (one, count) in enumerate(zip(members, counts, strict=True))
        if count
    ]
    models = [one.model for one in present]
    data = performance_beside(instance, gpu, profile, models)
    if data is None:
        return None
    found = data.predict(profile, present)[sum(count > 0 for count in counts[:which])]
    return found and (1000 * counts[which] * size / found.throughput_rps, found.latency_ms)
