"""The replicas of a workload as servers that can be replayed, each with the replicas that share its slice."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .kinds import gpulets, networks
from .kinds.service import Service, data_for, kind_of, services
from .records import Instance, PlannedGpu, Replica, Slice, Workload
from .replays.arrivals import arrival_times, dealt
from .replays.queues import batched, least_loaded, shared, turns

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Server:
    """One replica: its slice and its index there, its batch times, and how long a batch waits to fill, in ms.

    ``sharers`` are the indices of the replicas that take turns with it or share a MIG slice with it. It is among them
    itself.
    """

    piece: Slice
    at: int
    service: Service
    delay_ms: float
    sharers: tuple[int, ...]

    @property
    def replica(self) -> Replica:
        """The replica of this server."""
        return self.piece.replicas[self.at]

    @property
    def in_turns(self) -> bool:
        """Whether the replica takes turns with others."""
        return self.replica.turn is not None

    @property
    def shared(self) -> bool:
        """Whether the batch times depend on the requests that other replicas have at the time."""
        return len(self.sharers) > 1


def servers_of(instance: Instance, plan: Iterable[PlannedGpu], delay_by: str) -> dict[str, list[Server]]:
    """All replicas as servers, by workload. ``delay_by`` is as for `judge`. Raises UndecidedError if the performance
    data does not describe the replicas of a slice.
    """
    found: dict[str, list[Server]] = {}
    for gpu in plan:
        for piece in gpu.slices:
            if not piece.replicas or kind_of(data_for(instance.performance, piece)).language:
                continue
            for at, service in enumerate(services(instance.performance, piece)):
                workload = instance.workloads[piece.replicas[at].workload]
                together = sharers(instance, piece, at)
                delay = _delay_ms(instance, piece.replicas[at], workload, service, len(together) > 1, delay_by)
                found.setdefault(workload.name, []).append(Server(piece, at, service, delay, together))
    return found


def sharers(instance: Instance, piece: Slice, at: int) -> tuple[int, ...]:
    """The indices of the replicas whose activity determines how fast a replica's batches are, the replica itself
    included.
    """
    kind = kind_of(data_for(instance.performance, piece))
    if kind.turns:
        return next(tuple(members) for members in gpulets.parts(piece).values() if at in members)
    return tuple(range(len(piece.replicas))) if kind.together else (at,)


def _delay_ms(instance: Instance, replica: Replica, workload: Workload, service: Service, together: bool,
              delay_by: str) -> float:
    """How long a batch waits to fill, in ms: the latency budget minus the batch time."""
    rule, safety = instance.policy.rule, instance.policy.safety
    if rule == "full_batches":
        return float("inf")
    if replica.turn is not None:
        return 0.0
    whole_ms = workload.slo_ms * safety
    taken_ms = service.longest_ms if delay_by == "longest" else float(service.answer_ms[-1])
    if rule == "queueing":
        return max(whole_ms - taken_ms, 0.0)
    return whole_ms / 2 if together else max(whole_ms / 2 - taken_ms, 0.0)


def answered(instance: Instance, servers: list[Server], weights: Floats, arrived: Floats, rng: np.random.Generator,
             exactly: bool) -> Floats:
    """(requests,) when the requests of a workload are answered, in ms; each request is routed to one of the servers.

    If ``exactly``, servers that share a slice or take turns are replayed together with the other replicas there, whose
    requests arrive at their planned rates. Otherwise, upper bounds on batch times are used, which hold whatever the
    others do.
    """
    workload = instance.workloads[servers[0].replica.workload]
    if workload.routing == "least_loaded" and len(servers) > 1:
        return _least_loaded(instance, servers, weights, arrived)
    who = dealt(len(arrived), weights, workload.routing, rng)
    ended = np.empty(len(arrived))
    for index, server in enumerate(servers):
        mine = np.flatnonzero(who == index)
        if len(mine) == 0:
            continue
        own = arrived[mine]
        if server.shared and exactly:
            ended[mine] = _together(instance, server, own, rng)
        else:
            answer, hold = bounded(instance, server)
            ended[mine] = batched(own, answer, hold, server.replica.processes, server.delay_ms)
    return ended


def bounded(instance: Instance, server: Server) -> tuple[Floats, Floats]:
    """Answer times and hold times that no batch exceeds.

    For replicas that take turns: let a cycle be the sum of the longest executions. Imagine a queue that takes one batch
    per cycle. The replica starts every request at most one cycle later than this queue would. So a request is answered
    within one cycle and one batch time after its start in the imagined queue.
    """
    service = server.service
    if not (server.shared and server.in_turns):
        return service.answer_ms, service.hold_ms
    found = services(instance.performance, server.piece)
    cycle = sum(found[at].longest_ms for at in server.sharers)
    return np.full(len(service.answer_ms), cycle + service.longest_ms), np.full(len(service.hold_ms), cycle)


def _least_loaded(instance: Instance, everyone: list[Server], routed: Floats, arrived: Floats) -> Floats:
    """When requests are answered, in ms, if each goes to the replica with the fewest requests per routed rate."""
    servers, weights = [one for one, rate in zip(everyone, routed, strict=True) if rate > 0], routed[routed > 0]
    sizes = np.array([one.replica.batch for one in servers])
    times = [bounded(instance, one) for one in servers]
    answer, hold = (np.zeros((len(servers), sizes.max())) for _ in range(2))
    for row, (first, second) in enumerate(times):
        answer[row, : len(first)], hold[row, : len(second)] = first, second
    processes = np.array([one.replica.processes for one in servers])
    return least_loaded(arrived, answer, hold, sizes, processes, np.array([one.delay_ms for one in servers]), weights)


def _together(instance: Instance, server: Server, own: Floats, rng: np.random.Generator) -> Floats:
    """Replay a replica together with its sharers. Their requests arrive for as long as its own."""
    everyone = [server.piece.replicas[at] for at in server.sharers]
    end = own[-1]
    streams = [own if at == server.at else _stream(instance, server.piece.replicas[at], end, rng)
               for at in server.sharers]
    arrived = np.concatenate(streams)
    member = np.repeat(np.arange(len(streams)), [len(one) for one in streams])
    order = np.argsort(arrived, kind="stable")
    sizes = np.array([one.batch for one in everyone])
    if server.in_turns:
        found = services(instance.performance, server.piece)
        times = _rows([found[at].answer_ms for at in server.sharers])
        ended = turns(arrived[order], member[order], times, sizes)
    else:
        ended = _shared(instance, server, everyone, arrived[order], member[order], sizes)
    return ended[member[order] == server.sharers.index(server.at)]


def _shared(instance: Instance, server: Server, everyone: list[Replica], arrived: Floats, member: NDArray[np.int64],
            sizes: NDArray[np.int64]) -> Floats:
    data = data_for(instance.performance, server.piece)
    works = [networks.work_ms(data, server.piece, one, sum(each.processes for each in everyone)) for one in everyone]
    owner = np.repeat(np.arange(len(everyone)), [one.processes for one in everyone])
    all_services = services(instance.performance, server.piece)
    delays = [_delay_ms(instance, one, instance.workloads[one.workload], service, True, "longest")
              for one, service in zip(everyone, all_services, strict=True)]
    delays[server.sharers.index(server.at)] = server.delay_ms
    return shared(arrived, member, _rows([host for host, _ in works]), _rows([work for _, work in works]), sizes,
                  owner, np.array(delays))


def _rows(rows: list[Floats]) -> Floats:
    """Rows of different lengths as one array, padded with zeros."""
    found = np.zeros((len(rows), max(map(len, rows))))
    for at, row in enumerate(rows):
        found[at, : len(row)] = row
    return found


def _stream(instance: Instance, replica: Replica, end_ms: float, rng: np.random.Generator) -> Floats:
    """The arrival times of another replica's requests until ``end_ms``, at the rate that is routed to it."""
    workload = instance.workloads[replica.workload]
    if replica.rate_rps <= 0:
        return np.empty(0)
    many = int(end_ms * replica.rate_rps / 1000 * 1.2) + 20
    process = workload.arrivals if instance.policy.rule == "queueing" else {"process": "renewal", "cv": 0}
    times = arrival_times(process, replica.rate_rps, many, rng)
    return times[times <= end_ms]
