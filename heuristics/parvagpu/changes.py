"""ParvaGPU's procedure for services that change (SC 2024, section III-F): changed services are placed anew, and the
others stay.

From the paper: the configurator makes new segments only for the services that changed. Their old segments are removed
from the deployment map, the new ones are relocated onto the remaining map, and the map is optimized. All services that
the optimization does not move keep their GPUs and their slices at the same starts. The paper does not say how a slice
that stays limits new slices on its GPU. Here it keeps its start, and a segment is put on the fullest GPU on which MIG's
placement table then has room for it, at the start that leaves the most room. A service counts as changed if its running
segments are not those that the configurator would choose for their sizes, or carry less than its rate.

GPUs whose segments keep their starts, while other segments are removed and new segments are put beside them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from provision.formulations.search.segments import Segments, best_segments
from provision.heuristics.parvagpu.parvagpu import demand_matching, optimize, relocated
from provision.models.base.errors import UnsupportedError
from provision.models.hardware.geometry import Geometry, State
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance

Segment = tuple[int, int]
"""The indices (slice type, workload) of a segment."""


@dataclass
class StandingGpu:
    """A GPU and its segments, by the start of their slices."""

    at: dict[int, Segment] = field(default_factory=dict)

    @property
    def segments(self) -> list[Segment]:
        """The segments on the GPU, in the order of their starts."""
        return [self.at[start] for start in sorted(self.at)]


class Standing:
    """GPUs whose segments keep their starts; a new segment is put on the fullest GPU with room for it."""

    def __init__(self, segments: Segments, geometry: Geometry, gpus: list[StandingGpu]) -> None:
        self.slice_types, self.geometry, self.gpus = segments.slice_types, geometry, gpus

    def place(self, slice_type: int, workload: int) -> None:
        """Put a segment on the fullest GPU with room for it, the first among equals; if there is none, on a new GPU."""
        for gpu in sorted(self.gpus, key=self._left):
            start = self._start(gpu, slice_type)
            if start is not None:
                break
        else:
            gpu = StandingGpu()
            self.gpus.append(gpu)
            start = self._start(gpu, slice_type)
        assert start is not None, "an empty GPU takes any segment"
        gpu.at[start] = slice_type, workload

    def remove(self, gpu: StandingGpu, segment: Segment) -> None:
        """Remove a segment from a GPU, which stays open for other segments."""
        del gpu.at[next(start for start, one in gpu.at.items() if one == segment)]

    def _left(self, gpu: StandingGpu) -> int:
        return -sum(self.slice_types[slice_type].compute for slice_type, _ in gpu.at.values())

    def _start(self, gpu: StandingGpu, slice_type: int) -> int | None:
        """The start of a slice on a GPU that leaves the most room for further slices; None if there is no room."""
        sizes = [self.slice_types[one].compute for one, _ in gpu.segments] + [self.slice_types[slice_type].compute]
        if sizes.count(3) > 1:
            return None
        now: State = tuple(sorted((start, one) for start, (one, _) in gpu.at.items()))
        after = [state for state in self.geometry.moves[now] if self._added(now, state)[1] == slice_type]
        if not after:
            return None
        return self._added(now, max(after, key=lambda state: len(self.geometry.moves[state])))[0]

    @staticmethod
    def _added(now: State, after: State) -> tuple[int, int]:
        [one] = set(after) - set(now)
        return one


NAME = "parvagpu"
FULL = 1 - 1e-9
"""The least fraction of a rate that segments must carry."""


def reconfigured(instance: Instance, before: Plan) -> Plan:
    """The plan to which ParvaGPU changes if the SLOs or rates of some services differ from the running plan's.

    Parameters
    ----------
    instance
        The instance with the new SLOs and rates.
    before
        The running plan: isolated segments on the GPUs of one fleet entry with MIG.

    Raises
    ------
    UnsupportedError
        If the plan is not of this kind, the instance has several fleet entries or no MIG, or a service cannot be
        served.
    """
    segments = best_segments(instance)
    geometry = segments.geometry(instance, 0) if len(instance.fleet) == 1 else None
    if geometry is None:
        raise UnsupportedError("replan with parvagpu needs one fleet entry with MIG; use --method auto")
    standing = list(_standing(instance, segments, before))
    moved = _changed(instance, segments, before, standing)
    for gpu in standing:
        gpu.at = {start: one for start, one in gpu.at.items() if one[1] not in moved}
    anew = [one for one in demand_matching(instance, segments) if one[1] in moved]
    unserved = [instance.workloads[one].name for one in moved if not segments.throughput_rps[one].any()]
    if unserved:
        raise UnsupportedError(f"no slice of {instance.fleet[0].gpu} meets the SLO of {', '.join(unserved)}")
    placed = Standing(segments, geometry, standing)
    relocated(placed, segments, anew)
    compact = Standing(segments, geometry, [StandingGpu(dict(gpu.at)) for gpu in standing])
    optimize(compact, segments)
    best = min(compact, placed, key=lambda one: sum(bool(gpu.at) for gpu in one.gpus))
    return _plan(instance, segments, best.gpus)


def _standing(instance: Instance, segments: Segments, plan: Plan) -> Iterator[StandingGpu]:
    """Yield the GPUs of a plan with their segments; workloads that the instance lacks are left out."""
    profiles = {one.profile: at for at, one in enumerate(segments.slice_types)}
    index = {one.name: at for at, one in enumerate(instance.workloads)}
    for gpu in plan.gpus:
        if any(len(piece.replicas) != 1 or piece.profile not in profiles for piece in gpu.slices) or not gpu.mig:
            raise UnsupportedError("replan with parvagpu goes on from plans of isolated segments; use --method auto")
        yield StandingGpu({
            piece.start: (profiles[piece.profile], index[piece.replicas[0].workload])
            for piece in gpu.slices if piece.replicas[0].workload in index
        })


def _changed(instance: Instance, segments: Segments, before: Plan, standing: list[StandingGpu]) -> set[int]:
    """The workloads whose segments are not those that the configurator would choose for their sizes, or that carry less
    than the rate.
    """
    carried: Counter[int] = Counter()
    for gpu in standing:
        for slice_type, workload in gpu.at.values():
            carried[workload] += segments.throughput_rps[workload, slice_type]
    short = {at for at, one in enumerate(instance.workloads) if carried[at] < FULL * instance.planned_rps(one)}
    short |= set(range(len(instance.workloads))) - set(carried)
    running = Counter(_running(one) for *_, one in before.replicas())
    wanted = Counter(_running(_replica(instance, segments, *one)) for gpu in standing for one in gpu.at.values())
    index = {one.name: at for at, one in enumerate(instance.workloads)}
    return short | {index[name] for name, *_ in (running - wanted) if name in index}


def _running(replica: Replica) -> tuple[str, str | None, int, int]:
    return replica.workload, replica.model, replica.batch, replica.processes


def _replica(instance: Instance, segments: Segments, slice_type: int, workload: int, rate_rps: float = 0.0) -> Replica:
    """The replica of a segment."""
    at, one = (workload, slice_type), instance.workloads[workload]
    return Replica(workload=one.name, batch=int(segments.batch[at]), processes=int(segments.processes[at]),
                   rate_rps=rate_rps, model=one.named(int(segments.model[at])))


def _plan(instance: Instance, segments: Segments, gpus: list[StandingGpu]) -> Plan:
    """The plan of the GPUs; the replicas of a workload carry its rate in proportion to their throughputs."""
    most: Counter[int] = Counter()
    for gpu in gpus:
        for slice_type, workload in gpu.at.values():
            most[workload] += segments.throughput_rps[workload, slice_type]

    def rate_rps(slice_type: int, workload: int) -> float:
        planned = instance.planned_rps(instance.workloads[workload])
        return float(planned * segments.throughput_rps[workload, slice_type] / most[workload])

    entry = instance.fleet[0]
    return instance.plan_of(NAME, [
        PlannedGpu(gpu=entry.gpu, mig=True, slices=tuple(
            Slice(profile=segments.slice_types[one[0]].profile, start=start,
                  replicas=(_replica(instance, segments, *one, rate_rps(*one)),))
            for start, one in sorted(gpu.at.items())
        ))
        for gpu in gpus if gpu.at
    ])
