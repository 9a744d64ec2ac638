"""Routes requests as nginx's ``least_conn`` does: to the replica with the fewest requests, waiting and running, per
weight; of several, to the one that is due by weighted round robin.

The router sees the queues of replicas whose batches take as long as with all processes of their slices busy. That is
exact for replicas with one process and a slice of their own, and their queues are seen too long otherwise.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.performance.gpulets import gpulets_of
from provision.models.plans.simulation_report import SimulationSettings
from provision.models.traffic.arrivals import in_turns
from provision.simulation.deployment import Deployment, Place
from provision.simulation.kernel import FOREVER, NS_PER_MS


class Servers(NamedTuple):
    """The replicas of a workload: (replicas,) batch sizes, processes and queue delays; (replicas, largest batch + 1),
    how long batches of each size hold their process, in ns.
    """

    batch: Ints
    processes: Ints
    delay_ns: Floats
    hold_ns: Floats


def servers_of(deployment: Deployment, places: Sequence[Place], settings: SimulationSettings) -> Servers:
    """The replicas at these places as the router sees them. A replica that takes turns has one batch per cycle."""
    rows, batches, processes, delays_ns = [], [], [], []
    for place in places:
        planned = deployment.slices[place.slice]
        several, table = planned.piece.replicas, planned.times.hold_ms[-1] * settings.service_factor * NS_PER_MS
        replica = several[place.replica]
        busy = np.array([table[at :: len(several)].sum(axis=0) for at in range(len(several))])
        row = busy[place.replica, : replica.batch + 1].copy()
        if replica.turn is not None:
            [ring] = [part for part in gpulets_of(several) if place.replica in part]
            row[:] = sum(busy[at, several[at].batch] for at in ring)
        delay_ms = planned.delays_ms[place.replica] if settings.max_delay_ms is None else settings.max_delay_ms
        rows.append(row)
        batches.append(replica.batch)
        processes.append(replica.processes)
        delays_ns.append(min(delay_ms * NS_PER_MS, FOREVER / 4))
    hold_ns = np.zeros((len(rows), max(map(len, rows))))
    for at, row in enumerate(rows):
        hold_ns[at, : len(row)] = row
    return Servers(np.array(batches), np.array(processes), np.array(delays_ns), hold_ns)


def one_by_one(times_ns: Ints, parts: Sequence[float]) -> Servers:
    """Stand-ins for the replicas of a language model, whose queues the router cannot compute from batch times.

    Each answers its requests one by one, at the mean rate of the arrivals times its part.

    Parameters
    ----------
    times_ns
        Arrival times in ns, ascending, (requests,).
    parts
        The part of the requests that each replica is planned to get.
    """
    each_ns = (times_ns[-1] - times_ns[0]) / len(times_ns) / np.maximum(parts, 1e-9)
    ones = np.ones(len(parts), np.int64)
    return Servers(ones, ones, np.zeros(len(parts)), np.column_stack([each_ns, each_ns]))


def by_fewest(times_ns: Ints, parts: Sequence[float], servers: Servers) -> Ints:
    """The indices of the replicas of all requests, (requests,).

    Parameters
    ----------
    times_ns
        Arrival times in ns, ascending, (requests,); if all are the same, requests are dealt by weighted round robin.
    parts
        The weights of the replicas; a replica with weight 0 gets no request.
    servers
        The replicas.
    """
    if len(times_ns) < 2 or times_ns[-1] == times_ns[0]:
        return in_turns(len(times_ns), parts)
    return _routed(times_ns, np.array(parts, float), *servers)


@compiled
def _routed(times_ns: Ints, weight: Floats, batch: Ints, processes: Ints, delay_ns: Floats, hold_ns: Floats) -> Ints:
    many = len(weight)
    owners, following = np.zeros(len(times_ns), np.int64), np.full(len(times_ns), -1)
    first, newest, waiting = np.full(many, -1), np.full(many, -1), np.zeros(many, np.int64)
    free_ns, running = np.zeros((many, processes.max())), np.zeros((many, processes.max()), np.int64)
    held, credit = np.zeros(many), np.zeros(many)
    for request in range(len(times_ns)):
        now_ns, least = float(times_ns[request]), np.inf
        for one in range(many):
            if weight[one] <= 0:
                continue
            while waiting[one] > 0:
                process = int(np.argmin(free_ns[one, : processes[one]]))
                due_ns = times_ns[first[one]] + delay_ns[one]
                if waiting[one] >= batch[one]:
                    due_ns = min(due_ns, float(times_ns[newest[one]]))
                start_ns = max(free_ns[one, process], due_ns)
                if start_ns >= now_ns:
                    break
                size = min(batch[one], waiting[one])
                free_ns[one, process], running[one, process] = start_ns + hold_ns[one, size], size
                for _ in range(size):
                    first[one] = following[first[one]]
                waiting[one] -= size
            held[one] = waiting[one]
            for process in range(processes[one]):
                held[one] += running[one, process] if free_ns[one, process] > now_ns else 0
            least = min(least, held[one] / weight[one])
        best, whole = -1, 0.0
        for one in range(many):
            if weight[one] > 0 and held[one] / weight[one] <= least:
                credit[one] += weight[one]
                whole += weight[one]
                if best < 0 or credit[one] > credit[best]:
                    best = one
        credit[best] -= whole
        owners[request] = best
        if waiting[best] > 0:
            following[newest[best]] = request
        else:
            first[best] = request
        newest[best] = request
        waiting[best] += 1
    return owners
