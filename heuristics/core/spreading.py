"""Plans greedily for throughput if workloads with one replica each share slices: a plan on few GPUs is spread over the
fleet.

The first plan is greedy's on few GPUs. Then replicas are moved to another GPU, or swapped with a replica there, as long
as this increases the total throughput of the two GPUs, each at the best operating points that a short search finds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

import numpy as np

from provision.formulations.pricing.alone.assemble import Layout, assemble
from provision.formulations.pricing.listing import TooManyError
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import Members, RateOracle
from provision.formulations.search.parts import in_parts
from provision.formulations.search.problem import Problem
from provision.heuristics.core.schedule import GreedySchedule
from provision.heuristics.core.tables import NONE
from provision.heuristics.core.walk import Walk
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

SCHEDULE = GreedySchedule()
CLEARLY = 1e-9
"""The least relative increase of throughput for which a move or swap is made."""


Pattern = tuple[int, tuple[int, ...]]
"""A slice type and the groups whose replicas share one of its slices."""
Pair = tuple[Pattern, Pattern]


def fewest(instance: Instance) -> Instance:
    """The instance with the objective min_gpus. The latency rule ``full_batches`` is for throughput only, and becomes
    ``half_slo``.
    """
    if instance.policy.latency_budget == FULL_BATCHES:
        instance = instance.with_policy(latency_budget="half_slo")
    return instance.replace(objective="min_gpus")


def spread(instance: Instance, method: str, search: Search) -> Plan | None:
    """Plan an instance with objective max_throughput. Returns None if the fleet is too small, if a GPU may carry only a
    part of a workload, or if some slice type has no oracle that knows for every set of workloads whether it can share a
    slice.
    """
    few = fewest(instance)
    packed = Problem(few, in_parts(Problem(few)))
    if not packed.single:
        return None
    problem = Problem(instance, packed.groups)
    sets = {slice_type: found[0] for slice_type, found in rates_of(problem).items()
            if len(found) == 1 and found[0].by_sets}
    if any(not set(pool.slice_types) <= sets.keys() for pool in problem.pools):
        return None
    walk = Walk(packed, None, 0.0, np.random.default_rng(search.seed))
    if walk.best is None:
        return None
    chosen, patterns = walk.best, list[Pattern]()
    whole = {(pool.gpu, pool.mig): pool.slice_types[0] for pool in problem.pools}  # the same for all tiers of a pool
    for gpu in range(len(chosen.entry)):
        rows = [chosen.alone[gpu, 0]] if chosen.alone[gpu, 0] != NONE else walk.tables.ways["row"][
            chosen.ways[gpu, 0][chosen.ways[gpu, 0] != NONE]]
        entry = instance.fleet[chosen.entry[gpu]]
        patterns.append((whole[entry.gpu, entry.partitioned], tuple(sorted(walk.model.groups[rows].tolist()))))
    patterns = Spreading(problem, sets, search).improved(patterns)
    for slice_type, groups in patterns:
        if search.left_s:
            sets[slice_type].carried(groups, SCHEDULE.kept_nodes)
    try:
        members = [_members(sets[slice_type], groups) for slice_type, groups in patterns]
    except TooManyError:  # the search for operating points has a limit
        return None
    return _plan(problem, patterns, members, method)


class Spreading:
    """Moves and swaps replicas between slices."""

    def __init__(self, problem: Problem, sets: dict[int, RateOracle], search: Search) -> None:
        self.problem, self.sets, self.search = problem, sets, search

    def improved(self, patterns: Sequence[Pattern]) -> list[Pattern]:
        """Improve patterns by moves and swaps until none helps or time is up; GPUs without replicas are left out."""
        used = Counter(slice_type for slice_type, _ in patterns)
        empty: list[Pattern] = [(pool.slice_types[0], ()) for pool in self.problem.pools
                                for _ in range((pool.count or 0) - used[pool.slice_types[0]])]
        found = [*empty, *patterns]
        improving = True
        while improving:
            improving = False
            for one, other in combinations(range(len(found)), 2):
                if not self.search.left_s:
                    return _filled(found)
                better = self._better(found[one], found[other])
                if better:
                    found[one], found[other] = better
                    improving = True
        return _filled(found)

    def _better(self, one: Pattern, other: Pattern) -> Pair | None:
        """The best two patterns after a move or a swap between two patterns; None if none is better."""
        best: Pair | None = None
        most = max(self._value((one, other)), 0) * (1 + CLEARLY)
        for pair in _exchanged(one, other):
            if self._bound(pair) > most and (value := self._value(pair)) > most:
                best, most = pair, value
        return best

    def _value(self, patterns: Iterable[Pattern]) -> float:
        """The requests/s of patterns at the operating points of a short search; negative if some pattern has none."""
        values = [self.sets[slice_type].carried(groups, SCHEDULE.trial_nodes)[0]
                  for slice_type, groups in _filled(patterns)]
        return min(values) if min(values, default=0) < 0 else sum(values)

    def _bound(self, patterns: Iterable[Pattern]) -> float:
        """A quick upper bound on the requests/s of patterns."""
        return sum(self.sets[slice_type].carried(groups, 1)[1] for slice_type, groups in _filled(patterns))


def _exchanged(one: Pattern, other: Pattern) -> Iterator[Pair]:
    """Yield the two patterns after each move of a replica and after each swap between them."""
    for first, second in product((*dict.fromkeys(one[1]), None), (*dict.fromkeys(other[1]), None)):
        if first != second:
            yield _with(one, first, second), _with(other, second, first)


def _with(pattern: Pattern, gone: int | None, come: int | None) -> Pattern:
    """A pattern without the group ``gone`` and with the group ``come``; each may be None."""
    slice_type, groups = pattern
    left = list(groups)
    if gone is not None:
        left.remove(gone)
    return slice_type, tuple(sorted(left if come is None else [*left, come]))


def _filled(patterns: Iterable[Pattern]) -> list[Pattern]:
    return [pattern for pattern in patterns if pattern[1]]


def _members(sets: RateOracle, groups: tuple[int, ...]) -> Members:
    """The best known operating points of a set that can share a slice."""
    found = sets.held(groups)
    assert found is not None, "replicas are only moved to where they hold"
    return found


def _plan(problem: Problem, patterns: Sequence[Pattern], members: Sequence[Members], method: str) -> Plan:
    """The plan of patterns, with each pattern on a separate GPU."""
    waiting = [list(group.members) for group in problem.groups]
    shared, layouts = list[tuple[Replica, ...]](), list[Layout]()
    entries = {pool.slice_types[0]: pool.entry for pool in problem.pools}
    for (slice_type, _), held in zip(patterns, members, strict=True):
        layouts.append(Layout(entries[slice_type], ((slice_type, len(problem.instance.workloads) + len(shared)),)))
        replicas = []
        for one in held:
            group, workload = problem.groups[one.group], problem.instance.workloads[waiting[one.group].pop()]
            replicas.append(Replica(workload=workload.name, batch=one.run.batch, sm_share=one.run.sm_share,
                                    rate_rps=group.rate_rps))
        shared.append(tuple(replicas))
    return assemble(problem.instance, problem.segments, layouts, method, shared)
