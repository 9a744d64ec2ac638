"""The rules without random arrivals (half of the SLO for a batch, or only full batches), and replays of even arrivals.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .kinds import networks
from .kinds.service import data_for, services
from .nvidia import part_of_sms
from .records import Instance, PlannedGpu
from .replays.arrivals import arrival_times
from .replays.queues import batched
from .servers import Server, answered

Floats = NDArray[np.float64]

ROUNDING = 1e-6
"""The relative tolerance of times and rates, because files round them."""
EVEN_REQUESTS = 4096
EVEN_REPLAYS = 3


def carried_rps(instance: Instance, server: Server) -> float:
    """The most requests/s of a replica: full batches one after another or, with temporal sharing, one batch per cycle.
    """
    if server.in_turns:
        return 1000 * server.replica.batch / cycle_ms(instance, server)
    return server.service.throughput_rps(server.replica.processes)


def cycle_ms(instance: Instance, server: Server) -> float:
    """The length of a duty cycle in ms: the sum of the longest executions of all replicas that take turns."""
    found = services(instance.performance, server.piece)
    return sum(found[at].longest_ms for at in server.sharers)


def busy_parts(instance: Instance, plan: tuple[PlannedGpu, ...], servers: dict[str, list[Server]]) -> list[float]:
    """The part of each GPU's SMs that is busy on average: of each replica its part, replicas in turns dividing theirs,
    times its rate over what full batches carry.
    """
    found = [0.0] * len(plan)
    for server in (one for each in servers.values() for one in each):
        piece, replica = server.piece, server.replica
        turns = sum(one.turn == replica.turn for one in piece.replicas) if server.in_turns else 1
        load = min(1.0, replica.rate_rps / carried_rps(instance, server)) * replica.share / turns
        found[piece.gpu] += load * part_of_sms(piece.gpu_type, piece.profile)
    return found


def crowded_faults(instance: Instance, servers: list[Server], routed_rps: list[float]) -> Iterator[str]:
    """Yield a line for every replica to which the plan routes more than full batches carry."""
    for server, rate in zip(servers, routed_rps, strict=True):
        if rate > carried_rps(instance, server) * (1 + ROUNDING) and not _share_slice(server):
            yield (f"{server.replica.workload} ({server.piece.place}): {rate:.6g} requests/s, full batches carry "
                   f"{carried_rps(instance, server):.6g}")


def rule_faults(instance: Instance, servers: list[Server], rates: Floats) -> Iterator[str]:
    """Yield a line for every batch time that exceeds its part of the SLO."""
    for server, rate in zip(servers, rates, strict=True):
        workload = instance.workloads[server.replica.workload]
        place = f"{workload.name} ({server.piece.place})"
        budget_ms = workload.slo_ms * instance.policy.safety
        if instance.policy.rule == "full_batches":
            filling = 1000 * (server.replica.batch - 1) / rate if rate > 0 else float("inf")
            taken, what = filling + float(server.service.answer_ms[-1]), "filling and running a batch take"
        else:
            budget_ms, (taken, what) = budget_ms / 2, _batch_ms(instance, server)
        if taken > budget_ms * (1 + ROUNDING):
            yield f"{place}: {what} {taken:.6g} ms, allowed are {budget_ms:.6g}"


def _share_slice(server: Server) -> bool:
    """Whether the replica shares a MIG slice, where the rate that it carries depends on the others."""
    return server.shared and not server.in_turns


def _batch_ms(instance: Instance, server: Server) -> tuple[float, str]:
    """The longest batch time or, for temporal sharing, half of the sum of cycle and batch time; and its name for
    messages.
    """
    if server.in_turns:
        return (cycle_ms(instance, server) + server.service.longest_ms) / 2, "half of a cycle and a batch take"
    if not _share_slice(server):
        return server.service.longest_ms, "a batch takes"
    piece = server.piece
    fill = [instance.workloads[one.workload].slo_ms * instance.policy.safety / 2 for one in piece.replicas]
    longest = networks.routed_ms(data_for(instance.performance, piece), piece, fill,
                                 instance.objective == "max_throughput")
    return longest[server.at], "a batch takes, at some rates up to the planned ones,"


def even_faults(instance: Instance, servers: list[Server], rates: Floats) -> Iterator[str]:
    """Yield a line for every workload with late requests although requests arrive at even intervals."""
    workload = instance.workloads[servers[0].replica.workload]
    for server, rate in zip(servers, rates, strict=True):
        if rate <= 0:
            continue
        late = max(_late_part(instance, server, float(rate), workload.slo_ms, seed) for seed in range(EVEN_REPLAYS))
        if late > 1 - workload.percentile / 100:
            yield (f"{workload.name} ({server.piece.place}): {late:.2%} of requests that arrive evenly are over "
                   f"{workload.slo_ms:.6g} ms")


def _late_part(instance: Instance, server: Server, rate_rps: float, slo_ms: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    requests = max(EVEN_REQUESTS, 8 * server.replica.batch * server.replica.processes)
    if instance.policy.rule == "full_batches":
        requests -= requests % server.replica.batch  # an incomplete last batch would wait forever
    arrived = arrival_times({"process": "renewal", "cv": 0}, rate_rps, requests, rng)
    if server.shared:
        ended = answered(instance, [server], np.ones(1), arrived, rng, exactly=True)
    else:
        service, replica = server.service, server.replica
        ended = batched(arrived, service.answer_ms, service.hold_ms, replica.processes, server.delay_ms)
    return float(np.mean(ended - arrived > slo_ms * (1 + ROUNDING)))

