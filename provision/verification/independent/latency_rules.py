"""The rules of latency: for random arrivals a percentile of the replayed latency, waiting included, within the SLO
times safety; without them half of the SLO for a batch, or only full batches; and replays of even arrivals.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .kinds import networks
from .kinds.service import data_for, services
from .nvidia import part_of_sms
from .records import Instance, PlannedGpu, UndecidedError, Workload
from .replays.arrivals import arrival_times, calmed
from .replays.late import Counts, Late, judged
from .replays.queues import batched
from .servers import Server, answered

Floats = NDArray[np.float64]

FIRST_REQUESTS = 2**14
WARM_UP = 0.05
"""The fraction of every replay's requests that is not counted, because queues are empty at the start."""
LOWER_RATES = (0.75, 0.4, 0.1)
"""The fractions of the rates at which a plan is also replayed, because it must hold with fewer requests too."""
ROUNDING = 1e-6
"""The relative tolerance of times and rates, because files round them."""


@dataclass(frozen=True)
class Found:
    """The result of replays of a workload or workflow at a fraction of the planned rates.

    If ``bounded``, the replays used upper bounds on batch times, which can only show that a plan holds.
    """

    name: str
    limit_ms: float
    percentile: float
    at_rate: float
    late: Late
    how: str
    bounded: bool = False

    @property
    def verdict(self) -> str:
        """"holds", "violated" or "not decided"."""
        return "not decided" if self.bounded and self.late.verdict == "violated" else self.late.verdict

    @property
    def message(self) -> str:
        """The result as a sentence."""
        where = "" if self.at_rate == 1 else f" at {self.at_rate:.0%} of the rate"
        return (f"{self.name}: {self.late.part:.3%} of requests over {self.limit_ms:.6g} ms{where} "
                f"({self.late.low:.3%} to {self.late.high:.3%}, allowed {self.late.allowed:.3%}, {self.how})")


def judge_random(instance: Instance, servers: list[Server], rates: Floats, budget_s: float) -> list[Found]:
    """Replay one workload at the rates of its servers and at LOWER_RATES. Return the result at the full rates, and
    those at lower rates that do not hold.

    If replicas share slices, upper bounds on their batch times are tried first. If the bounds do not show that the plan
    holds, the replicas are replayed together with the others on the slice.
    """
    workload = instance.workloads[servers[0].replica.workload]
    found = [_at(instance, workload, servers, rates, 1.0, budget_s)]
    for part in LOWER_RATES:
        lower = _at(instance, workload, servers, rates, part, budget_s / 4)
        if lower.verdict != "holds":
            found.append(lower)
    return found


def _at(instance: Instance, workload: Workload, servers: list[Server], rates: Floats, part: float,
        budget_s: float) -> Found:
    shared = any(one.shared for one in servers)
    beside = any(len(one.piece.replicas) > 1 for one in servers)
    how = "replayed, neighbours active throughout" if beside else "replayed"
    first = _replayed(instance, workload, servers, rates, part, budget_s, False, how)
    if not shared or first.late.verdict == "holds":
        return first
    if workload.routing == "least_loaded" and len(servers) > 1:
        raise UndecidedError(f"{workload.name}: least-loaded replicas that share slices are not replayed together")
    return _replayed(instance, workload, servers, rates, part, budget_s, True, "replayed with the others on the slice")


def _replayed(instance: Instance, workload: Workload, servers: list[Server], rates: Floats, part: float,
              budget_s: float, exactly: bool, how: str) -> Found:
    limit_ms = workload.slo_ms * instance.policy.safety
    rate_rps = float(rates.sum()) * part

    def replay(seed: int, requests: int) -> Counts:
        rng = np.random.default_rng([seed, int(exactly), int(1000 * part)])
        arrived = calmed(arrival_times(workload.arrivals, rate_rps, requests, rng), limit_ms)
        ended = answered(instance, servers, rates, arrived, rng, exactly)
        counted = slice(int(WARM_UP * len(arrived)), None)
        late = (ended - arrived)[counted] > limit_ms * (1 + ROUNDING)
        return [(int(late.sum()), len(late))]

    (late,) = judged(replay, [1 - workload.percentile / 100], FIRST_REQUESTS, budget_s)
    return Found(workload.name, limit_ms, workload.percentile, part, late, how)


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
