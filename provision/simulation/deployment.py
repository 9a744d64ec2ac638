"""Prepares a plan for a replay: the batch times of every slice, and the places of every workload's replicas.

Replays language models. With two pools, requests reach the decode pool together with their KV caches.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan, Slice
from provision.models.plans.simulation_report import SimulationSettings
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import batch_delay_ms, predict_slice
from provision.simulation.kernel import PlannedSlice
from provision.simulation.latencies import BatchTimes, batch_times
from provision.simulation.tokens import Answers, TokenReplica, answered_ns, token_parts, token_replicas


class Place(NamedTuple):
    """Where a replica is: the indices of its slice and of the replica within it; and its fraction of the workload's
    rate.
    """

    slice: int
    replica: int
    share: float


class Deployment(NamedTuple):
    """All slices with replicas, and by workload the Places of its replicas.

    Replicas of language models are not among them. They are the TokenReplicas in ``engines``, by workload.
    """

    slices: tuple[PlannedSlice, ...]
    places: dict[str, list[Place]]
    engines: dict[str, list[TokenReplica]]

    def parts(self, name: str) -> list[float]:
        """The fraction of a workload's requests that each of its replicas gets."""
        if name not in self.engines:
            return [place.share for place in self.places[name]]
        return token_parts(self.engines[name])


def deploy(instance: Instance, plan: Plan) -> Deployment:
    """The Deployment of a plan. Raises InputError if the plan has a workload that the instance lacks, or a replica that
    its performance data does not describe. A plan with other faults is replayed as it is.
    """
    for at, position, _, replica in plan.replicas():
        if replica.workload not in instance.workload:
            names = ", ".join(instance.workload)
            where = f"GPU {at}, slice {position}"
            raise InputError(f"plan: {where}: {replica.workload!r} is no workload of {instance.name}; it has {names}")
    engines = token_replicas(instance, plan)
    known: dict[tuple[object, ...], PlannedSlice] = {}
    slices: list[PlannedSlice] = []
    for at, gpu in enumerate(plan.gpus):
        for piece in gpu.slices:
            if all(one.workload in engines for one in piece.replicas):
                continue
            alike = [
                (one.workload, one.model, one.batch, one.processes, one.sm_share, one.turn) for one in piece.replicas
            ]
            key = (gpu.gpu, piece.profile, *alike)
            if key not in known:
                known[key] = plan_slice(instance, at, gpu.gpu, piece)
            slices.append(known[key]._replace(gpu=at, piece=piece))
    return Deployment(tuple(slices), {name: _places(slices, name) for name in instance.workload}, engines)


def plan_slice(instance: Instance, at: int, gpu: str, piece: Slice) -> PlannedSlice:
    """The PlannedSlice of a slice of GPU ``at``, which has the type ``gpu``."""
    times = batch_times(instance, gpu, piece)
    delays_ms = [
        batch_delay_ms(instance.policy, instance.workload[one.workload], piece, one, latency_ms)
        for one, latency_ms in zip(piece.replicas, _full_ms(instance, gpu, piece, times), strict=True)
    ]
    return PlannedSlice(at, gpu, piece, times, tuple(delays_ms))


def _full_ms(instance: Instance, gpu: str, piece: Slice, times: BatchTimes) -> list[float]:
    """The latencies in ms by which the policy judges replicas: those of full batches with all processes busy."""
    random = instance.policy.rule.random_arrivals
    if random or times.stages > 1 or any(one.turn is not None for one in piece.replicas):
        return [found.latency_ms for found in predict_slice(instance, gpu, piece) if found is not None]
    return [times.latency_ms[-1, index, one.batch] for index, one in enumerate(piece.replicas)]


def _places(slices: Sequence[PlannedSlice], name: str) -> list[Place]:
    """The Places of a workload's replicas. They have equal shares if the plan routes no rate to any of them."""
    found = [
        (index, at, replica.rate_rps)
        for index, planned in enumerate(slices)
        for at, replica in enumerate(planned.piece.replicas)
        if replica.workload == name
    ]
    total = sum(rate for *_, rate in found)
    return [Place(index, at, rate / total if total else 1 / len(found)) for index, at, rate in found]


Times = tuple["Ints", "Ints"]
"""The arrival times of requests, and the times of their last answers, in whole nanoseconds."""


def answers_of_all(instance: Instance, deployment: Deployment, settings: SimulationSettings,
                   arriving_ns: Sequence[Ints], owners: Mapping[str, Ints],
                   streams: Sequence[np.random.Generator]) -> tuple[dict[int, Answers], dict[int, Times]]:
    """Replay the requests of all language models that have replicas, and of workflows with two pools.

    Parameters
    ----------
    instance, deployment, settings
        The Instance, the Deployment of the plan, the SimulationSettings.
    arriving_ns
        The arrivals of every workload. Those of decode pools are not yet known.
    owners
        By workload, the replica of each request, in the order of arrival.
    streams
        The random number generator of every workload.

    Returns
    -------
    dict
        The Answers by index of the workload.
    dict
        The Times by index of the workflow, for workflows with two pools.
    """  # fmt: skip
    index = {name: at for at, name in enumerate(instance.workload)}
    second = {name for flow in instance.workflows for name in flow.order[1:]}

    def answers(name: str, times_ns: Ints, prompt: Ints | None = None) -> Answers:
        tokens = instance.workload[name].tokens
        assert tokens is not None
        return answered_ns(deployment.engines[name], tokens, times_ns, owners[name], settings, streams[index[name]],
                           prompt)

    found = {index[name]: answers(name, arriving_ns[index[name]])
             for name, engines in deployment.engines.items() if engines and name not in second}
    passed: dict[int, Times] = {}
    for number, flow in enumerate(instance.workflows):
        first, last = flow.order[0], flow.order[-1]
        if instance.workload[first].tokens:
            prefilled = found[index[first]]
            done_ns = prefilled.arrived_ns + prefilled.took_ns[-1]
            order = np.argsort(done_ns, kind="stable")
            decoded = found[index[last]] = answers(last, done_ns[order], prefilled.prompt[order])
            passed[number] = (prefilled.arrived_ns[order][decoded.at], decoded.arrived_ns + decoded.took_ns[-1])
    return found, passed
