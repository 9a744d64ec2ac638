"""One replication: draw the arrivals, route them, play every slice, collect what became of the requests."""

from typing import NamedTuple

import numpy as np

from provision.models.traffic.routing import by_least_work, by_lot, in_turns
from provision.models.traffic.spread import service_factors
from provision.simulation.arrivals import arrivals_ns, process_of
from provision.simulation.kernel import NS_PER_MS, NS_PER_S
from provision.simulation.shadow import replay_with_shadows
from provision.simulation.slices import answered, line_of
from provision.simulation.workflows import arrivals_at_stages, play


class Tally(NamedTuple):
    """What became of the requests of one workload in one replication.

    ``latencies_ms`` are sorted, of the requests that arrived after the warm-up, ``measured_drops`` the number of
    those that were dropped, ``answers`` that of the requests answered between the warm-up and the end, ``busy_ns``
    the time in between that its processes were busy, all together. What follows is about the whole replication.
    """

    latencies_ms: np.ndarray
    measured_drops: int
    answers: int
    busy_ns: int
    batches: int
    arrived: int
    served: int
    dropped: int
    in_flight: int


def replay(instance, deployment, settings, replication, trace=None):
    """Play one replication.

    Parameters
    ----------
    instance, deployment, settings
        The Instance, the Deployment of its plan, the SimulationSettings.
    replication
        Its number. In each every workload has a random stream of its own, from which the arrivals come first: they
        are the same for all plans.
    trace
        Arrivals of every workload in whole nanoseconds, in place of random ones.

    Returns
    -------
    tuple
        A Tally for every workload, one for every workflow, and the Switches to standby processes.
    """
    keys = [(replication, at) for at in range(len(instance.workloads))]
    streams = [np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=key)) for key in keys]
    arriving_ns = arrivals_at_stages(instance, trace or [
        arrivals_ns(_arrivals(instance, workload, settings), workload.rate_rps, settings.seconds, random)
        for workload, random in zip(instance.workloads, streams, strict=True)
    ])
    owners = {
        name: _owners(_routing(instance, name, settings), times_ns, [place.share for place in places], random)
        for (name, places), times_ns, random in zip(deployment.places.items(), arriving_ns, streams, strict=True)
    }
    lines = _lines(deployment, settings, arriving_ns, owners, streams)
    switches = replay_with_shadows(instance, deployment.slices, lines, settings, replication) if settings.shadow else []
    passed = play(instance, deployment, lines, arriving_ns, owners)
    workloads = [
        _tally(settings, times_ns, [(lines[place.slice], place.replica) for place in places])
        for times_ns, places in zip(arriving_ns, deployment.places.values(), strict=True)
    ]
    return workloads, [_timed(settings, *times_ns, len(times_ns[0])) for times_ns in passed], switches


def _arrivals(instance, workload, settings):
    """How requests arrive: as the instance says unless the settings say otherwise."""
    if settings.arrival_cv is None:
        return instance.policy.arrivals_of(workload)
    return process_of(settings.arrival_cv)


def _routing(instance, name, settings):
    """How requests are dealt to replicas: as the settings or else the instance say; constant arrivals in turns."""
    if settings.routing is None and settings.arrival_cv == 0:
        return "round_robin"
    return settings.routing or instance.policy.routing_of(instance.workload[name])


def _owners(routing, times_ns, parts, random):
    """The replica of each request, by index."""
    if len(parts) < 2 or routing == "round_robin":
        return in_turns(len(times_ns), parts)
    if routing == "random":
        return by_lot(len(times_ns), parts, random)
    return by_least_work(times_ns, np.array(parts))


def _lines(deployment, settings, arriving_ns, owners, streams):
    """The Line of every slice, with the requests routed to it."""
    parts = {}
    for times_ns, (name, places), random in zip(arriving_ns, deployment.places.items(), streams, strict=True):
        for number, place in enumerate(places):
            part = times_ns[owners[name] == number]
            parts[place.slice, place.replica] = part, service_factors(settings.service_cv, len(part), random)
    return [
        line_of(planned, settings, *zip(*(parts[at, one] for one in range(len(planned.piece.replicas))), strict=True))
        for at, planned in enumerate(deployment.slices)
    ]


def _tally(settings, arrivals_ns, replicas):
    """The Tally of a workload, from its replicas as (Line, index); without any, all its requests are dropped."""
    pairs = [answered(line, at) for line, at in replicas] or [np.zeros((2, 0), np.int64)]
    arrival_ns, done_ns = (np.concatenate(column) for column in zip(*pairs, strict=True))
    counts = {name: sum(int(line.replicas[name][at]) for line, at in replicas)
              for name in ("dropped", "measured_drops", "busy_ns", "batches")}
    if not replicas:
        measured_drops = int(np.sum(arrivals_ns >= settings.measured_from_s * NS_PER_S))
        counts |= {"dropped": len(arrivals_ns), "measured_drops": measured_drops}
    return _timed(settings, arrival_ns, done_ns, len(arrivals_ns), **counts)


def _timed(settings, arrival_ns, done_ns, arrived, measured_drops=0, dropped=0, busy_ns=0, batches=0):
    """The Tally of requests with these arrivals and answers."""
    measure_ns, end_ns = settings.measured_from_s * NS_PER_S, settings.seconds * NS_PER_S
    served = int(np.sum(done_ns <= end_ns))
    return Tally(
        latencies_ms=np.sort((done_ns - arrival_ns)[arrival_ns >= measure_ns]) / NS_PER_MS,
        answers=int(np.sum((done_ns >= measure_ns) & (done_ns <= end_ns))),
        arrived=arrived, served=served, in_flight=len(done_ns) - served,
        measured_drops=measured_drops, dropped=dropped, busy_ns=busy_ns, batches=batches,
    )
