"""What slices may hold after replanning: patterns whose replicas are all started, or of which some go on.

A pattern dominates another if it carries as much of every rate, within the limits on replicas, and starts no more
replicas. All undominated patterns are listed: of slices with one replica; of whole GPUs under iGniter's model, if every
workload has one replica or the units and batches are few; of gpu-lets' turns; and of closed networks, where every
workload has one replica. Networks whose rates may be split are listed at parts of the rates, and relaxations
(`slots.open_slots`) stand for the rest.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.assignment.patterns import (
    PatternReplica,
    SlicePattern,
    alone,
    clients_of,
    parts_of,
    replica_of,
)
from provision.formulations.assignment.slots import Open, open_slots, shared_files
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.mps.sets import InterferingSets
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.temporal.listing import listing
from provision.formulations.replanning.running import Going, Key, key_of
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import Segments, SliceType, best_point
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import Gpulets
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import share_of_units, units_of
from provision.models.plans.plan import Slice
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import predict_slice

MOST_PATTERNS, MOST_PREDICTIONS = 20_000, 10_000
"""The most patterns of turns, and the most sets of replicas in closed networks that are tried on one slice type."""
PARTS, MOST_SPLIT = 4, 3
"""The equal parts into which a workload's rate is divided in closed networks, if it may be split, and the most replicas
on a slice then.
"""
_Part = tuple[int, int, int, int]
"""A replica: the indices of workload and model, and two numbers that tell it from others."""


class Options(NamedTuple):
    """The patterns that slices may hold.

    Attributes
    ----------
    anew
        For each slice type, the patterns whose replicas are all started.
    on
        For each Going (what a running slice runs), pairs of a pattern in which some of the running replicas go on, and
        the number of replicas that it starts.
    opened
        For each slice type, relaxations of shared patterns if not all of them are listed.
    """

    anew: list[list[SlicePattern]]
    on: dict[Going, list[tuple[SlicePattern, int]]]
    opened: list[list[Open]]


class _Asked(NamedTuple):
    """For which slice type patterns are listed, what runs on slices of it, and until when."""

    instance: Instance
    slice_type: SliceType
    here: Sequence[Going]
    until: Deadline


def options_of(instance: Instance, segments: Segments, running: Iterable[Going], until: Deadline) -> Options:
    """All Options of an instance.

    Raises
    ------
    TooManyError
        If the patterns of a way of sharing are not listed, or not in time.
    """
    runs, found = sorted({going for going in running if going.keys}), Options([], {}, [])
    for k, slice_type in enumerate(segments.slice_types):
        asked = _Asked(instance, slice_type, [going for going in runs if going.slice_type == k], until)
        shared, complete = _shared(asked)
        every = [*alone(segments, k), *shared]
        found.anew.append(_undominated(instance, every, lambda one: len(one.replicas)) if shared else every)
        found.opened.append([] if complete else open_slots(instance, k))
        if not complete and not found.opened[k]:
            raise TooManyError
        for going in asked.here:
            found.on[going] = _going_on(instance, going, [*every, *_alone_on(asked, going)])
    return found


def _alone_on(asked: _Asked, going: Going) -> Iterator[SlicePattern]:
    """Yield the patterns of one running replica that goes on alone, with all SMs of its slice, at its best batch size.
    """
    instance, (entry, profile, *_) = asked.instance, asked.slice_type
    for key in {key for key in going.keys if key.sm_share == 1}:
        workload = instance.workloads[key.workload]
        rps, _, batch, _ = best_point(instance, instance.fleet[entry], profile, workload, workload.models[key.model],
                                      key.processes)
        if rps:
            yield SlicePattern((PatternReplica(key.workload, key.model, batch, key.processes, 1.0, rps),))


def _shared(asked: _Asked) -> tuple[list[SlicePattern], bool]:
    """The patterns of a slice type that workloads share, and whether all of them are listed."""
    instance, (entry, profile, *_) = asked.instance, asked.slice_type
    files = shared_files(instance, instance.fleet[entry], profile)
    if files and instance.policy.latency_budget != "half_slo":  # else feasibility depends on the rates
        raise TooManyError
    if files and all(isinstance(data, FittedNetworks) for data in files):
        return _networks(asked)
    if len(files) > 1 or any(type(data) not in BY_DATA for data in files):
        raise TooManyError
    return [pattern for data in files for pattern in BY_DATA[type(data)](asked, data)], True


def _turns(asked: _Asked, data: Gpulets) -> list[SlicePattern]:
    """The patterns of whole GPUs on which replicas take turns."""
    instance = asked.instance
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    number = {group.members[0]: at for at, group in enumerate(groups)}
    most = Counter[Key]()
    for going in asked.here:
        most |= Counter(going.keys)
    running = {(number[key.workload], key.model, key.sm_share): many for key, many in most.items()
               if key.workload in number}
    found = listing(Problem(instance, groups), asked.slice_type, data, running, asked.until)
    if found is None or len(found.rps) > MOST_PATTERNS:
        raise TooManyError
    return [SlicePattern(tuple(
        PatternReplica(groups[one.group].members[0], one.run.model, one.run.batch, one.run.processes, one.run.sm_share,
                       rps, one.run.turn) for one, rps in zip(*found.rated(row), strict=True)))
        for row in range(len(found.rps))]


def _interfering(asked: _Asked, data: IgniterProfiles) -> list[SlicePattern]:
    """The patterns of whole GPUs under iGniter's model."""
    instance, unit_share = asked.instance, data.hardware.unit_share
    if all(one.max_replicas == 1 and not one.variants for one in instance.workloads):
        return _one_replica_each(asked, data)
    units = range(1 if instance.fleet[asked.slice_type.entry].mps else units_of(unit_share), units_of(unit_share) + 1)
    single = {(w, number, batch, many): [PatternReplica(w, number, batch, 1, share_of_units(unit_share, many), 0.0)]
              for w, workload in enumerate(instance.workloads) for number, model in enumerate(workload.models)
              if model in data.models for batch in range(1, data.max_batch + 1) for many in units}
    lone = [found for [one] in single.values() if (found := _holding(asked, (one,), routed=False))]
    patterns, complete = _sets(asked, single, routed=False, most=units_of(unit_share))
    if not complete:
        raise TooManyError
    return [*lone, *patterns]


def _one_replica_each(asked: _Asked, data: IgniterProfiles) -> list[SlicePattern]:
    """The patterns where every workload has one replica, which carries its whole rate. A pattern is determined by its
    workloads and by which of their running replicas go on with their units: any feasible choice of operating points is
    as good as another.
    """
    instance = asked.instance
    demands = [((one.model,), instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    rule, unit_share = instance.shared_rule, data.hardware.unit_share
    free = InterferingSets(tables_of(data, rule, demands))
    every = free.every(asked.until)
    if every is None:
        raise TooManyError
    found = {groups: runs for groups in _timely(every, asked.until) if (runs := free.holds(groups)) is not None}
    patterns = [_pattern(instance, groups, runs, ()) for groups, runs in found.items()]
    for going in asked.here:
        keys = list(dict.fromkeys(going.keys))
        fixed = InterferingSets(tables_of(data, rule, [*demands, *(demands[key.workload] for key in keys)],
                                          [max(round(key.sm_share / unit_share), 1) for key in keys]))
        patterns += [_pattern(instance, members, runs, keys) for groups in _timely(found, asked.until)
                     for members, runs in _most_going_on(fixed, groups, keys, len(demands))]
    return patterns


def _timely(sets: Iterable[tuple[int, ...]], until: Deadline) -> Iterator[tuple[int, ...]]:
    """Yield ``sets``; raise TooManyError at the deadline."""
    for groups in sets:
        if until.over:
            raise TooManyError
        yield groups


def _most_going_on(sets: InterferingSets, groups: tuple[int, ...], keys: Sequence[Key], workloads: int
                   ) -> Iterator[tuple[tuple[int, ...], list[Running]]]:
    """Yield the patterns of a set of workloads in which a maximal set of running replicas goes on: their members, of
    which indices beyond those of workloads are running replicas (``keys``), and how these run.
    """
    mine = [at for at, key in enumerate(keys) if key.workload in groups]
    held: list[frozenset[int]] = []
    for kept in (frozenset(one) for size in range(len(mine), 0, -1) for one in combinations(mine, size)):
        stay = {keys[at].workload for at in kept}
        if len(stay) == len(kept) and not any(kept <= larger for larger in held):
            members = (*(one for one in groups if one not in stay), *(workloads + at for at in sorted(kept)))
            runs = sets.holds(members)
            if runs is not None:
                held.append(kept)
                yield members, runs


def _pattern(instance: Instance, members: Sequence[int], runs: Sequence[Running], keys: Sequence[Key]) -> SlicePattern:
    """The pattern of some members. A member whose index exceeds those of workloads is a running replica (``keys``)."""
    running = dict(enumerate(keys, len(instance.workloads)))
    rows = [(run, running.get(one, Key(one, 0, 1, run.sm_share))) for one, run in zip(members, runs, strict=True)]
    return SlicePattern(tuple(PatternReplica(key.workload, key.model, run.batch, 1, key.sm_share, instance.planned_rps(
        instance.workloads[key.workload])) for run, key in rows))


BY_DATA: dict[type, Callable[[_Asked, Any], list[SlicePattern]]] = {Gpulets: _turns, IgniterProfiles: _interfering}
"""The functions that list all patterns of whole GPUs, by the class of performance data."""


def _networks(asked: _Asked) -> tuple[list[SlicePattern], bool]:
    """Feasible patterns of several replicas in closed networks, and whether no other pattern improves a plan.

    A workload with one replica has its whole rate on it, and any feasible batch size is as good as another. If rates
    may be split, parts of them are tried. A batch size must keep the latency budget beside a process that never
    computes.
    """
    instance, (entry, profile, *_) = asked.instance, asked.slice_type
    gpu, whole = instance.fleet[entry], all(one.max_replicas == 1 for one in instance.workloads)
    compute, choices = gpu.type.slice_compute(profile), defaultdict[_Part, list[PatternReplica]](list)
    for data in (one for one in shared_files(instance, gpu, profile) if isinstance(one, FittedNetworks)):
        for w, workload in enumerate(instance.workloads):
            planned, budget_ms = instance.planned_rps(workload), instance.budget_ms(workload) * (1 + TOLERANCE)
            for number, model in ((at, one) for at, one in enumerate(workload.models) if one in data.models):
                points, network = data.operating_points(model, profile), data.models[model].coefficients
                for batch, processes in zip(points.batch.tolist(), points.processes.tolist(), strict=True):
                    alone_ms = network.exposed_host_ms(batch, processes + 1, compute) + network.gpu_ms(batch, compute)
                    for part in ((PARTS,) if whole else range(1, PARTS + 1)) if alone_ms <= budget_ms else ():
                        choices[w, number, processes, part].append(
                            PatternReplica(w, number, batch, processes, 1.0, planned * part / PARTS))
    found, complete = _sets(asked, choices, routed=True, most=len(instance.workloads) if whole else MOST_SPLIT)
    return found, whole and complete


def _sets(asked: _Asked, choices: Mapping[_Part, list[PatternReplica]], routed: bool, most: int
          ) -> tuple[list[SlicePattern], bool]:
    """Feasible patterns of 2 to ``most`` of the given replicas, and whether all of them were tried in time. The first
    choice of each replica with which a set is feasible is taken. An infeasible set is not enlarged, since a further
    replica slows all others.
    """
    instance, found, left = asked.instance, list[SlicePattern](), MOST_PREDICTIONS
    clients = clients_of(instance.fleet[asked.slice_type.entry], asked.slice_type.profile)
    single = [one.max_replicas == 1 for one in instance.workloads]
    level: list[tuple[_Part, ...]] = [(one,) for one in sorted(choices)]
    for _ in range(min(most, clients) - 1):
        sets, level = level, []
        for chosen in ((*fewer, more) for fewer in sets for more in choices if more >= fewer[-1]):
            first = [choices[one][0] for one in chosen]
            if (sum(one.processes for one in first) > clients
                    or (single[first[-1].workload] and first[-1].workload == first[-2].workload)
                    or (not routed and sum(one.sm_share for one in first) > 1 + TOLERANCE)):
                continue
            for replicas in product(*(choices[one] for one in chosen)):
                if not left or asked.until.over:
                    return found, False
                left -= 1
                if pattern := _holding(asked, replicas, routed):
                    found.append(pattern)
                    level.append(chosen)
                    break
    return found, True


def _holding(asked: _Asked, replicas: Sequence[PatternReplica], routed: bool) -> SlicePattern | None:
    """The pattern of some replicas; None if they violate SLOs, memory or, if ``routed``, their rates. If not, their
    capacities are what they carry beside each other.
    """
    instance, entry = asked.instance, asked.instance.fleet[asked.slice_type.entry]
    works = [instance.workloads[one.workload] for one in replicas]
    found = [one for one in predict_slice(instance, entry.gpu, Slice(
        profile=asked.slice_type.profile, start=0,
        replicas=tuple(replica_of(instance, one, one.capacity_rps) for one in replicas))) if one]
    if len(found) < len(replicas) or any(one.latency_ms > instance.budget_ms(work) * (1 + TOLERANCE)
                                         for one, work in zip(found, works, strict=True)):
        return None
    if (sum(one.memory_gib or 0 for one in found) > entry.type.slice_memory_gib(asked.slice_type.profile)
            or (routed and any(held.capacity_rps > one.throughput_rps * (1 + TOLERANCE)
                              for held, one in zip(replicas, found, strict=True)))):
        return None
    return SlicePattern(tuple(held if routed else held._replace(capacity_rps=one.throughput_rps)
                              for held, one in zip(replicas, found, strict=True)), routed)


def _going_on(instance: Instance, going: Going, patterns: Iterable[SlicePattern]) -> list[tuple[SlicePattern, int]]:
    """The undominated patterns in which some replicas go on, each with the number of replicas that it starts."""
    runs, owners = Counter(going.keys), {key.workload for key in going.keys}

    def started(pattern: SlicePattern) -> int:
        return len(pattern.replicas) - (Counter(map(key_of, pattern.replicas)) & runs).total()

    related = (_snapped(one, going) for one in patterns if any(held.workload in owners for held in one.replicas))
    partly = [one for one in dict.fromkeys(related) if started(one) < len(one.replicas)]
    return [(one, started(one)) for one in _undominated(instance, partly, started)]


def _snapped(pattern: SlicePattern, going: Going) -> SlicePattern:
    """A pattern with the SM shares of running replicas in place of shares that differ from them only by rounding."""
    return pattern._replace(replicas=tuple(one._replace(sm_share=next(
        (key.sm_share for key in going.keys if key.workload == one.workload
         and abs(key.sm_share - one.sm_share) <= TOLERANCE * key.sm_share), one.sm_share)) for one in pattern.replicas))


def _undominated(instance: Instance, patterns: Sequence[SlicePattern], started: Callable[[SlicePattern], int]
                 ) -> list[SlicePattern]:
    """The patterns that no other one dominates. A routed pattern never dominates one that is not routed: its rates are
    fixed, so a GPU with it might carry more of a workload than one GPU may.
    """
    found = list[SlicePattern]()
    for alike in ([one for one in patterns if one.routed is routed] for routed in (False, True)):
        features = np.zeros((len(alike), 3 * len(instance.workloads) + 1))
        for row, pattern in zip(features, alike, strict=True):
            row[-1] = -started(pattern)
            for w, part in parts_of(instance, pattern).items():
                workload, many = instance.workloads[w], sum(one.workload == w for one in pattern.replicas)
                row[3 * w : 3 * w + 3] = (min(part, workload.max_share_per_gpu), min(many, workload.min_replicas),
                                          0 if workload.max_replicas is None else -many)
        found += [alike[at] for at in undominated(features, most=len(alike))]
    return found
