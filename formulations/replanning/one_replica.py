"""Patterns of whole GPUs under iGniter's model, where every workload has one replica, given what runs on the GPUs.

A single replica carries the whole rate of its workload. So a pattern is determined by its workloads, and by which of
their running replicas go on with the units that they have: any feasible choice of operating points is as good as
another. A branch and bound (``best_points``) decides whether there is a feasible choice.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern
from provision.formulations.pricing.listing import TooManyError
from provision.formulations.pricing.mps.choices import choices_of, with_units
from provision.formulations.pricing.mps.sets import InterferingSets
from provision.formulations.pricing.rates import Members
from provision.formulations.replanning.running import Going, Key
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.sm_shares import units_of
from provision.models.problem.instance import Instance


def one_replica_each(instance: Instance, slice_type: SliceType, data: IgniterProfiles, here: Sequence[Going],
                     until: Deadline) -> list[SlicePattern] | None:
    """List the patterns; None if workloads may have several replicas or models, or arrivals are random.

    Parameters
    ----------
    instance, slice_type, data
        The problem, the slice type, and the data that describes it.
    here
        What runs on GPUs of this slice type.
    until
        When listing must be done.

    Raises
    ------
    TooManyError
        If there are more patterns than can be listed in time.
    """
    free = all(one.max_replicas == 1 and not one.variants for one in instance.workloads)
    if not free or instance.random_arrivals or instance.sharing_files(data.gpu) != [data]:
        return None
    demands = [((one.model,), instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    choices, unit_share = choices_of(instance, data.gpu, demands), data.hardware.unit_share
    sets = InterferingSets(choices, [1] * len(demands), unit_share)
    found = {groups: members for groups in _timely(sets.every(until), until)
             if (members := sets.holds(groups)) is not None}
    patterns = [_pattern(instance, members) for members in found.values()]
    for going in here:
        keys = [key for key in dict.fromkeys(going.keys) if _units(key, unit_share) <= units_of(unit_share)]
        fixed = InterferingSets(with_units(choices, [(key.workload, _units(key, unit_share)) for key in keys]),
                                [1] * (len(demands) + len(keys)), unit_share)
        patterns += [_pattern(instance, members, keys) for groups in _timely(found, until)
                     for members in _most_going_on(fixed, groups, keys, len(demands))]
    return patterns


def _timely(sets: Iterable[tuple[int, ...]] | None, until: Deadline) -> Iterator[tuple[int, ...]]:
    """Yield ``sets`` until the deadline. Then, and also if ``sets`` is None (too many), raise TooManyError."""
    for groups in sets or ():
        if until.over:
            raise TooManyError
        yield groups
    if sets is None:
        raise TooManyError


def _units(key: Key, unit_share: float) -> int:
    return max(round(key.sm_share / unit_share), 1)


def _most_going_on(sets: InterferingSets, groups: tuple[int, ...], keys: Sequence[Key], workloads: int
                   ) -> Iterator[Members]:
    """Yield the patterns of a set of workloads in which a maximal set of running replicas goes on."""
    mine = [at for at, key in enumerate(keys) if key.workload in groups]
    held: list[frozenset[int]] = []
    for size in range(len(mine), 0, -1):
        for kept in map(frozenset, combinations(mine, size)):
            stay = {keys[at].workload for at in kept}
            if len(stay) < size or any(kept <= larger for larger in held):
                continue
            members = sets.holds((*(one for one in groups if one not in stay),
                                  *(workloads + at for at in sorted(kept))))
            if members is not None:
                held.append(kept)
                yield members


def _pattern(instance: Instance, members: Members, keys: Sequence[Key] = ()) -> SlicePattern:
    """The pattern of the given members. A member whose index exceeds those of workloads is a running replica
    (``keys``).
    """
    replicas = []
    for group, run, _ in members:
        at = group - len(instance.workloads)
        w, share = (group, run.sm_share) if at < 0 else (keys[at].workload, keys[at].sm_share)
        replicas.append(PatternReplica(w, 0, run.batch, 1, share, instance.planned_rps(instance.workloads[w])))
    return SlicePattern(tuple(replicas), sum(one.capacity_rps for one in replicas))
