"""What slices may hold after replanning: patterns whose replicas are all started, or of which some go on.

A pattern dominates another if it carries as much of every rate, within the limits on replicas, and starts no more
replicas. All undominated patterns are listed: of slices with one replica; of whole GPUs under iGniter's model, if every
workload has one replica; and of gpu-lets' turns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.slots import SlicePattern, alone, parts_of, shared_files
from provision.formulations.pricing.mps.kernels import feasible_sets, runs_of
from provision.formulations.pricing.mps.tables import PointTables, tables_of
from provision.formulations.pricing.oracle import Running, replica_of
from provision.formulations.pricing.rates import TooManyError, undominated
from provision.formulations.pricing.temporal.listing import listing
from provision.formulations.replanning.running import Going, Key, key_of
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import Segments, SliceType, best_point
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.gpulets import Gpulets
from provision.models.performance.igniter import IgniterProfiles
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance

MOST_PATTERNS = 20_000
"""The most patterns of turns."""


class Options(NamedTuple):
    """The patterns that slices may hold.

    Attributes
    ----------
    anew
        For each slice type, the patterns whose replicas are all started.
    on
        For each Going (what a running slice runs), pairs of a pattern in which some of the running replicas go on, and
        the number of replicas that it starts.
    """

    anew: list[list[SlicePattern]]
    on: dict[Going, list[tuple[SlicePattern, int]]]


def options_of(instance: Instance, segments: Segments, running: Iterable[Going], until: Deadline) -> Options:
    """All Options of an instance.

    Raises
    ------
    TooManyError
        If the patterns of a way of sharing are not listed, or not in time.
    """
    runs, found = sorted({going for going in running if going.keys}), Options([], {})
    for k, slice_type in enumerate(segments.slice_types):
        here = [going for going in runs if going.slice_type == k]
        shared = _shared(instance, slice_type, here, until)
        every = [*alone(instance, segments, k), *shared]
        found.anew.append(_undominated(instance, every, len) if shared else every)
        for going in here:
            found.on[going] = _going_on(instance, going, [*every, *_alone_on(instance, slice_type, going)])
    return found


def _alone_on(instance: Instance, slice_type: SliceType, going: Going) -> Iterator[SlicePattern]:
    """Yield the patterns of one running replica that goes on alone, with all SMs of its slice, at its best batch size.
    """
    entry, profile, *_ = slice_type
    for key in {key for key in going.keys if key.sm_share == 1}:
        workload = instance.workload[key.workload]
        rps, _, batch, _ = best_point(instance, instance.fleet[entry], profile, workload, key.model or workload.model,
                                      key.processes)
        if rps:
            yield (Replica(**key._asdict(), batch=batch, rate_rps=rps),)


def _shared(instance: Instance, slice_type: SliceType, here: Sequence[Going], until: Deadline) -> list[SlicePattern]:
    """The patterns of a slice type that workloads share; ``here`` is what runs on slices of it."""
    entry, profile, *_ = slice_type
    files = shared_files(instance, instance.fleet[entry], profile)
    if files and (len(files) > 1 or instance.policy.latency_budget != "half_slo"):  # feasibility depends on the rates
        raise TooManyError
    for data in files:
        if isinstance(data, Gpulets):
            return _turns(instance, slice_type, data, here, until)
        if isinstance(data, IgniterProfiles):
            return _one_replica_each(instance, data, here, until)
        raise TooManyError
    return []


def _turns(instance: Instance, slice_type: SliceType, data: Gpulets, here: Sequence[Going], until: Deadline
           ) -> list[SlicePattern]:
    """The patterns of whole GPUs on which replicas take turns; ``here`` is what runs on such GPUs."""
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    number = {instance.workloads[group.members[0]].name: at for at, group in enumerate(groups)}
    most = Counter[Key]()
    for going in here:
        most |= Counter(going.keys)
    running = {(number[key.workload], groups[number[key.workload]].models.index(key.model) if key.model else 0,
                key.sm_share): many for key, many in most.items() if key.workload in number}
    found = listing(Problem(instance, groups), slice_type, data, running, until)
    if found is None or len(found.rps) > MOST_PATTERNS:
        raise TooManyError
    return [tuple(replica_of(instance, groups[one.group].members[0], one.run, rps)
                  for one, rps in zip(*found.rated(row), strict=True)) for row in range(len(found.rps))]


def _one_replica_each(instance: Instance, data: IgniterProfiles, here: Sequence[Going], until: Deadline
                      ) -> list[SlicePattern]:
    """The patterns of whole GPUs under iGniter's model where every workload has one replica, which carries its whole
    rate. A pattern is determined by its workloads and by which of their running replicas go on with their units: any
    feasible choice of operating points is as good as another. ``here`` is what runs on such GPUs.
    """
    if any(one.max_replicas != 1 or one.variants for one in instance.workloads):
        raise TooManyError
    demands = [((one.model,), instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    rule, unit_share = instance.shared_rule, data.hardware.unit_share
    free = tables_of(data, rule, demands)
    every = feasible_sets(free, [1] * len(demands), until)
    if every is None:
        raise TooManyError
    patterns, names = list[SlicePattern](), list(instance.workload)
    for groups in _timely(every, until):
        runs = runs_of(free, groups, proven=True)
        if runs is not None:
            patterns.append(_whole(instance, groups, runs))
    for going in here:
        keys = list(dict.fromkeys(going.keys))
        owners = [*range(len(names)), *(names.index(key.workload) for key in keys)]
        fixed = tables_of(data, rule, [demands[w] for w in owners],
                          [max(round(key.sm_share / unit_share), 1) for key in keys])
        patterns += [_whole(instance, *one) for groups in _timely(every, until)
                     for one in _most_going_on(fixed, groups, owners)]
    return patterns


def _timely(sets: Iterable[tuple[int, ...]], until: Deadline) -> Iterator[tuple[int, ...]]:
    """Yield ``sets``; raise TooManyError at the deadline."""
    for groups in sets:
        if until.over:
            raise TooManyError
        yield groups


def _most_going_on(tables: PointTables, groups: tuple[int, ...], owners: Sequence[int]
                   ) -> Iterator[tuple[Sequence[int], list[Running]]]:
    """Yield the patterns of a set of workloads in which a maximal set of running replicas goes on: the workloads, and
    how their replicas run.

    ``owners`` are the workloads of the demands of ``tables``. The first demands are those of the workloads, in order;
    the others are those of the running replicas.
    """
    mine = [at for at in range(max(owners) + 1, len(owners)) if owners[at] in groups]
    held: list[frozenset[int]] = []
    for kept in (frozenset(one) for size in range(len(mine), 0, -1) for one in combinations(mine, size)):
        stay = {owners[at] for at in kept}
        if len(stay) == len(kept) and not any(kept <= larger for larger in held):
            members = (*(one for one in groups if one not in stay), *sorted(kept))
            runs = runs_of(tables, members, proven=True)
            if runs is not None:
                held.append(kept)
                yield [owners[at] for at in members], runs


def _whole(instance: Instance, workloads: Iterable[int], runs: Iterable[Running]) -> SlicePattern:
    """The pattern of replicas that carry the whole rates of some workloads."""
    return tuple(replica_of(instance, w, run, instance.planned_rps(instance.workloads[w]))
                 for w, run in zip(workloads, runs, strict=True))


def _going_on(instance: Instance, going: Going, patterns: Iterable[SlicePattern]) -> list[tuple[SlicePattern, int]]:
    """The undominated patterns in which some replicas go on, each with the number of replicas that it starts."""
    runs, owners = Counter(going.keys), {key.workload for key in going.keys}

    def started(pattern: SlicePattern) -> int:
        return len(pattern) - (Counter(map(key_of, pattern)) & runs).total()

    related = (_snapped(one, going) for one in patterns if any(held.workload in owners for held in one))
    partly = [one for one in dict.fromkeys(related) if started(one) < len(one)]
    return [(one, started(one)) for one in _undominated(instance, partly, started)]


def _snapped(pattern: SlicePattern, going: Going) -> SlicePattern:
    """A pattern with the SM shares of running replicas in place of shares that differ from them only by rounding."""
    return tuple(one.model_copy(update={"sm_share": next(
        (key.sm_share for key in going.keys if key.workload == one.workload
         and abs(key.sm_share - one.sm_share) <= TOLERANCE * key.sm_share), one.sm_share)}) for one in pattern)


def _undominated(instance: Instance, patterns: Sequence[SlicePattern], started: Callable[[SlicePattern], int]
                 ) -> list[SlicePattern]:
    """The patterns that no other one dominates."""
    share, least, limited = np.array([(one.max_share_per_gpu, one.min_replicas, one.max_replicas is not None)
                                      for one in instance.workloads]).T
    features = np.zeros((len(patterns), 3 * len(share) + 1))
    for row, pattern in zip(features, patterns, strict=True):
        parts, number = parts_of(instance, pattern)
        row[:] = *np.minimum(parts, share), *np.minimum(number, least), *(-number * limited), -started(pattern)
    return [patterns[at] for at in undominated(features, most=len(patterns))]
