"""Plans replicas that have slices of their own (segments): a linear program mixes cheap replica sets of all workloads.

A replica set is some segments that together carry the rate of one workload.

1. Every workload gets a few candidate replica sets. On each fleet entry these are the sets with the fewest compute
   slices, with the fewest memory slices, and with the smallest sum of both. Further candidates are the sets that are
   cheapest at the dual prices of step 2; they are added in some rounds
   (`provision.formulations.pricing.alone.replica_sets`).
2. Workloads with the same candidates form a class: 100,000 different workloads with one or two replicas each form some
   twenty classes. A linear program decides how many workloads of each class take each candidate, and how many GPUs take
   each partition, at least cost. It has one constraint for each class, slice type and limited fleet entry. A vertex has
   at most as many positive variables as there are constraints, and every class needs one. So the number of classes with
   fractions is at most the number of slice types and limited fleet entries. The fractions are rounded.
3. An integer program of about a dozen variables decides how many GPUs take each partition, so that there are slots for
   the chosen segments. If time is left and the plan is not proven optimal, the program of step 2 is also solved in
   whole numbers. Then the segments are assigned to the slots.

The dual prices also prove a lower bound on the cost. If ParvaGPU can plan the instance, its plan is made too,
unless the plan is proven optimal or time is up; the better plan is returned. If there is no other plan, ParvaGPU's is
made in any case.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, hstack, vstack

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.formulations.pricing.alone.assemble import Layout, deal
from provision.formulations.pricing.alone.price_bound import price_bound, sharpest
from provision.formulations.pricing.alone.replica_sets import cheapest_replica_sets
from provision.formulations.search.partitions import Partitions, partitions_of
from provision.formulations.search.segments import Segments, cap_rps
from provision.heuristics.core.schedule import GREEDY as SCHEDULE
from provision.heuristics.parvagpu.parvagpu import METHODS as PARVAGPU_METHODS
from provision.heuristics.parvagpu.parvagpu import PARVAGPU
from provision.models.base.arrays import Floats, Ints, distinct_rows
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import LOOSE, TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import REPLICA_S


@dataclass(frozen=True)
class _Demand:
    """Different workloads: useful throughput (demands, slice types) and rates (demands,) in requests/s, and the least
    numbers of replicas.

    ``of_workload`` (workloads,) is the index of each workload's demand.
    """

    throughput_rps: Floats
    rate_rps: Floats
    min_replicas: Ints
    of_workload: Ints


@dataclass(frozen=True)
class _Candidates:
    """Replica sets to choose from: ``demand`` (replica sets,) is the demand that each serves, in ascending order, and
    ``counts`` (replica sets, slice types) are its numbers of segments.
    """

    demand: Ints
    counts: Ints


@dataclass(frozen=True)
class _Classes:
    """Workloads with the same candidates: ``members`` are the indices of the workloads of each class, ``offered``
    (replica sets,) is the class that each candidate serves, and ``counts`` (replica sets, slice types) are its numbers
    of segments.
    """

    members: tuple[Ints, ...]
    offered: Ints
    counts: Ints


def _demand(instance: Instance, segments: Segments) -> _Demand:
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    least = np.array([one.min_replicas for one in instance.workloads])
    table, of_workload = distinct_rows(np.column_stack([useful, rate, least]))
    return _Demand(table[:, :-2], table[:, -2], table[:, -1].astype(int), of_workload)


class Mixed(NamedTuple):
    """Layouts, or None if the fleet seems too small, and a lower bound on the price of isolated segments."""

    layouts: list[Layout] | None
    bound: float


def mixed(instance: Instance, segments: Segments, until: Deadline) -> Mixed:
    """The better of the mixed layouts and ParvaGPU's. When only the time to build the plan is left until ``until``, no
    round of pricing begins after the first ones. ParvaGPU's layouts are made after ``until`` only if there are no
    others.
    """
    found = _planned(instance, segments, until)
    if found.layouts is not None and (until.over or _closed(_weight(instance, found.layouts), found.bound)):
        return found
    return found._replace(layouts=_better(instance, found.layouts, _parvagpu(instance, segments)))


def _planned(instance: Instance, segments: Segments, until: Deadline) -> Mixed:
    """Layouts from mixed replica sets."""
    search = _priced(instance, segments, until)
    partitions, best = search.partitions, search.best
    bound = max((price_bound(instance, partitions, _needed(search.demand, prices), prices)
                 for prices in search.cuts[-1:]), default=0.0)
    if until.left_s > search.writing_s and (best is None or not _closed(best.value, bound)):
        best = search.whole(min(SCHEDULE.whole_s, until.left_s - search.writing_s)) or best
    layouts = None if best is None else deal(instance, segments, partitions, best.gpus, best.chosen)
    return Mixed(layouts, bound)


def cuts_of(instance: Instance, segments: Segments, until: Deadline) -> list[tuple[Ints, int]]:
    """Prices of slices, (slice types,), by which replica sets are mixed, those that prove the best bound last; each
    with the least price of the replicas of all workloads.
    """
    search = _priced(instance, segments, until)
    return [(prices, _needed(search.demand, prices)) for prices in search.cuts]


def _priced(instance: Instance, segments: Segments, until: Deadline) -> "_Search":
    """The search after all rounds of pricing for which there is time, but at least the first ones."""
    demand, partitions = _demand(instance, segments), partitions_of(instance, segments)
    search = _Search(instance, partitions, demand, _first_candidates(instance, segments, demand))
    for turn, most in enumerate(SCHEDULE.price_steps, 1):
        if not search.round(most) or (turn >= SCHEDULE.first_rounds and until.left_s <= search.writing_s):
            break
    return search


class _Packed(NamedTuple):
    """The number of GPUs that take each partition (partitions,), their value by the objective, and the numbers of
    segments that they hold, (workloads, slice types).
    """

    value: float
    gpus: Ints
    chosen: Ints


class _Search:
    """Rounds of the linear program and of pricing.

    Attributes
    ----------
    best
        The best whole numbers of GPUs and segments so far; None if there are none.
    bound, cuts
        The best bound so far, up to rounding in the verifier; and the prices of slice types in all rounds, those that
        give it last.
    """

    def __init__(self, instance: Instance, partitions: Partitions, demand: _Demand, candidates: _Candidates) -> None:
        self.instance, self.partitions, self.demand, self.candidates = instance, partitions, demand, candidates
        self.classes = _classes(demand, candidates)
        self.best: _Packed | None = None
        self.bound = 0.0
        self.cuts: list[Ints] = []

    def round(self, most: int) -> bool:
        """Mix the candidates, and add those that are cheapest at the prices of the mix, which are whole numbers up to
        ``most``. Returns whether another round may help.
        """
        mix = _mix(self.instance, self.partitions, self.classes)
        if mix is None:
            return False
        packed = _packed(self.instance, self.partitions, _rounded(self.classes, mix.parts))
        if packed is not None and (self.best is None or packed.value < self.best.value):
            self.best = packed
        prices = sharpest(mix.prices, self.partitions, most)
        priced = _replica_sets(self.demand, list(range(len(prices))), prices)
        bound = price_bound(self.instance, self.partitions, _price(self.demand, priced, prices), prices)
        better = not self.cuts or bound > self.bound
        self.cuts.insert(len(self.cuts) if better else len(self.cuts) - 1, prices)
        self.bound = max(self.bound, bound)
        if self.best is not None and _closed(self.best.value, self.bound):
            return False
        before, self.candidates = len(self.candidates.demand), _with(self.candidates, priced)
        if len(self.candidates.demand) > before:
            self.classes = _classes(self.demand, self.candidates)
            return True
        return most < max(SCHEDULE.price_steps)

    @property
    def writing_s(self) -> float:
        """The approximate time to build and verify the plan of the best so far, in seconds."""
        return 0.0 if self.best is None else REPLICA_S * float(self.best.chosen.sum())

    def whole(self, limit_s: float) -> _Packed | None:
        """The cheapest mix in whole numbers that is found in time; None if it is no better than the best so far."""
        found = _whole(self.instance, self.partitions, self.classes, limit_s)
        known = math.inf if self.best is None else self.best.value
        return found if found is not None and found.value < known else None


def _closed(value: float, bound: float) -> bool:
    """Whether no layouts are cheaper than some with this value, since the bound is as high."""
    return value <= bound * (1 + TOLERANCE)


def _price(demand: _Demand, sets: _Candidates, prices: Ints) -> int:
    """The price of a replica set of each workload; ``sets`` has one for every demand."""
    return int((sets.counts @ prices)[demand.of_workload].sum())


def _needed(demand: _Demand, prices: Ints) -> int:
    """The least price of all replica sets, with throughputs as high as rounding in the verifier may make them."""
    loose = replace(demand, throughput_rps=demand.throughput_rps * (1 + LOOSE))
    return _price(demand, _replica_sets(loose, list(range(len(prices))), prices), prices)


def _classes(demand: _Demand, candidates: _Candidates) -> _Classes:
    """The classes of workloads that have the same candidates."""
    kinds, kind = distinct_rows(candidates.counts)
    place = np.arange(len(kind)) - np.searchsorted(candidates.demand, candidates.demand)
    lists = np.full((len(demand.rate_rps), place.max(initial=0) + 1), -1)
    lists[candidates.demand, place] = kind
    several, of_demand = distinct_rows(lists)
    of_workload = of_demand[demand.of_workload]
    ends = np.cumsum(np.bincount(of_workload, minlength=len(several)))[:-1]
    members = tuple(np.split(np.argsort(of_workload, kind="stable"), ends))
    offered, at = np.nonzero(several >= 0)
    return _Classes(members, offered, kinds[several[offered, at]])


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


def _replica_sets(demand: _Demand, slice_types: list[int], costs: Ints) -> _Candidates:
    """For every demand that the given slice types can serve, the cheapest replica set of segments on these
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
    table, _ = distinct_rows(
        np.vstack([np.column_stack([old.demand, old.counts]), np.column_stack([new.demand, new.counts])])
    )
    return _Candidates(table[:, 0], table[:, 1:])


class _Mix(NamedTuple):
    """How many workloads take each candidate (replica sets,), in fractions, and the price of each slice type (slice
    types,).
    """

    parts: Floats
    prices: Floats


def _program(instance: Instance, partitions: Partitions, classes: _Classes) -> Rows:
    """The program that mixes candidates with partitions. Its variables are the workloads that take each candidate, then
    the GPUs that take each partition. Its first rows are the slices of each type, then come the limited fleet entries;
    two rows for each class make all its workloads take a candidate.
    """
    replica_sets, slice_types = classes.counts.shape
    gpus, many = len(partitions.entry), np.array([len(members) for members in classes.members], float)
    one_each = coo_array((np.ones(replica_sets), (classes.offered, np.arange(replica_sets))), (len(many), replica_sets))
    slots = hstack([csr_array(-classes.counts.T), csr_array(partitions.slots.T)])
    limits, most = _limits(instance, partitions)
    limited = hstack([csr_array((len(most), replica_sets)), csr_array(-limits)])
    each = hstack([one_each, csr_array((len(many), gpus))])
    cost = np.concatenate([np.zeros(replica_sets), _weights(instance, partitions)])
    return Rows(cost, csc_array(vstack([slots, limited, each, -each])),
                np.concatenate([np.zeros(slice_types), -most, many, -many]), np.zeros(len(cost)),
                np.full(len(cost), np.inf))


def _mix(instance: Instance, partitions: Partitions, classes: _Classes) -> _Mix | None:
    """The cheapest mix; None if the fleet is too small for these candidates."""
    replica_sets, slice_types = classes.counts.shape
    found = solve_linear(_program(instance, partitions, classes))
    return None if found is None else _Mix(found.x[:replica_sets], found.duals[:slice_types])


def _whole(instance: Instance, partitions: Partitions, classes: _Classes, limit_s: float) -> _Packed | None:
    """The cheapest mix in whole numbers that is found in time; None if there is none."""
    replica_sets, _ = classes.counts.shape
    program = _program(instance, partitions, classes)
    found = solve_integer(program, np.ones(len(program.cost), bool), limit_s)
    if found.x is None:
        return None
    gpus = np.rint(found.x[replica_sets:]).astype(int)
    chosen = _rounded(classes, np.rint(found.x[:replica_sets]))
    return _Packed(float(_weights(instance, partitions) @ gpus), gpus, chosen)


def _weights(instance: Instance, partitions: Partitions) -> Floats:
    """(partitions,) what a GPU with each partition adds to the objective."""
    return np.array([objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry])


def _limits(instance: Instance, partitions: Partitions) -> tuple[Floats, Floats]:
    """(limited entries, partitions), rows that count the GPUs of each limited fleet entry; and (limited entries,), its
    numbers of GPUs.
    """
    limited = [(index, entry.count) for index, entry in enumerate(instance.fleet) if entry.count is not None]
    rows = np.array([partitions.entry == index for index, _ in limited], float)
    return rows.reshape(len(limited), len(partitions.entry)), np.array([count for _, count in limited], float)


def _rounded(classes: _Classes, mix: Floats) -> Ints:
    """(workloads, slice types), numbers of segments: every workload gets one candidate of its class."""
    bounds = np.searchsorted(classes.offered, np.arange(len(classes.members) + 1))
    chosen = np.zeros((sum(map(len, classes.members)), classes.counts.shape[1]), int)
    whole = np.floor(mix + 1e-6).astype(int)
    for members, start, end in zip(classes.members, bounds, bounds[1:], strict=False):
        copies = whole[start:end]
        missing = len(members) - copies.sum()
        if missing:
            copies[np.argsort(copies - mix[start:end], kind="stable")[:missing]] += 1
        chosen[members] = np.repeat(classes.counts[start:end], copies, axis=0)
    return chosen


def _packed(instance: Instance, partitions: Partitions, chosen: Ints) -> _Packed | None:
    """The GPUs with slots for the chosen segments that add least to the objective; None if the fleet is too small."""
    limits, most = _limits(instance, partitions)
    weights = _weights(instance, partitions)
    rows = Rows(weights + 1e-9, csc_array(np.vstack([partitions.slots.T, -limits]).astype(float)),
                np.concatenate([chosen.sum(axis=0), -most]), np.zeros(len(weights)), np.full(len(weights), np.inf))
    found = solve_integer(rows, np.ones(len(weights), bool), SCHEDULE.whole_s)
    if found.x is None:
        return None
    gpus = np.rint(found.x).astype(int)
    return _Packed(float(weights @ gpus), gpus, chosen)


def _parvagpu(instance: Instance, segments: Segments) -> list[Layout] | None:
    """ParvaGPU's layouts; None if it cannot plan the instance or needs more GPUs than there are."""
    if needs(instance) - PARVAGPU_METHODS[0].features:
        return None
    layouts, limit = PARVAGPU.layouts(instance, segments), instance.fleet[0].count
    return layouts if limit is None or len(layouts) <= limit else None


def _better(instance: Instance, one: list[Layout] | None, other: list[Layout] | None) -> list[Layout] | None:
    """The layouts whose GPUs add less to the objective, the first if both add the same; None if there are none."""

    found = [layouts for layouts in (one, other) if layouts is not None]
    return min(found, key=partial(_weight, instance), default=None)


def _weight(instance: Instance, layouts: Sequence[Layout]) -> float:
    """What the GPUs of layouts add to the objective."""
    used = Counter(layout.entry for layout in layouts if layout.segments)
    return math.fsum(objective_of(instance).weight(instance.fleet[entry]) * many for entry, many in used.items())
