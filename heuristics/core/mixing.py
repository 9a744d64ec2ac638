"""Plans replicas that have slices of their own (segments): a linear program mixes cheap replica sets of all workloads.

A replica set is some segments that together carry the rate of one workload.

1. Every workload gets a few candidate replica sets. The first are the sets with the fewest compute and memory slices
   together, one on each fleet entry. Further candidates are the sets that are cheapest at the dual prices of step 2;
   they are added in some rounds (`provision.formulations.pricing.replica_sets`).
2. Workloads with the same candidates form a class: 100,000 different workloads with one or two replicas each form some
   twenty classes. A linear program decides how many workloads of each class take each candidate, and how many GPUs take
   each partition, at least cost. It has one constraint for each class, slice type and limited fleet entry. A vertex has
   at most as many positive variables as there are constraints, and every class needs one. So the number of classes with
   fractions is at most the number of slice types and limited fleet entries. The fractions are rounded.
3. An integer program of about a dozen variables decides how many GPUs take each partition, so that there are slots for
   the chosen segments. If time is left and the plan is not proven optimal, the program of step 2 is also solved in
   whole numbers. Then the segments are assigned to the slots.

The dual prices also prove a lower bound on the cost.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, hstack, vstack

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.formulations.pricing.replica_sets import cheapest_replica_sets, price_bound, sharpest
from provision.formulations.search.assemble import Layout, deal
from provision.formulations.search.segments import Segments, cap_rps, partitions_of
from provision.heuristics.core.schedule import SCHEDULE
from provision.heuristics.parvagpu.parvagpu import METHODS as PARVAGPU_METHODS
from provision.heuristics.parvagpu.parvagpu import PARVAGPU
from provision.models.base.arrays import Floats, Ints, distinct_rows
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import LOOSE, SOLVER, TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.search import REPLICA_S


class _Packed(NamedTuple):
    """The number of GPUs that take each partition (partitions,), their value by the objective, and the numbers of
    segments that they hold, (workloads, slice types).
    """

    value: float
    gpus: Ints
    chosen: Ints


def mixed(instance: Instance, segments: Segments, until: Deadline) -> tuple[list[Layout] | None, float]:
    """The mixed layouts, None if the fleet seems too small; and a lower bound on the price of isolated segments.

    When only the time to build the plan is left until ``until``, no round of pricing begins after the first ones.
    ParvaGPU's layouts are made only if there are no others, as when the user stops the search in its first round.
    """
    mixing = _Mixing(instance, segments, until)
    partitions, best, bound = mixing.partitions, mixing.best, mixing.bound
    if until.left_s > mixing.writing_s and (best is None or not _closed(best.value, bound)):
        best = mixing.whole(min(SCHEDULE.whole_s, until.left_s - mixing.writing_s)) or best
    layouts = None if best is None else deal(instance, segments, partitions, best.gpus, best.chosen)
    return _parvagpu(instance, segments) if layouts is None else layouts, bound


def cuts_of(instance: Instance, segments: Segments, until: Deadline) -> list[tuple[Ints, Ints]]:
    """Prices of slices, (slice types,), by which replica sets are mixed, those that prove the best bound last; each
    with the least price of the replicas of every workload, (workloads,).
    """
    return _Mixing(instance, segments, until).cuts


class _Mixing:
    """All rounds of the linear program and of pricing for which there is time, but at least the first ones.

    A *demand* is a workload that is not equal to one before it. Replica sets are rows of a table: the demand that each
    serves, ascending, and its numbers of segments (slice types,).

    Attributes
    ----------
    throughput_rps, rate_rps, least, of_workload
        Useful throughput (demands, slice types) and rates (demands,) in requests/s, the least numbers of replicas, and
        (workloads,) the demand of each workload.
    limits, gpu_rows
        The numbers of GPUs of the limited fleet entries; and (slice types and limited entries, partitions), a GPU's
        slots of each type, and -1 where it counts against a limit.
    replica_sets
        The candidates.
    members, offered, counts
        Workloads with the same candidates are a class: the indices of the workloads of each class, (candidates,) the
        class that each candidate serves, and (candidates, slice types) its numbers of segments.
    best
        The best whole numbers of GPUs and segments so far; None if there are none.
    bound, cuts
        The best bound so far; and the cuts of all rounds (see ``cuts_of``), the one that gives the bound last.
    """

    def __init__(self, instance: Instance, segments: Segments, until: Deadline) -> None:
        self.partitions = partitions_of(instance, segments)
        self.weights = np.array([objective_of(instance).weight(instance.fleet[entry])
                                 for entry in self.partitions.entry])
        limited = [at for at, entry in enumerate(instance.fleet) if entry.count is not None]
        self.limits = np.array([instance.fleet[at].count for at in limited], float)
        of_limited = np.array(limited, int)[:, None] == self.partitions.entry
        self.gpu_rows = csr_array(np.vstack([self.partitions.slots.T, -1.0 * of_limited]))
        self.instance, self.bound, self.cuts = instance, 0.0, list[tuple[Ints, Ints]]()
        self.best: _Packed | None = None
        useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
        rate = np.array([instance.planned_rps(one) for one in instance.workloads])
        least = np.array([one.min_replicas for one in instance.workloads])
        table, self.of_workload = distinct_rows(np.column_stack([useful, rate, least]))
        self.throughput_rps, self.rate_rps, self.least = table[:, :-2], table[:, -2], table[:, -1].astype(int)
        sizes = np.array([one.compute + one.memory for one in segments.slice_types], int)
        self.replica_sets = distinct_rows(np.vstack([
            self._cheapest(segments.of_entry(entry), sizes) for entry in range(len(instance.fleet))]))[0]
        self._classify()
        for turn in range(1, SCHEDULE.rounds + 1):
            if not self._round() or (turn >= SCHEDULE.first_rounds and until.left_s <= self.writing_s):
                break

    @property
    def writing_s(self) -> float:
        """The approximate time to build and verify the plan of the best so far, in seconds."""
        return 0.0 if self.best is None else REPLICA_S * float(self.best.chosen.sum())

    def whole(self, limit_s: float) -> _Packed | None:
        """The cheapest mix in whole numbers that is found in time; None if it is no better than the best so far."""
        many, program = len(self.offered), self._program()
        found = solve_integer(program, np.ones(len(program.cost), bool), limit_s)
        if found.x is None:
            return None
        gpus = np.rint(found.x[many:]).astype(int)
        value = float(self.weights @ gpus)
        better = self.best is None or value < self.best.value
        return _Packed(value, gpus, self._rounded(np.rint(found.x[:many]))) if better else None

    def _round(self) -> bool:
        """Mix the candidates, and add those that are cheapest at the prices of the mix. Returns whether another round
        may help.
        """
        mix = solve_linear(self._program())
        if mix is None:
            return False
        packed = self._packed(self._rounded(mix.x[:len(self.offered)]))
        if packed is not None and (self.best is None or packed.value < self.best.value):
            self.best = packed
        prices = sharpest(mix.duals[:self.counts.shape[1]], self.partitions, SCHEDULE.dearest)
        every = list(range(len(prices)))
        # Rounding in the verifier may make throughputs higher.
        needed = (self._cheapest(every, prices, 1 + LOOSE)[:, 1:] @ prices)[self.of_workload]
        bound = price_bound(self.instance, self.partitions, int(needed.sum()), prices)
        better = not self.cuts or bound > self.bound
        self.cuts.insert(len(self.cuts) if better else len(self.cuts) - 1, (prices, needed))
        self.bound = max(self.bound, bound)
        if self.best is not None and _closed(self.best.value, self.bound):
            return False
        before = len(self.replica_sets)
        self.replica_sets, _ = distinct_rows(np.vstack([self.replica_sets, self._cheapest(every, prices)]))
        if len(self.replica_sets) == before:
            return False
        self._classify()
        return True

    def _cheapest(self, slice_types: list[int], costs: Ints, loose: float = 1.0) -> Ints:
        """For every demand that the given slice types can serve, the cheapest replica set of segments on these slice
        types. ``costs`` (slice types,) is the cost of a segment, and ``loose`` a factor on throughputs.
        """
        useful = self.throughput_rps[:, slice_types] * loose
        rows = np.flatnonzero(useful.any(axis=1))
        found = np.zeros((len(rows), 1 + len(costs)), int)
        found[:, 0] = rows
        if len(rows):
            found[:, [1 + at for at in slice_types]] = cheapest_replica_sets(
                useful[rows], costs[slice_types], self.rate_rps[rows], self.least[rows])
        return found

    def _classify(self) -> None:
        """Find the classes of workloads that have the same candidates."""
        demand = self.replica_sets[:, 0]
        kinds, kind = distinct_rows(self.replica_sets[:, 1:])
        place = np.arange(len(kind)) - np.searchsorted(demand, demand)
        lists = np.full((len(self.rate_rps), place.max(initial=0) + 1), -1)
        lists[demand, place] = kind
        several, of_demand = distinct_rows(lists)
        of_workload = of_demand[self.of_workload]
        ends = np.cumsum(np.bincount(of_workload, minlength=len(several)))[:-1]
        self.members = np.split(np.argsort(of_workload, kind="stable"), ends)
        self.offered, at = np.nonzero(several >= 0)
        self.counts = kinds[several[self.offered, at]]

    def _program(self) -> Rows:
        """The program that mixes candidates with partitions. Its variables are the workloads that take each candidate,
        then the GPUs that take each partition. Its first rows are the slices of each type, then come the limited fleet
        entries; two rows for each class make all its workloads take a candidate.
        """
        many, gpus = np.array([len(one) for one in self.members], float), len(self.weights)
        candidates, slice_types = self.counts.shape
        one_each = coo_array((np.ones(candidates), (self.offered, np.arange(candidates))), (len(many), candidates))
        taken = vstack([csr_array(-self.counts.T), csr_array((len(self.limits), candidates))])
        each = hstack([one_each, csr_array((len(many), gpus))])
        cost = np.concatenate([np.zeros(candidates), self.weights])
        return Rows(cost, csc_array(vstack([hstack([taken, self.gpu_rows]), each, -each])),
                    np.concatenate([np.zeros(slice_types), -self.limits, many, -many]), np.zeros(len(cost)),
                    np.full(len(cost), np.inf))

    def _rounded(self, mix: Floats) -> Ints:
        """(workloads, slice types), numbers of segments: every workload gets one candidate of its class. ``mix``
        (candidates,) tells how many workloads take each.
        """
        bounds = np.searchsorted(self.offered, np.arange(len(self.members) + 1))
        chosen = np.zeros((len(self.of_workload), self.counts.shape[1]), int)
        whole = np.floor(mix + SOLVER).astype(int)
        for members, start, end in zip(self.members, bounds, bounds[1:], strict=False):
            copies = whole[start:end]
            missing = len(members) - copies.sum()
            if missing:
                copies[np.argsort(copies - mix[start:end], kind="stable")[:missing]] += 1
            chosen[members] = np.repeat(self.counts[start:end], copies, axis=0)
        return chosen

    def _packed(self, chosen: Ints) -> _Packed | None:
        """The GPUs with slots for the chosen segments that add least to the objective; None if the fleet is too small.
        """
        rows = Rows(self.weights + 1e-9, csc_array(self.gpu_rows), np.concatenate([chosen.sum(axis=0), -self.limits]),
                    np.zeros(len(self.weights)), np.full(len(self.weights), np.inf))
        found = solve_integer(rows, np.ones(len(self.weights), bool), SCHEDULE.whole_s)
        if found.x is None:
            return None
        gpus = np.rint(found.x).astype(int)
        return _Packed(float(self.weights @ gpus), gpus, chosen)


def _closed(value: float, bound: float) -> bool:
    """Whether no layouts are cheaper than some with this value, since the bound is as high."""
    return value <= bound * (1 + TOLERANCE)


def _parvagpu(instance: Instance, segments: Segments) -> list[Layout] | None:
    """ParvaGPU's layouts; None if it cannot plan the instance or needs more GPUs than there are."""
    if needs(instance) - PARVAGPU_METHODS[0].features:
        return None
    layouts, limit = PARVAGPU.layouts(instance, segments), instance.fleet[0].count
    return layouts if limit is None or len(layouts) <= limit else None
