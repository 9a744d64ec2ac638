"""Patterns of slices that different workloads share, by closed networks: batch times depend on the routed rates.

For plans, feasible patterns at rates on a grid are listed, which excludes some plans. For bounds there is a relaxation:
the replicas divide the slice's time, and a request takes at least the least slice time of any batch.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern, clients_of
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.closed_network import ClosedNetwork
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.operating_points import Member, Prediction
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

GRIDS = {2: 4, 3: 2}
"""The number of equal parts into which a workload's rate is divided, if it may be split, by the number of replicas on a
slice.
"""
MOST_PREDICTIONS = 10_000
"""The most sets of replicas with rates that are tried on one slice type. Sets with fewer replicas are tried first."""


class SharedSliceBound(NamedTuple):
    """A bound on what shared slices of one slice type carry; arrays are (workloads,).

    ``time`` is the least part of a slice's time that a workload's whole planned rate takes; infinite where the workload
    cannot run. ``most`` is the largest fraction of the rate that one replica carries. A slice has at most ``clients``
    replicas.
    """

    time: NDArray[np.float64]
    most: NDArray[np.float64]
    clients: int


class Point(NamedTuple):
    """An operating point of a workload: the index of the workload, the index of its model in the workload's models,
    batch and processes.
    """

    workload: int
    model: int
    batch: int
    processes: int


def networks_of(instance: Instance, slice_type: SliceType) -> list[FittedNetworks]:
    """The data files of closed networks by which workloads may share slices of a slice type.

    The list is empty if other data of the GPU type gives every replica a share of the SMs, since networks do not do
    that.
    """
    entry = instance.fleet[slice_type.entry]
    files = [data for data in instance.performance if data.gpu == entry.gpu]
    if not (instance.policy.share_slices and entry.mps) or any(data.divides_sms for data in files):
        return []
    return [data for data in files if isinstance(data, FittedNetworks) and slice_type.profile in data.profiles]


def relaxed(instance: Instance, slice_type: SliceType) -> SharedSliceBound | None:
    """The bound on shared slices of a slice type; None if workloads do not share it.

    Why it is valid: in a closed network, a batch of f requests has the slice time S(f) in ms. A replica of batch size
    b, with p of the slice's P processes, fills its batches to f <= b. If the slice is busy for a fraction U < 1 of the
    time, U is the sum of rate * S(f) / f over the replicas. If it is always busy, every replica's rate is below 1000 p
    b / (P S(b)), and the same sum with f = b is below 1. In both cases, the sum with the least S(f) / f over f <= b is
    at most 1. The latency of a batch is at least Z + S(b), with one more process that launches kernels.
    """
    files, clients = networks_of(instance, slice_type), clients_of(instance.fleet[slice_type.entry], slice_type.profile)
    if not files or clients < 2:
        return None
    time, most = np.full(len(instance.workloads), np.inf), np.zeros(len(instance.workloads))
    for data in files:
        for point in _points(instance, slice_type, data, clients - 1):
            workload = instance.workloads[point.workload]
            network = data.models[workload.models[point.model]].coefficients
            compute = instance.fleet[slice_type.entry].type.slice_compute(slice_type.profile)
            batch_ms, planned = _least_ms(network, point, compute), instance.planned_rps(workload)
            least_ms = min(network.gpu_ms(filled, compute) / filled for filled in range(1, point.batch + 1))
            carried = 1000 * point.processes * point.batch / batch_ms
            time[point.workload] = min(time[point.workload], least_ms * planned / 1000)
            most[point.workload] = max(most[point.workload], carried / planned if planned else 1.0)
    return SharedSliceBound(time, most, clients)


def _least_ms(network: ClosedNetwork, point: Point, compute: int) -> float:
    """The latency (ms) of a batch on a slice whose other processes launch kernels but never compute."""
    return network.exposed_host_ms(point.batch, point.processes + 1, compute) + network.gpu_ms(point.batch, compute)


def _points(instance: Instance, slice_type: SliceType, data: FittedNetworks, clients: int) -> Iterator[Point]:
    """Yield the operating points of at most ``clients`` processes that keep their latency budgets beside one process
    that launches kernels but never computes.
    """
    compute = instance.fleet[slice_type.entry].type.slice_compute(slice_type.profile)
    for number, workload in enumerate(instance.workloads):
        for at, model in enumerate(workload.models):
            if model in data.models:
                points = data.operating_points(model, slice_type.profile)
                for batch, processes in zip(points.batch.tolist(), points.processes.tolist(), strict=True):
                    point, network = Point(number, at, batch, processes), data.models[model].coefficients
                    budget_ms = instance.budget_ms(workload) * (1 + TOLERANCE)
                    if processes <= clients and _least_ms(network, point, compute) <= budget_ms:
                        yield point


def shared(instance: Instance, slice_type: SliceType, until: Deadline) -> tuple[list[SlicePattern], bool]:
    """Feasible patterns of several replicas, and whether the list is complete: no other pattern improves a plan. At the
    deadline, the list ends.

    A workload with one replica has its whole rate on it, and any feasible batch size is as good as another. If rates
    may be split, rates on a grid are tried.
    """
    found: list[SlicePattern] = []
    whole = all(one.max_replicas == 1 for one in instance.workloads)
    clients, left = clients_of(instance.fleet[slice_type.entry], slice_type.profile), MOST_PREDICTIONS
    for data in networks_of(instance, slice_type):
        points = list(_points(instance, slice_type, data, clients - 1))
        patterns = (
            _whole(instance, slice_type, data, points, clients)
            if whole
            else _split(instance, slice_type, data, points, clients)
        )
        for pattern in patterns:
            if left == 0 or until.over:
                return found, False
            left -= 1
            found += [] if pattern is None else [pattern]
    return found, whole or not networks_of(instance, slice_type)


def _whole(instance: Instance, slice_type: SliceType, data: FittedNetworks, points: Sequence[Point], clients: int
           ) -> Iterator[SlicePattern | None]:
    """Yield the patterns at whole rates for all sets of workloads and all numbers of processes; None for an infeasible
    set.

    An infeasible set is not enlarged, because with a further replica it is infeasible too.
    """
    batches: dict[Point, list[Point]] = defaultdict(list)
    for point in points:
        batches[point._replace(batch=0)].append(point)
    replicas = sorted(batches)
    kept: list[tuple[Point, ...]] = [(one,) for one in replicas]
    while kept:
        sets, kept = kept, []
        for fewer, more in itertools.product(sets, replicas):
            chosen = (*fewer, more)
            if more.workload <= fewer[-1].workload or not _may_be(instance, slice_type, data, chosen, clients):
                continue
            for tried in itertools.product(*(batches[one] for one in chosen)):
                pattern = _holding(instance, slice_type, data, tried, _planned(instance, tried))
                yield pattern
                if pattern is not None:
                    kept.append(chosen)
                    break


def _split(instance: Instance, slice_type: SliceType, data: FittedNetworks, points: Sequence[Point], clients: int
           ) -> Iterator[SlicePattern | None]:
    """Yield the patterns of two or three replicas at rates on a grid; None for each infeasible one."""
    for many, steps in GRIDS.items():
        for chosen in itertools.combinations_with_replacement(points, many):
            if _may_be(instance, slice_type, data, chosen, clients):
                for rates in _grid(instance, chosen, steps):
                    yield _holding(instance, slice_type, data, chosen, rates)


def _holding(instance: Instance, slice_type: SliceType, data: FittedNetworks, chosen: tuple[Point, ...],
             rates: tuple[float, ...]) -> SlicePattern | None:
    """The pattern of given replicas at given rates (requests/s); None if it is infeasible."""
    found = _predicted(instance, slice_type, data, chosen, rates)
    return _pattern(chosen, rates) if _holds(instance, slice_type, chosen, rates, found) else None


def _may_be(
    instance: Instance, slice_type: SliceType, data: FittedNetworks, chosen: tuple[Point, ...], clients: int
) -> bool:
    """Whether a slice may have all processes of the replicas, and this data file describes them together."""
    if sum(one.processes for one in chosen) > clients:
        return False
    models = [instance.workloads[one.workload].models[one.model] for one in chosen]
    return instance.sharing_of(instance.fleet[slice_type.entry].gpu, models) is data


def _grid(instance: Instance, chosen: tuple[Point, ...], steps: int) -> Iterator[tuple[float, ...]]:
    """Yield all combinations of rates (requests/s), each a multiple of 1/``steps`` of the rate of its replica's
    workload.
    """
    planned = _planned(instance, chosen)
    parts = [range(1, steps + 1) if rate > 0 else (0,) for rate in planned]
    for taken in itertools.product(*parts):
        yield tuple(rate * part / steps for rate, part in zip(planned, taken, strict=True))


def _planned(instance: Instance, chosen: tuple[Point, ...]) -> tuple[float, ...]:
    """The whole planned rate, in requests/s, of each replica's workload."""
    return tuple(instance.planned_rps(instance.workloads[one.workload]) for one in chosen)


def _predicted(
    instance: Instance, slice_type: SliceType, data: FittedNetworks, chosen: tuple[Point, ...], rates: tuple[float, ...]
) -> list[Prediction | None]:
    owners = [instance.workloads[one.workload] for one in chosen]
    return data.predict(
        slice_type.profile,
        [
            Member(
                owner.models[one.model],
                one.batch,
                one.processes,
                1.0,
                math.inf if objective_of(instance).counts_capacity else rate,
                fill_ms=instance.policy.fill_ms(owner.slo_ms),
            )
            for owner, one, rate in zip(owners, chosen, rates, strict=True)
        ],
    )


def _holds(
    instance: Instance, slice_type: SliceType, chosen: tuple[Point, ...], rates: tuple[float, ...],
    found: list[Prediction | None],
) -> bool:
    held_gib = instance.fleet[slice_type.entry].type.slice_memory_gib(slice_type.profile)
    if sum(one.memory_gib or 0 for one in found if one) > held_gib:
        return False
    return all(
        one is not None and one.latency_ms <= instance.budget_ms(instance.workloads[point.workload]) * (1 + TOLERANCE)
        and rate <= one.throughput_rps * (1 + TOLERANCE)
        for point, rate, one in zip(chosen, rates, found, strict=True)
    )


def _pattern(chosen: tuple[Point, ...], rates: tuple[float, ...]) -> SlicePattern:
    replicas = tuple(PatternReplica(*point, 1.0, rate) for point, rate in zip(chosen, rates, strict=True))
    return SlicePattern(replicas, sum(rates), routed=True)
