"""What slices may hold after replanning: patterns whose replicas are all started, or of which some go on.

All undominated patterns are listed. A pattern dominates another if it carries as much of every rate, within the limits
on replicas, and starts no more replicas. The module of each way of sharing lists the patterns of workloads that share a
slice.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import NamedTuple

from provision.formulations.assignment.patterns import Criteria, PatternReplica, SlicePattern
from provision.formulations.pricing.listing import TooManyError
from provision.formulations.replanning import interference, network
from provision.formulations.replanning.one_replica import one_replica_each
from provision.formulations.replanning.running import SPELLED_OUT, Going, Key, RunningPlan
from provision.formulations.replanning.turns import every_pattern
from provision.formulations.search.segments import Segments, SliceType, best_point
from provision.models.base.clock import Deadline
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import Gpulets
from provision.models.performance.igniter import IgniterProfiles
from provision.models.performance.operating_points import PerformanceData
from provision.models.problem.instance import Instance

MOST_SPLIT_SETS = 20_000
"""The most sets of operating points with the same number of replicas, if rates may be split under interference."""


class Options(NamedTuple):
    """The patterns that slices may hold.

    Attributes
    ----------
    anew
        For each slice type, the patterns whose replicas are all started.
    on
        For each Going (what a running slice runs), pairs of a pattern in which some of the running replicas go on, and
        the number of replicas that it starts.
    relaxed
        For each slice type, a bound on shared patterns if not all of them are listed; else None.
    """

    anew: list[list[SlicePattern]]
    on: dict[Going, list[tuple[SlicePattern, int]]]
    relaxed: list[network.SharedSliceBound | None]

    @property
    def shared(self) -> bool:
        """Whether workloads share slices."""
        every = [*self.anew, *([pattern for pattern, _ in several] for several in self.on.values())]
        return any(self.relaxed) or any(len(pattern.replicas) > 1 for several in every for pattern in several)


def options_of(instance: Instance, segments: Segments, now: RunningPlan, until: Deadline) -> Options | None:
    """All Options of an instance; None if they cannot be listed.

    Parameters
    ----------
    instance, segments
        The new problem, and its Segments.
    now
        The running plan.
    until
        When listing must be done.
    """
    runs = {going for gpu in now.going for going in gpu if going.slice_type >= 0 and going.keys}
    if any(key.model == SPELLED_OUT for going in runs for key in going.keys):
        return None
    criteria, found = Criteria(instance), Options([], {}, [])
    for number, slice_type in enumerate(segments.slice_types):
        here = [going for going in runs if going.slice_type == number]
        try:
            shared, complete = _shared(instance, slice_type, criteria, here, until)
        except (TooManyError, UnsupportedError):
            return None
        every = [*_alone(instance, segments, number), *shared]
        having: dict[int, list[SlicePattern]] = defaultdict(list)
        for pattern in every:
            for w in {one.workload for one in pattern.replicas}:
                having[w].append(pattern)
        found.anew.append(criteria.undominated(every, lambda one: len(one.replicas)) if shared else every)
        found.relaxed.append(None if complete else network.relaxed(instance, slice_type))
        for going in here:
            related = dict.fromkeys(pattern for w in {key.workload for key in going.keys} for pattern in having[w])
            found.on[going] = _going_on(criteria, going, [*related, *_alone_on(instance, slice_type, going)])
    return found


def _alone(instance: Instance, segments: Segments, slice_type: int) -> Iterator[SlicePattern]:
    """Yield for every workload the pattern of the one replica that carries most alone on a slice."""
    for w in segments.throughput_rps[:, slice_type].nonzero()[0].tolist():
        at = w, slice_type
        yield _single(PatternReplica(w, int(segments.model[at]), int(segments.batch[at]), int(segments.processes[at]),
                                     1.0, float(segments.throughput_rps[at])))


def _alone_on(instance: Instance, slice_type: SliceType, going: Going) -> Iterator[SlicePattern]:
    """Yield the patterns of one running replica that goes on alone, with all SMs of its slice, at its best batch size.
    """
    for key in set(going.keys):
        workload = instance.workloads[key.workload]
        if key.sm_share == 1:
            rps, _, batch, _ = best_point(instance, instance.fleet[slice_type.entry], slice_type.profile, workload,
                                          workload.models[key.model], key.processes)
            if rps:
                yield _single(PatternReplica(key.workload, key.model, batch, key.processes, 1.0, rps))


def _single(replica: PatternReplica) -> SlicePattern:
    return SlicePattern((replica,), replica.capacity_rps)


def _shared(instance: Instance, slice_type: SliceType, criteria: Criteria, here: Sequence[Going], until: Deadline
            ) -> tuple[list[SlicePattern], bool]:
    """The patterns of a slice type that workloads share, given what runs there, and whether all of them are listed.

    Raises
    ------
    TooManyError, UnsupportedError
        If there are too many to list in time, or if the patterns of a kind of data are not listed.
    """
    entry, found = instance.fleet[slice_type.entry], list[SlicePattern]()
    asked = _Asked(instance, slice_type, criteria, here, until)
    for data in instance.sharing_files(entry.gpu) if entry.mps else ():
        found += _listed(data, asked)
    routed, complete = network.shared(instance, slice_type, until)
    return [*found, *routed], complete


class _Asked(NamedTuple):
    """The arguments of `_shared`, for the function that lists the patterns of one kind of data."""

    instance: Instance
    slice_type: SliceType
    criteria: Criteria
    here: Sequence[Going]
    until: Deadline


@singledispatch
def _listed(data: PerformanceData, asked: _Asked) -> list[SlicePattern]:
    """The shared patterns of a slice type by one data file. There is one function for each class of data.

    Raises
    ------
    TooManyError, UnsupportedError
        As for ``_shared``.
    """
    _refuse_other_rules(asked.instance)
    if asked.slice_type.profile == WHOLE:
        raise UnsupportedError(f"patterns of performance data {data.name} are not listed")
    return []


@_listed.register
def _routed(data: FittedNetworks, asked: _Asked) -> list[SlicePattern]:
    """Return no patterns: `provision.formulations.replanning.network` lists those of all closed networks together."""
    _refuse_other_rules(asked.instance)
    return []


@_listed.register
def _turning(data: Gpulets, asked: _Asked) -> list[SlicePattern]:
    """Patterns of whole GPUs on which replicas take turns."""
    _refuse_other_rules(asked.instance)
    if asked.slice_type.profile != WHOLE:
        return []
    running = {(key.workload, key.model, key.sm_share): many for key, many in _most_at_once(asked.here).items()}
    return every_pattern(asked.instance, asked.slice_type, data, running, asked.until)


def _most_at_once(here: Sequence[Going]) -> Counter[Key]:
    """The most replicas of each Key that go on together on one slice."""
    most = Counter[Key]()
    for going in here:
        most |= Counter(going.keys)
    return most


def _refuse_other_rules(instance: Instance) -> None:
    """Raise UnsupportedError if feasibility depends on the rates under the latency rule."""
    if instance.policy.latency_budget != "half_slo":
        raise UnsupportedError("these patterns are not listed under this latency rule")


@_listed.register
def _interfering(data: IgniterProfiles, asked: _Asked) -> list[SlicePattern]:
    """Patterns of whole GPUs under iGniter's model."""
    instance, slice_type, criteria, here, until = asked
    if not instance.random_arrivals:
        _refuse_other_rules(instance)
    if slice_type.profile != WHOLE:
        return []
    found = one_replica_each(instance, slice_type, data, here, until)
    if found is not None:
        return found
    kept = [interference.Kept(key.workload, key.model, round(key.sm_share / data.hardware.unit_share), many)
            for key, many in _most_at_once(here).items()]
    return interference.shared(instance, slice_type, range(len(instance.workloads)), criteria, kept, MOST_SPLIT_SETS)


def _going_on(criteria: Criteria, going: Going, patterns: Iterable[SlicePattern]) -> list[tuple[SlicePattern, int]]:
    """The undominated patterns in which some replicas go on, each with the number of replicas that it starts."""
    snapped = [_snapped(pattern, going) for pattern in patterns]

    def started(pattern: SlicePattern) -> int:
        return len(pattern.replicas) - (Counter(map(_key, pattern.replicas)) & Counter(going.keys)).total()

    partly = [pattern for pattern in snapped if started(pattern) < len(pattern.replicas)]
    return [(pattern, started(pattern)) for pattern in criteria.undominated(partly, started)]


def _snapped(pattern: SlicePattern, going: Going) -> SlicePattern:
    """A pattern with the SM shares of running replicas in place of shares that differ from them only by rounding."""
    def share(one: PatternReplica) -> float:
        return next((key.sm_share for key in going.keys if key.workload == one.workload
                     and abs(key.sm_share - one.sm_share) <= TOLERANCE * key.sm_share), one.sm_share)

    replicas = tuple(one._replace(sm_share=share(one)) for one in pattern.replicas)
    return pattern if replicas == pattern.replicas else pattern._replace(replicas=replicas)


def _key(one: PatternReplica) -> Key:
    return Key(one.workload, one.model, one.processes, one.sm_share)
