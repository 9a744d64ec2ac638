"""Plans isolated segments: a linear program mixes replica sets that are cheapest at several prices of slices.

1. Every workload gets a few candidate replica sets of its rate: the cheapest by compute slices, by memory slices, by
   both, and by the dual prices of step 2, on each fleet entry (`provision.formulations.pricing.alone.replica_sets`).
2. A linear program mixes the candidates with whole-GPU partitions at least cost. Besides one row per workload it has
   one row per slice type and per limited fleet entry. Therefore a vertex splits at most as many workloads as it has
   rows of the latter two kinds; these few workloads are rounded.
3. An integer program of about a dozen variables chooses partitions for the chosen segments; the segments are then
   assigned to the slots of the partitions.

If ParvaGPU can plan the instance, its plan is made, too, and the better plan is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csr_array, hstack, vstack

from provision.formulations.pricing.alone.assemble import Layout
from provision.formulations.pricing.alone.deal import deal
from provision.formulations.pricing.alone.replica_sets import cheapest_replica_sets
from provision.formulations.search.partitions import Partitions, partitions_of
from provision.formulations.search.segments import Segments, cap_rps
from provision.heuristics.core.schedule import GreedySchedule
from provision.heuristics.parvagpu.parvagpu import METHODS as PARVAGPU_METHODS
from provision.heuristics.parvagpu.parvagpu import PARVAGPU
from provision.models.base.arrays import Floats, Ints
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of

SCHEDULE = GreedySchedule()


@dataclass(frozen=True)
class _Demand:
    """Classes of equal workloads: useful throughput (classes, slice types) and rates (classes,) in requests/s, and the
    least numbers of replicas.

    ``members`` are the indices of the workloads of each class.
    """

    throughput_rps: Floats
    rate_rps: Floats
    min_replicas: Ints
    members: tuple[Ints, ...]


def _demand(instance: Instance, segments: Segments) -> _Demand:
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    least = np.array([one.min_replicas for one in instance.workloads])
    table, inverse = np.unique(np.column_stack([useful, rate, least]), axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    members = tuple(np.split(order, np.cumsum(np.bincount(inverse.ravel()))[:-1]))
    return _Demand(table[:, :-2], table[:, -2], table[:, -1].astype(int), members)


def mixed(instance: Instance, segments: Segments) -> list[Layout] | None:
    """The better of the mixed layouts and ParvaGPU's; None if the fleet seems too small."""
    return _better(instance, _plan(instance, segments), _parvagpu(instance, segments))


def _plan(instance: Instance, segments: Segments) -> list[Layout] | None:
    """Layouts from mixed replica sets; None if the fleet seems too small."""
    demand = _demand(instance, segments)
    partitions = partitions_of(instance, segments)
    candidates = _first_candidates(instance, segments, demand)
    found = _mix(instance, partitions, demand, candidates)
    if found is None:
        return None
    _, prices = found
    candidates = _with(candidates, _priced(segments, demand, prices))
    mix, _ = _mix(instance, partitions, demand, candidates) or found
    chosen = _rounded(demand, candidates, mix)
    return _packed(instance, segments, partitions, chosen)


@dataclass(frozen=True)
class _Candidates:
    """Replica sets to choose from: ``demand`` (replica sets,) is the class that each serves, ``counts`` (replica sets,
    slice types) are its numbers of segments.
    """

    demand: Ints
    counts: Ints


def _first_candidates(instance: Instance, segments: Segments, demand: _Demand) -> _Candidates:
    """The cheapest replica sets on each fleet entry alone: by compute slices, by memory slices and by both."""
    compute = np.array([slice_type.compute for slice_type in segments.slice_types])
    memory = np.array([slice_type.memory for slice_type in segments.slice_types])
    found = _Candidates(np.zeros(0, int), np.zeros((0, len(segments.slice_types)), int))
    for entry in range(len(instance.fleet)):
        slice_types = segments.of_entry(entry)
        for costs in (compute, memory, compute + memory):
            found = _with(found, _replica_sets(demand, slice_types, costs))
    return found


def _priced(segments: Segments, demand: _Demand, prices: Floats) -> _Candidates:
    """The cheapest replica sets if every slice type has the dual price that the linear program gives it."""
    costs = np.maximum(np.rint(prices / max(prices.max(), 1e-9) * SCHEDULE.price_steps), 1).astype(int)
    return _replica_sets(demand, list(range(len(segments.slice_types))), costs)


def _replica_sets(demand: _Demand, slice_types: list[int], costs: Ints) -> _Candidates:
    """For every class of workloads that the given slice types can serve, the cheapest replica set of segments on these
    slice types. ``costs`` (slice types,) is the cost of a segment.
    """
    rows = np.flatnonzero(demand.throughput_rps[:, slice_types].any(axis=1)) if slice_types else np.zeros(0, int)
    counts = np.zeros((len(rows), len(costs)), int)
    if len(rows):
        useful = demand.throughput_rps[np.ix_(rows, np.array(slice_types))]
        counts[:, slice_types] = cheapest_replica_sets(
            useful, costs[slice_types], demand.rate_rps[rows], demand.min_replicas[rows]
        ).counts
    return _Candidates(rows, counts)


def _with(old: _Candidates, new: _Candidates) -> _Candidates:
    """The distinct candidates of two sets together."""
    table = np.unique(
        np.vstack([np.column_stack([old.demand, old.counts]), np.column_stack([new.demand, new.counts])]), axis=0
    )
    return _Candidates(table[:, 0], table[:, 1:])


def _mix(
    instance: Instance, partitions: Partitions, demand: _Demand, candidates: _Candidates
) -> tuple[Floats, Floats] | None:
    """How many workloads take each candidate (replica sets,), in fractions, and the price of each slice type (slice
    types,).

    None if the fleet is too small for these candidates.
    """
    replica_sets, slice_types = candidates.counts.shape
    gpus = len(partitions.entry)
    one_each = coo_array(
        (np.ones(replica_sets), (candidates.demand, np.arange(replica_sets))), (len(demand.members), replica_sets)
    )
    slots = hstack([csr_array(candidates.counts.T), csr_array(-partitions.slots.T)])
    limits, most = _limits(instance, partitions)
    weights = np.array([objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry])
    found = linprog(  # type: ignore[call-overload]  # its stubs know no sparse matrices
        np.concatenate([np.zeros(replica_sets), weights]),
        A_ub=vstack([slots, hstack([csr_array((len(most), replica_sets)), csr_array(limits)])]),
        b_ub=np.concatenate([np.zeros(slice_types), most]),
        A_eq=hstack([one_each, csr_array((len(demand.members), gpus))]),
        b_eq=np.array([len(members) for members in demand.members]),
    )
    if found.status != 0:
        return None
    return found.x[:replica_sets], -found.ineqlin.marginals[:slice_types]


def _limits(instance: Instance, partitions: Partitions) -> tuple[Floats, Floats]:
    """(limited entries, partitions), rows that count the GPUs of each limited fleet entry; and (limited entries,), its
    numbers of GPUs.
    """
    limited = [(index, entry.count) for index, entry in enumerate(instance.fleet) if entry.count is not None]
    rows = np.array([partitions.entry == index for index, _ in limited], float)
    return rows.reshape(len(limited), len(partitions.entry)), np.array([count for _, count in limited], float)


def _rounded(demand: _Demand, candidates: _Candidates, mix: Floats) -> Ints:
    """(workloads, slice types), numbers of segments: every workload gets one candidate of its class."""
    bounds = np.searchsorted(candidates.demand, np.arange(len(demand.members) + 1))
    chosen = np.zeros((sum(map(len, demand.members)), candidates.counts.shape[1]), int)
    whole = np.floor(mix + 1e-6).astype(int)
    for members, start, end in zip(demand.members, bounds, bounds[1:], strict=False):
        copies = whole[start:end]
        missing = len(members) - copies.sum()
        if missing:
            copies[np.argsort(copies - mix[start:end], kind="stable")[:missing]] += 1
        chosen[members] = np.repeat(candidates.counts[start:end], copies, axis=0)
    return chosen


def _packed(instance: Instance, segments: Segments, partitions: Partitions, chosen: Ints) -> list[Layout] | None:
    """Layouts of the chosen segments on the GPUs that add least to the objective; None if the fleet is too small."""
    limits, most = _limits(instance, partitions)
    weights = np.array([objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry])
    found = milp(
        weights + 1e-9,
        integrality=np.ones(len(weights), int),
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(partitions.slots.T, lb=chosen.sum(axis=0)),
            *([LinearConstraint(limits, ub=most)] if len(most) else []),
        ],
    )
    if found.x is None:
        return None
    return deal(instance, segments, partitions, np.rint(found.x).astype(int), chosen)


def _parvagpu(instance: Instance, segments: Segments) -> list[Layout] | None:
    """ParvaGPU's layouts; None if it cannot plan the instance or needs more GPUs than there are."""
    if needs(instance) - PARVAGPU_METHODS[0].features:
        return None
    layouts, limit = PARVAGPU.layouts(instance, segments), instance.fleet[0].count
    return layouts if limit is None or len(layouts) <= limit else None


def _better(instance: Instance, one: list[Layout] | None, other: list[Layout] | None) -> list[Layout] | None:
    """The layouts whose GPUs add less to the objective, the first if both add the same; None if there are none."""

    def weight(layouts: Sequence[Layout]) -> float:
        return sum(objective_of(instance).weight(instance.fleet[layout.entry]) for layout in layouts if layout.segments)

    found = [layouts for layouts in (one, other) if layouts is not None]
    return min(found, key=weight, default=None)
