"""A small provision: what the product computes, in the plainest way, for instances of a few workloads.

1. List every way to cut a GPU of each type into slices.
2. List every pattern of each slice type: replicas that keep their SLOs on one slice together, with the requests/s that
   each of them can carry at most.
3. Choose how many GPUs get each partition, and how many slices hold each pattern, by one integer program.
4. Turn the numbers into a plan: slices get their places, replicas their part of the traffic.

Since the program has every pattern, its optimum is the least cost of all plans, and so a bound as well. Nothing here is
fast: a few workloads and operating points are enough to fill the program.

It takes replicas alone on their slice with any performance data, and replicas that share a whole GPU under
interference, where what a replica carries does not depend on the traffic of its neighbours. It refuses all other ways
of sharing, ``max_share_per_gpu`` and language models.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import carried_rps, predict_slice
from provision.models.problem.workload import FleetEntry

SURE = 1e-9
"""The relative difference between a rate and what replicas carry that rounding may cause."""
NAME = "small"

SliceType = tuple[int, str]
"""The fleet entry of the GPU, and the MIG profile (or ``whole``)."""
Partition = tuple[int, tuple[str, ...]]
"""The fleet entry, and the profiles of all slices."""


@dataclass(frozen=True)
class Pattern:
    """Replicas on one slice, without traffic, and the requests/s that each can carry at most."""

    slice_type: SliceType
    replicas: tuple[Replica, ...]
    rps: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """The least cost (or the most throughput) of all plans, and a plan that attains it; both None if there is no plan.
    """

    value: float | None
    plan: Plan | None


def solve(instance: Instance) -> Answer:
    """Plan an instance optimally.

    Raises
    ------
    ValueError
        If the instance asks for what this solver does not know.
    """
    _check(instance)
    partitions = [(entry, cut) for entry, one in enumerate(instance.fleet) for cut in partitions_of(one)]
    slice_types = sorted({(entry, profile) for entry, cut in partitions for profile in cut})
    patterns = [one for slice_type in slice_types for one in patterns_of(instance, slice_type)]
    numbers = _program(instance, partitions, patterns)
    if numbers is None:
        return Answer(None, None)
    gpus, slices = np.split(numbers, [len(partitions)])
    plan = _plan(instance, _repeated(partitions, gpus), _repeated(patterns, slices))
    return Answer(float(objective_of(instance).value(plan)), plan)


def _check(instance: Instance) -> None:
    policy = instance.policy
    if policy.share_slices or policy.survive or policy.even_replicas or instance.workflows:
        raise ValueError("the small solver knows no shared MIG slices, losses, even replicas and workflows")
    if any(one.max_share_per_gpu < 1 or one.tokens for one in instance.workloads):
        raise ValueError("the small solver knows no shares per GPU and language models")
    if any(data.kind not in ("measured-segments", "igniter", "colocation") for data in instance.performance):
        raise ValueError("the small solver knows measured segments, igniter's data and co-location data")


# 1. Partitions


def partitions_of(entry: FleetEntry) -> list[tuple[str, ...]]:
    """Every way to cut a GPU, as the sorted profiles of its slices. Cuts to which a slice can be added are left out."""
    if not entry.partitioned:
        return [(WHOLE,)]
    cuts = {tuple(sorted(profile for profile, _ in placed)) for placed in _placements(entry, 0)}
    return sorted(cut for cut in cuts if cut and not any(_more(other, cut) for other in cuts))


def _placements(entry: FleetEntry, start: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield every placement of slices, as (profile, start), on the memory slices from ``start`` on."""
    yield ()
    for at in range(start, entry.type.mig.memory_slices):
        for profile in entry.type.profiles.values():
            if profile.variant == "plain" and at in profile.starts:
                for rest in _placements(entry, at + profile.memory):
                    yield ((profile.name, at), *rest)


def _more(larger: tuple[str, ...], cut: tuple[str, ...]) -> bool:
    """Whether a cut has all slices of another one and further ones."""
    return larger != cut and not Counter(cut) - Counter(larger)


# 2. Patterns


def patterns_of(instance: Instance, slice_type: SliceType) -> list[Pattern]:
    """Every pattern of a slice type.

    A neighbour never speeds a replica up, so a pattern is only enlarged if its replicas keep their SLOs.
    """
    entry, profile = instance.fleet[slice_type[0]], slice_type[1]
    single = [replica for data in instance.performance if data.gpu == entry.gpu
              for replica in _replicas(instance, entry, profile, data)]
    most = _clients(entry, profile) if any(data.divides_sms for data in instance.sharing_files(entry.gpu)) else 1
    found, grown = list[Pattern](), [((), 0)]
    while grown:
        replicas, first = grown.pop()
        for at in range(first, len(single)):
            larger = (*replicas, single[at])
            if len(larger) > 1 and sum(one.sm_share for one in larger) > 1 + SURE:
                continue
            rps = _carried(instance, entry, profile, larger)
            if rps:
                found.append(Pattern(slice_type, larger, rps))
                if len(larger) < most and profile == WHOLE:
                    grown.append((larger, at))
    return found


def _replicas(instance: Instance, entry: FleetEntry, profile: str, data) -> Iterator[Replica]:
    """Yield a replica for every workload and operating point of its data."""
    for workload in instance.workloads:
        for model in workload.models:
            if model not in data.models:
                continue
            points = data.operating_points(model, profile)
            shares = np.broadcast_to(points.sm_share, points.batch.shape)
            for batch, processes, share in zip(points.batch, points.processes, shares, strict=True):
                if processes <= _clients(entry, profile) and (entry.mps or not data.divides_sms or share > 1 - SURE):
                    yield Replica(workload=workload.name, batch=int(batch), processes=int(processes),
                                  sm_share=float(share), rate_rps=0.0,
                                  model=None if model == workload.model else model)


def _clients(entry: FleetEntry, profile: str) -> int:
    return entry.type.slice_mps_clients(profile) if entry.mps else 1


def _carried(instance: Instance, entry: FleetEntry, profile: str, replicas: tuple[Replica, ...]) -> tuple[float, ...]:
    """The requests/s that replicas can carry together on one slice; empty if one of them cannot keep its SLO."""
    told = predict_slice(instance, entry.gpu, Slice(profile=profile, replicas=replicas))
    rps = list[float]()
    for replica, prediction in zip(replicas, told, strict=True):
        budget_ms = instance.budget_ms(instance.workload[replica.workload])
        if prediction is None or prediction.latency_ms > budget_ms * (1 + SURE):
            return ()
        rps.append(carried_rps(instance, replica, prediction))
    memory_gib = sum(one.memory_gib or 0.0 for one in told if one)
    return tuple(rps) if min(rps) > 0 and memory_gib <= entry.type.slice_memory_gib(profile) else ()


# 3. The program


def _program(instance: Instance, partitions: list[Partition], patterns: list[Pattern]) -> np.ndarray | None:
    """The best numbers of GPUs with each partition and of slices with each pattern, in this order; None if there are
    none.

        slices     slices of a type in the partitions  >=  patterns on them
        rates      sum of what patterns carry of a workload, each at most its rate  >=  its rate
        replicas   min_replicas  <=  replicas of a workload  <=  max_replicas
        fleet      GPUs of an entry  <=  its count
    """
    rows, least, most = list[np.ndarray](), list[float](), list[float]()

    def row(of_partition, of_pattern, low: float, high: float) -> None:
        rows.append(np.array([*map(of_partition, partitions), *map(of_pattern, patterns)], float))
        least.append(low)
        most.append(high)

    for slice_type in {one.slice_type for one in patterns}:
        row(lambda cut, kind=slice_type: Counter((cut[0], profile) for profile in cut[1])[kind],
            lambda one, kind=slice_type: -(one.slice_type == kind), 0, np.inf)
    for workload in instance.workloads:
        rate, name = instance.planned_rps(workload), workload.name
        row(lambda cut: 0, lambda one, name=name, rate=rate: min(_of(one, name), rate), rate * (1 - SURE), np.inf)
        row(lambda cut: 0, lambda one, name=name: sum(replica.workload == name for replica in one.replicas),
            workload.min_replicas, np.inf if workload.max_replicas is None else workload.max_replicas)
    for at, entry in enumerate(instance.fleet):
        if entry.count is not None:
            row(lambda cut, at=at: cut[0] == at, lambda one: 0, 0, entry.count)
    cost = [objective_of(instance).weight(instance.fleet[entry]) for entry, _ in partitions] + [0.0] * len(patterns)
    if instance.objective == THROUGHPUT:
        cost = [0.0] * len(partitions) + [-sum(one.rps) for one in patterns]
    found = milp(cost, integrality=np.ones(len(cost)), bounds=Bounds(0, np.inf),
                 constraints=LinearConstraint(np.array(rows), least, most), options={"mip_rel_gap": 0.0})
    return None if found.x is None else np.rint(found.x).astype(int)


def _of(pattern: Pattern, workload: str) -> float:
    """The requests/s that a pattern carries of a workload."""
    return sum(rps for replica, rps in zip(pattern.replicas, pattern.rps, strict=True) if replica.workload == workload)


def _repeated(what: list, numbers: np.ndarray) -> list:
    return [one for one, many in zip(what, numbers.tolist(), strict=True) for _ in range(many)]


# 4. The plan


def _plan(instance: Instance, gpus: list[Partition], patterns: list[Pattern]) -> Plan:
    """The plan of the chosen partitions and patterns. A workload's rate is divided among its replicas in proportion to
    what they can carry. Slices without a pattern stay empty, and GPUs without one are left out.
    """
    carried = {one.name: sum(_of(pattern, one.name) for pattern in patterns) for one in instance.workloads}
    waiting = defaultdict(list)
    for pattern in patterns:
        routed = [replica.model_copy(update={"rate_rps": instance.planned_rps(instance.workload[replica.workload])
                                             * rps / carried[replica.workload]})
                  for replica, rps in zip(pattern.replicas, pattern.rps, strict=True)]
        waiting[pattern.slice_type].append(tuple(routed))
    planned = []
    for entry, cut in gpus:
        slices = [Slice(profile=profile, start=start, replicas=waiting[entry, profile].pop())
                  for profile, start in _placed(instance.fleet[entry], cut) if waiting[entry, profile]]
        if slices:
            fleet = instance.fleet[entry]
            planned.append(PlannedGpu(gpu=fleet.gpu, mig=fleet.partitioned, slices=tuple(slices)))
    return instance.plan_of(NAME, planned)


def _placed(entry: FleetEntry, cut: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """A placement of the slices of a cut, as (profile, start)."""
    if not entry.partitioned:
        return ((WHOLE, 0),)
    return next(placed for placed in _placements(entry, 0) if tuple(sorted(profile for profile, _ in placed)) == cut)
