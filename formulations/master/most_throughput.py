"""Most throughput on a fixed fleet: a bound for every way of sharing, and replicas for GPUs that a plan leaves idle.

No slice carries more than its best content, no GPU more than its best partition: the sum over all GPUs of the fleet is
an upper bound, whatever else must be served. A replica whose throughput lies between two rates of its class's grid has
the role of the lower one and counts with the upper one.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from provision.models.contents.network.oracle import NetworkOracle
from provision.models.contents.oracle import Content, ContentOracle
from provision.models.contents.problem import Problem
from provision.models.hardware.geometry import geometry
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

STEPS_PER_RPS = 16
"""Whole-number worth of a request/s."""
LOOSE = 1 + 1e-8
"""The factor on throughput in bounds, which covers more than the verifier's tolerances."""
EFFORT = 1
"""How hard the oracles look for the best content."""


def throughput_bound(problem: Problem) -> float:
    """Most requests/s that all replicas on the fleet could carry together; every supply must have a count."""
    values = np.ceil(np.array([role.upto_rps for role in problem.roles]) * STEPS_PER_RPS).astype(np.int64)
    best = problem.segments.throughput_rps.max(axis=0, initial=0.0)
    for kind, oracles in problem.oracles.items():
        for oracle in oracles:
            best[kind] = max(best[kind], oracle.price(values, 0, EFFORT).most / STEPS_PER_RPS)
    return LOOSE * sum(float((supply.partitions @ best).max()) * (supply.count or 0) for supply in problem.supplies)


def filled(problem: Problem, plan: Plan) -> Plan:
    """A plan extended to all GPUs of the fleet: idle ones get the contents that carry most, as far as limits allow."""
    used = Counter((gpu.gpu, gpu.mig) for gpu in plan.gpus)
    places = _Places(problem, plan)
    added: list[PlannedGpu] = []
    for supply in problem.supplies:
        rps, contents = _best_contents(problem, supply.kinds)
        partition = supply.partitions[int((supply.partitions @ rps).argmax())]
        for _ in range((supply.count or 0) - used[supply.gpu, supply.mig]):
            slices = tuple(_slices(problem, supply.entry, supply.kinds, partition, contents, places))
            if slices:
                added.append(PlannedGpu(gpu=supply.gpu, mig=supply.mig, slices=slices))
    return plan.model_copy(update={"gpus": (*plan.gpus, *added)})


class _Places:
    """How many more replicas each workload may have."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        held = Counter(replica.workload for _, _, _, replica in plan.replicas())
        self.left = [np.inf if one.max_replicas is None else one.max_replicas - held[one.name]
                     for one in problem.instance.workloads]

    def take(self, candidates: list[int]) -> int | None:
        """A workload of these that may have another replica; None when none may."""
        chosen = next((one for one in candidates if self.left[one] > 0), None)
        if chosen is not None:
            self.left[chosen] -= 1
        return chosen


def _best_contents(problem: Problem, kinds: tuple[int, ...]
                   ) -> tuple[NDArray[np.float64], dict[int, tuple[ContentOracle, Content]]]:
    """(kinds,) requests/s that a slice carries in plans, and the shared contents that carry more than one replica."""
    rps = problem.segments.throughput_rps.max(axis=0, initial=0.0)
    rates = np.array([role.rate_rps for role in problem.roles])
    found: dict[int, tuple[ContentOracle, Content]] = {}
    for kind in kinds:
        for oracle in problem.oracles.get(kind, []):
            for content in oracle.price((rates * STEPS_PER_RPS).astype(np.int64), 0, EFFORT).contents:
                if rates[list(content)].sum() > rps[kind]:
                    rps[kind], found[kind] = rates[list(content)].sum(), (oracle, content)
    return rps, found


def _slices(problem: Problem, entry: int, kinds: tuple[int, ...], partition: NDArray[np.int64],
            contents: dict[int, tuple[ContentOracle, Content]], places: _Places) -> Iterator[Slice]:
    """The slices of one more GPU, each with the content that carries most."""
    fleet = problem.instance.fleet[entry]
    names = [problem.segments.kinds[kind].profile for kind in kinds]
    state = geometry(fleet.type, names).place(partition[list(kinds)].tolist()) if fleet.partitioned else ((0, 0),)
    for start, local in state or ():
        kind = kinds[local]
        replicas = _shared(problem, *contents[kind], places) if kind in contents else ()
        if not replicas:
            replicas = _alone(problem, kind, places)
        if replicas:
            yield Slice(profile=names[local], start=start, replicas=replicas)


def _shared(problem: Problem, oracle: ContentOracle, content: Content, places: _Places) -> tuple[Replica, ...]:
    """Replicas of a content for workloads that may have more.

    Where batch times depend on rates the replicas are routed those of their roles; nothing is added there where that
    could exceed a limit per GPU.
    """
    routed = isinstance(oracle, NetworkOracle) and not problem.instance.policy.rule.random_arrivals
    if routed and any(problem.roles[role].workload_class in problem.class_caps_rps for role in content):
        return ()
    found = []
    for role, run in zip(content, oracle.running(content) or (), strict=False):
        members = [member for group in problem.classes[problem.roles[role].workload_class] for member in group.members]
        one = places.take(members)
        if one is not None:
            workload = problem.instance.workloads[one]
            rate_rps = problem.roles[role].rate_rps if routed else 0.0
            found.append(Replica(workload=workload.name, batch=run.batch, processes=run.processes, rate_rps=rate_rps,
                                 sm_share=run.sm_share, turn=run.turn, model=workload.named(run.model)))
    return tuple(found)


def _alone(problem: Problem, kind: int, places: _Places) -> tuple[Replica, ...]:
    """The replica that carries most alone on a slice, of a workload that may have more."""
    segments = problem.segments
    order = np.argsort(-segments.throughput_rps[:, kind], kind="stable")
    one = places.take([int(at) for at in order if segments.throughput_rps[at, kind] > 0])
    if one is None:
        return ()
    workload = problem.instance.workloads[one]
    return (Replica(workload=workload.name, batch=int(segments.batch[one, kind]), rate_rps=0.0,
                    processes=int(segments.processes[one, kind]), model=workload.named(segments.model[one, kind])),)
