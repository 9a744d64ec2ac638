"""Patterns of whole GPUs that replicas share under MPS, by iGniter's or the co-location model: all feasible sets.

A set is feasible if every replica keeps its latency budget beside the others. A further neighbour only slows replicas
down, so infeasible sets are not enlarged. Batch times do not depend on the routed rates: a replica carries any rate up
to its throughput beside its neighbours.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.assignment.patterns import (
    Criteria,
    PatternReplica,
    SlicePattern,
    capacity_rps,
    clients_of,
    undominated,
)
from provision.formulations.search.segments import SliceType
from provision.models.base.errors import UnsupportedError
from provision.models.hardware.gpu import WHOLE
from provision.models.performance import colocation, igniter
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import share_of_units, shares_of, units_of
from provision.models.problem.instance import Instance

Shared = IgniterProfiles | Colocation
Together = Callable[[NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.float64]]]
MOST_POINT_SETS = 400_000
"""The most sets of operating points with the same number of replicas. An instance with more is refused."""


class SharedPoints(NamedTuple):
    """The operating points of all workloads on a whole GPU, as arrays (points,).

    ``lone`` says whether a replica alone on the GPU is predicted by this data file; ``elsewhere`` (files, points) says
    whether an earlier data file describes the model too. ``together`` is a function that returns the latencies and
    throughputs of sets of points.
    """

    workload: NDArray[np.int64]
    model: NDArray[np.int64]
    batch: NDArray[np.int64]
    units: NDArray[np.int64]
    lone: NDArray[np.bool_]
    elsewhere: NDArray[np.bool_]
    together: Together


class Kept(NamedTuple):
    """Running replicas that a GPU may keep: the indices of workload and model, the units of each, and their number."""

    workload: int
    model: int
    units: int
    most: int


def shared(
    instance: Instance, slice_type: SliceType, workloads: Sequence[int], criteria: Criteria,
    kept: Sequence[Kept] = (), most_sets: int = MOST_POINT_SETS,
) -> list[SlicePattern]:
    """The undominated patterns of some workloads on whole GPUs of a slice type; an empty list if no data describes such
    sharing.

    Parameters
    ----------
    instance, slice_type, workloads, criteria
        The problem, the slice type, the indices of workloads, and the criteria by which patterns are compared.
    kept
        Running replicas. How many of each a pattern keeps is a further criterion.
    most_sets
        The most sets of operating points with the same number of replicas.

    Raises
    ------
    UnsupportedError
        When there are too many sets of operating points to list.
    """
    entry = instance.fleet[slice_type.entry]
    if slice_type.profile != WHOLE:
        return []
    files = [data for data in instance.sharing_files(entry.gpu) if isinstance(data, Shared)]
    return [
        pattern for data in files
        for pattern in _listed(instance, slice_type, data, workloads, criteria, kept, most_sets)
    ]


def _listed(
    instance: Instance, slice_type: SliceType, data: Shared, workloads: Sequence[int], criteria: Criteria,
    kept: Sequence[Kept], most_sets: int,
) -> Iterator[SlicePattern]:
    """Yield the patterns that no other pattern with as many replicas dominates."""
    points = _points(instance, slice_type, data, workloads)
    units = units_of(share_of(data))
    most = min(units, clients_of(instance.fleet[slice_type.entry], WHOLE))
    for sets, rates in _sets(instance, units, points, most, most_sets):
        told = points.lone[sets[:, 0]] if sets.shape[1] == 1 else ~points.elsewhere[:, sets].all(axis=2).any(axis=0)
        sets, rates = sets[told], rates[told]
        if len(sets):
            costs = criteria.costs(*criteria.table(points.workload[sets], rates), rates.sum(axis=1))
            for row in undominated(np.column_stack([costs, *(-_going_on(points, sets, one) for one in kept)])):
                yield _pattern(data, points, sets[row], rates[row])


def _going_on(points: SharedPoints, sets: NDArray[np.int64], kept: Kept) -> NDArray[np.int64]:
    """(sets,) how many of the running replicas each set can keep."""
    alike = (points.workload == kept.workload) & (points.model == kept.model) & (points.units == kept.units)
    going_on: NDArray[np.int64] = np.minimum(alike[sets].sum(axis=1), kept.most)
    return going_on


def _points(instance: Instance, slice_type: SliceType, data: Shared, workloads: Sequence[int]) -> SharedPoints:
    """Every batch and number of units of every model; without MPS a replica has all units."""
    entry, every = instance.fleet[slice_type.entry], units_of(share_of(data))
    batch, units = (axis.ravel() for axis in np.meshgrid(
        np.arange(1, data.max_batch + 1), np.arange(1 if entry.mps else every, every + 1)
    ))
    sharing = instance.sharing_files(data.gpu)
    first = sharing[: sharing.index(data)]
    rows = [(w, at, model) for w in workloads for at, model in enumerate(instance.workloads[w].models)
            if model in data.models]
    columns = [np.zeros((5 + len(first), 0))]
    for w, at, model in rows:
        flags = [instance.performance_of(entry.gpu, model) is data, *(model in one.models for one in first)]
        columns.append(np.array(np.broadcast_arrays(w, at, batch, units, *flags), float))
    table = np.concatenate(columns, axis=1)
    workload, variant, sizes, many = table[:4].astype(int)
    shares = shares_of(share_of(data))[units - 1]
    models = [model for _, _, model in rows]
    alike = (_igniter(instance, data, models, batch, shares) if isinstance(data, IgniterProfiles)
             else _colocated(data, models, batch, shares))
    return SharedPoints(workload, variant, sizes, many, table[4] > 0, table[5:] > 0, alike)


def _igniter(instance: Instance, data: IgniterProfiles, models: Sequence[str], batch: NDArray[np.int64],
             shares: NDArray[np.float64]) -> Together:
    """The function ``SharedPoints.together`` by iGniter's model. Points are numbered model after model."""
    tables = [np.zeros((len(igniter.Terms._fields), 0))]
    for model in models:
        terms = igniter.solo_terms(data, model, batch, shares)
        if instance.policy.rule.random_arrivals:  # smaller batches run as well and may demand more
            power_w, cache = (np.maximum.accumulate(one.reshape(-1, data.max_batch), axis=1).ravel()
                              for one in (terms.power_w, terms.cache))
            terms = terms._replace(power_w=power_w, cache=cache)
        tables.append(np.array(terms))
    columns = np.concatenate(tables, axis=1)
    return lambda sets: igniter.together(data.hardware, igniter.Terms(*(column[sets] for column in columns)))


def _colocated(data: colocation.Colocation, models: Sequence[str], batch: NDArray[np.int64],
               shares: NDArray[np.float64]) -> Together:
    """The function ``SharedPoints.together`` by the co-location model, in which a larger batch never demands less."""
    terms = [colocation.solo_terms(data, model, batch, shares) for model in models]
    columns = [np.concatenate(column) for column in zip(*terms, strict=True)]
    return lambda sets: colocation.together(colocation.Terms(*(column[sets] for column in columns)), data.norm_order)


def _sets(
    instance: Instance, units: int, points: SharedPoints, most: int, most_sets: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield for 1, 2, ... replicas (sets, replicas) the feasible sets of points, and their capacities in requests/s."""
    sets = np.arange(len(points.workload))[:, None]
    for many in range(1, most + 1):
        latency_ms, throughput = points.together(sets)
        rates, batch = np.zeros(sets.shape), points.batch[sets]
        for number, workload in enumerate(instance.workloads):
            mine = points.workload[sets] == number
            rates[mine] = capacity_rps(instance, workload, batch[mine], latency_ms[mine], throughput[mine])
        holds = (rates > 0).all(axis=1)
        sets, rates = sets[holds], rates[holds]
        if not len(sets):
            return
        yield sets, rates
        if many < most:
            sets = _enlarged(sets, points.units, units, most_sets)


def _enlarged(sets: NDArray[np.int64], units: NDArray[np.int64], limit: int, most_sets: int) -> NDArray[np.int64]:
    """Every set with one more operating point that fits within the units. The new point does not come before the last
    one.

    Raises
    ------
    UnsupportedError
        If there are more than ``most_sets``.
    """
    held, lone = units[sets].sum(axis=1), np.unique(sets[:, -1])
    grown, total = [], 0
    for last in lone:
        mine = sets[:, -1] == last
        base, more = sets[mine], np.arange(last, len(units))
        row, added = np.nonzero(held[mine][:, None] + units[more][None] <= limit)
        total += len(row)
        if total > most_sets:
            raise UnsupportedError(
                f"the assignment methods list at most {most_sets} sets of replicas that share a GPU, and here there "
                "are more; use --method auto"
            )
        grown.append(np.column_stack([base[row], more[added]]))
    return np.concatenate(grown)


def _pattern(
    data: Shared, points: SharedPoints, chosen: NDArray[np.int64], rates: NDArray[np.float64]
) -> SlicePattern:
    replicas = tuple(
        PatternReplica(int(points.workload[at]), int(points.model[at]), int(points.batch[at]), 1,
                share_of_units(share_of(data), float(points.units[at])), float(rate))
        for at, rate in zip(chosen, rates, strict=True)
    )
    return SlicePattern(replicas, float(rates.sum()))


def share_of(data: Shared) -> float:
    """The fraction of a GPU's SMs that one unit is."""
    return data.hardware.unit_share if isinstance(data, IgniterProfiles) else data.unit_share
