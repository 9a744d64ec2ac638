"""What the slices of a plan may hold after replanning: contents that start anew, and contents that partly go on.

Every content is listed that no other one replaces: with as much of every rate, within the limits on replicas, and with
no more replicas to start. Contents of workloads that share a slice come from where each way of sharing lists them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from provision.formulations.assignment import interference, network
from provision.formulations.assignment.contents import ContentReplica, SliceContent, Worth
from provision.formulations.pricing.listing import TooManyError
from provision.formulations.replanning.one_replica import one_replica_each
from provision.formulations.replanning.running import SPELLED_OUT, Going, Key, RunningPlan
from provision.formulations.replanning.turning import turning
from provision.formulations.search.segments import Segments, SliceKind, best_point
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import Instance

MOST_SETS = 20_000
"""Most sets of operating points with one number of replicas, where rates may be split under interference."""


class Options(NamedTuple):
    """What slices may hold.

    Attributes
    ----------
    anew
        Contents whose replicas are all started, by slice kind.
    on
        By what runs in a slice: contents of which some replicas go on, and the number of replicas that start.
    relaxed
        By slice kind, a bound on shared contents where not all of them are listed, else None.
    """

    anew: list[list[SliceContent]]
    on: dict[Going, list[tuple[SliceContent, int]]]
    relaxed: list[network.SharedSliceBound | None]

    @property
    def shared(self) -> bool:
        """Whether workloads share slices."""
        every = [*self.anew, *([content for content, _ in several] for several in self.on.values())]
        return any(self.relaxed) or any(len(content.replicas) > 1 for several in every for content in several)


def options_of(instance: Instance, segments: Segments, now: RunningPlan, until: float) -> Options | None:
    """All Options of an instance; None where they cannot be listed.

    Parameters
    ----------
    instance, segments
        The new problem, and its Segments.
    now
        The running plan.
    until
        A perf_counter at which it is too late to list them.
    """
    runs = {going for gpu in now.going for going in gpu if going.kind >= 0 and going.keys}
    if any(key.model == SPELLED_OUT for going in runs for key in going.keys):
        return None
    worth, found = Worth(instance), Options([], {}, [])
    for number, kind in enumerate(segments.kinds):
        here = [going for going in runs if going.kind == number]
        try:
            shared, complete = _shared(instance, kind, worth, here, until)
        except (TooManyError, UnsupportedError):
            return None
        every = [*_alone(instance, segments, number), *shared]
        having: dict[int, list[SliceContent]] = defaultdict(list)
        for content in every:
            for w in {one.workload for one in content.replicas}:
                having[w].append(content)
        found.anew.append(worth.undominated(every, lambda one: len(one.replicas)) if shared else every)
        found.relaxed.append(None if complete else network.relaxed(instance, kind))
        for going in here:
            related = dict.fromkeys(content for w in {key.workload for key in going.keys} for content in having[w])
            found.on[going] = _going_on(worth, going, [*related, *_alone_on(instance, kind, going)])
    return found


def _alone(instance: Instance, segments: Segments, kind: int) -> Iterator[SliceContent]:
    """For every workload the replica that carries most with a slice to itself."""
    for w in segments.throughput_rps[:, kind].nonzero()[0].tolist():
        at = w, kind
        yield _single(ContentReplica(w, int(segments.model[at]), int(segments.batch[at]), int(segments.processes[at]),
                                     1.0, float(segments.throughput_rps[at])))


def _alone_on(instance: Instance, kind: SliceKind, going: Going) -> Iterator[SliceContent]:
    """Each replica that has all SMs of a running slice, going on by itself at its best batch size."""
    for key in set(going.keys):
        workload = instance.workloads[key.workload]
        if key.sm_share == 1:
            rps, _, batch, _ = best_point(instance, instance.fleet[kind.entry], kind.profile, workload,
                                          workload.models[key.model], key.processes)
            if rps:
                yield _single(ContentReplica(key.workload, key.model, batch, key.processes, 1.0, rps))


def _single(replica: ContentReplica) -> SliceContent:
    return SliceContent((replica,), replica.capacity_rps)


def _shared(instance: Instance, kind: SliceKind, worth: Worth, here: Sequence[Going], until: float
            ) -> tuple[list[SliceContent], bool]:
    """Contents of slices of a kind that workloads share, given what runs there, and whether all are listed.

    Raises
    ------
    TooManyError, UnsupportedError
        When there are too many in the time, or data of a kind whose contents are not listed.
    """
    entry, found = instance.fleet[kind.entry], list[SliceContent]()
    for data in instance.sharing_files(entry.gpu) if entry.mps else ():
        random = instance.random_arrivals and data.kind == "igniter"
        if instance.policy.latency_budget != "half_slo" and not random:
            raise UnsupportedError(f"contents of {data.kind} data are not listed under this latency rule")
        if data.kind == "closed-network":
            continue
        if data.kind == "igniter" and kind.profile == WHOLE:
            found += _interfering(instance, kind, worth, data, here, until)
        elif data.kind == "gpulets" and kind.profile == WHOLE:
            found += turning(instance, kind, data, here)
        elif kind.profile == WHOLE:
            raise UnsupportedError(f"contents of {data.kind} data are not listed")
    routed, complete = network.shared(instance, kind)
    return [*found, *routed], complete


def _interfering(instance: Instance, kind: SliceKind, worth: Worth, data: IgniterProfiles, here: Sequence[Going],
                 until: float) -> list[SliceContent]:
    """Contents of whole GPUs under iGniter's model."""
    found = one_replica_each(instance, kind, data, here, until)
    if found is not None:
        return found
    most = Counter[Key]()
    for going in here:
        most |= Counter(going.keys)
    kept = [interference.Kept(key.workload, key.model, round(key.sm_share / data.hardware.unit_share), many)
            for key, many in most.items()]
    return interference.shared(instance, kind, range(len(instance.workloads)), worth, kept, MOST_SETS)


def _going_on(worth: Worth, going: Going, contents: Iterable[SliceContent]) -> list[tuple[SliceContent, int]]:
    """The contents of which some replicas go on, with the number that start; none that another one replaces."""
    snapped = [_snapped(content, going) for content in contents]

    def started(content: SliceContent) -> int:
        return len(content.replicas) - (Counter(map(_key, content.replicas)) & Counter(going.keys)).total()

    partly = [content for content in snapped if started(content) < len(content.replicas)]
    return [(content, started(content)) for content in worth.undominated(partly, started)]


def _snapped(content: SliceContent, going: Going) -> SliceContent:
    """A content with the very SM shares of the replicas that run, where its own are the same but for rounding."""
    def share(one: ContentReplica) -> float:
        return next((key.sm_share for key in going.keys if key.workload == one.workload
                     and abs(key.sm_share - one.sm_share) <= TOLERANCE * key.sm_share), one.sm_share)

    replicas = tuple(one._replace(sm_share=share(one)) for one in content.replicas)
    return content if replicas == content.replicas else content._replace(replicas=replicas)


def _key(one: ContentReplica) -> Key:
    return Key(one.workload, one.model, one.processes, one.sm_share)
