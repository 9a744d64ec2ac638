"""PARIS chooses the sizes of MIG instances from the distribution of batch sizes (Kim et al., "PARIS and ELSA", DAC
2022).

PARIS partitions a fixed number of GPUs for one model whose queries are batches of random size; it has neither rates nor
SLOs. From the paper:

- Every size of instance has a *knee*: the smallest batch with which it is near its full utilisation.
- A batch runs on the smallest size whose knee is at least the batch; a batch beyond all knees runs on the largest size.
- The number of instances of a size is proportional to the time that the batches of this size take on it.

PARIS is adapted to a rate and an SLO as follows, for every workload separately:

- The numbers of instances are absolute: the rate counts the requests in all batches, and an instance runs its batches
  one after the other. If a number is not whole, the load of its fraction is given to the next larger size in use (ELSA
  sends queries there if it is idle); the last number is rounded up.
- The distribution of batch sizes is cut off before batches that no size runs inside the latency budget. A batch size
  between two operating points counts as the larger of the two.
- The performance data has no utilisation. It is replaced by the throughput relative to the largest throughput of the
  size over the batch sizes of queries, with the knee at 80 %.
- An instance is planned with the batch size, among its own, that carries the most requests. Instances are placed by
  best fit, largest first (PARIS does not say how), with one process each.

Batch sizes are log-normal, as in the paper; ``batch_sigma`` and ``largest_batch`` are the paper's defaults as far as
these are known; ``batch_median`` is guessed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from provision.formulations.search.segments import Segments, SliceType
from provision.heuristics.parvagpu.parvagpu import Packing
from provision.heuristics.rivals.mig_serving import FEATURES, Config, planned
from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.operating_points import OperatingPoints
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search, Termination
from provision.models.problem.workload import LEAST_RPS, Workload

NAME = "paris"
KNEE = 0.8
"""The fraction of a size's largest throughput from which on larger batches gain little."""
RARE = 1e-9
"""Batch sizes with at most this fraction of the queries are ignored."""
SLACK = 1e-10
"""The fraction of an instance below which a rest does not require one more instance."""


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with PARIS."""

    def deploy(segments: Segments) -> tuple[Segments, list[Config], Termination]:
        segments, wanted = _partitioned(instance, segments, _distribution(control))
        packing = Packing(instance, segments)
        for slice_type, workload in sorted(wanted, key=lambda pair: -segments.slice_types[pair[0]].compute):
            packing.place(slice_type, workload)
        return segments, [layout.segments for layout in packing.layouts()], "completed"

    return planned(instance, control, NAME, deploy)


class _Distribution(NamedTuple):
    """The distribution of the batch sizes of queries: log-normal, truncated at ``largest``."""

    median: float
    sigma: float
    largest: float


def _distribution(control: Search) -> _Distribution:
    names = ("batch_median", "batch_sigma", "largest_batch")
    return _Distribution(*(control.positive(name, float) for name in names))


def _partitioned(instance: Instance, segments: Segments,
                 distribution: _Distribution) -> tuple[Segments, list[tuple[int, int]]]:
    """The pair (Segments with PARIS's batch sizes, the (slice type, workload) of every MIG instance)."""
    batch, rate_rps, latency_ms = (np.zeros(segments.batch.shape, slice_type) for slice_type in (int, float, float))
    tables, wanted = {}, []
    for workload, one in enumerate(instance.workloads):
        key = one.model, one.slo_ms, instance.policy.traffic_of(one)
        if key not in tables:
            tables[key] = _table(instance, segments.slice_types, one, distribution.largest)
        table = tables[key]
        for slice_type, number, size in _numbers(table, instance.planned_rps(one), distribution):
            wanted += [(slice_type, workload)] * number
            batch[workload, slice_type] = table.batch[size]
            rate_rps[workload, slice_type] = table.rate_rps[slice_type, size]
            latency_ms[workload, slice_type] = table.latency_ms[slice_type, size]
    return replace(segments, throughput_rps=rate_rps, latency_ms=latency_ms, batch=batch), wanted


class _Table(NamedTuple):
    """The operating points of single processes of one workload, by slice type and batch size; ``rate_rps`` is the
    throughput inside the budget. Arrays are (slice types, batches), 0 if there is no operating point; ``batch`` is
    (batches,), ascending.
    """

    batch: Ints
    throughput_rps: Floats
    latency_ms: Floats
    rate_rps: Floats


def _table(instance: Instance, slice_types: Sequence[SliceType], workload: Workload, largest_batch: float) -> _Table:
    found = [_points(instance, slice_type, workload.model, largest_batch) for slice_type in slice_types]
    batch = np.unique(np.concatenate([points.batch for points in found]))
    columns = np.zeros((3, len(slice_types), len(batch)))
    for slice_type, points in enumerate(found):
        rate_rps = _rate_rps(instance, points, workload)
        columns[:, slice_type, np.searchsorted(batch, points.batch)] = (
            points.throughput_rps,
            points.latency_ms,
            rate_rps,
        )
    if not columns[-1].any():
        raise UnsupportedError(
            f"method {NAME} cannot serve {workload.name} in batches of at most {largest_batch:g}; "
            "raise largest_batch or use --method auto"
        )
    return _Table(batch, *columns)


def _points(instance: Instance, slice_type: SliceType, model: str, largest_batch: float) -> OperatingPoints:
    """The operating points of a single process with batches of at most ``largest_batch``."""
    entry = instance.fleet[slice_type.entry]
    data = instance.performance_of(entry.gpu, model, slice_type.profile)
    assert data is not None, "kinds are those on which the model runs"
    points = instance.points_of(data, model, slice_type.profile)
    return _those(points, (points.processes == 1) & (points.batch <= largest_batch))


def _those(points: OperatingPoints, which: Bools | Sequence[int]) -> OperatingPoints:
    return OperatingPoints(
        points.batch[which], points.processes[which], points.latency_ms[which], points.throughput_rps[which]
    )


def _rate_rps(instance: Instance, points: OperatingPoints, workload: Workload) -> Floats:
    """(points,), the requests/s that each operating point carries inside the latency budget of a workload."""
    budget_ms = np.array([instance.budget_ms(workload) * (1 + TOLERANCE)])
    best = instance.policy.rule_for(workload).best_points
    return np.array([best(_those(points, [at]), 1, budget_ms)[0, 0] for at in range(len(points.batch))])


def _numbers(table: _Table, rate_rps: float, distribution: _Distribution) -> Iterator[tuple[int, int, int]]:
    """Yield, for every size that a workload uses, (slice type, number of instances, index of their batch size)."""
    shares, owner = _shares(table, distribution), _owners(table)
    batches_per_s = max(rate_rps, LEAST_RPS) * shares / (shares @ table.batch)
    used = np.unique(owner[shares > 0]).tolist()
    left = np.zeros(len(shares))
    for slice_type, larger in zip(used, [*used[1:], None], strict=True):
        load = np.where(owner == slice_type, batches_per_s, left)
        sizes = np.flatnonzero(load)
        carried_rps = table.rate_rps[slice_type, sizes]
        needed = (load[sizes] * table.batch[sizes] / carried_rps).sum()
        passes_on = larger is not None and table.rate_rps[larger, sizes].all()
        number = math.floor(needed + SLACK) if passes_on else max(math.ceil(needed - SLACK), 1)
        left = load * max(1 - number / needed, 0) if passes_on else np.zeros(len(load))
        if number:
            yield slice_type, number, sizes[np.argmax(carried_rps)]


def _shares(table: _Table, distribution: _Distribution) -> Floats:
    """(batches,), the share of the queries that have each batch size."""
    possible: Bools = np.any(table.rate_rps, axis=0)
    below = log_ndtr(np.log(table.batch[possible] / distribution.median) / distribution.sigma)
    shares = np.zeros(len(possible))
    shares[possible] = np.diff(np.exp(below - below[-1]), prepend=0.0)
    return np.where(shares > RARE, shares, 0.0)


def _owners(table: _Table) -> Ints:
    """(batches,), the slice type on which each batch size runs; slice types are in ascending order of size."""
    near_full = table.throughput_rps >= KNEE * table.throughput_rps.max(axis=1, keepdims=True)
    knee = table.batch[near_full.argmax(axis=1)]
    serves = table.rate_rps > 0
    below_knee = serves & (table.batch <= knee[:, None])
    largest = len(serves) - 1 - serves[::-1].argmax(axis=0)
    return np.where(below_knee.any(axis=0), below_knee.argmax(axis=0), largest)


METHODS = (
    Method(
        name=NAME,
        summary="MIG sizes from the knees of throughput and a distribution of batch sizes; no MPS",
        run=solve,
        source="PARIS, Kim et al., DAC 2022",
        features=FEATURES,
        parameters={"batch_median": 8.0, "batch_sigma": 0.9, "largest_batch": 32},
    ),
)
