"""One replication of a simulation: draw arrivals, route them, play every slice, and collect latencies and counts.

Arrival times of requests in a replay, in whole nanoseconds, from arrival processes and traces.
"""

from array import array
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np

from provision.instances.files.csv_cells import number, numbered_rows, text
from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.plans.simulation_report import SimulationSettings, Switch
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.models.traffic.arrivals import (
    Mmpp,
    Poisson,
    Renewal,
    Routing,
    Trace,
    arrival_times_s,
    by_lot,
    in_turns,
    service_factors,
)
from provision.simulation.changes import before_failure, parts_after, replay_with_shadows
from provision.simulation.deployment import Deployment, answers_of_all
from provision.simulation.fewest import by_fewest, one_by_one, servers_of
from provision.simulation.kernel import NS_PER_MS, NS_PER_S, Line, PlannedSlice, answered, line_of
from provision.simulation.tokens import Answers, further_limits, token_parts
from provision.simulation.workflows import arrivals_at_stages, play

COLUMNS = ("time_s", "workload")


def process_of(cv: float) -> Poisson | Renewal:
    """The renewal process with a given coefficient of variation of inter-arrival times: 1 is Poisson, 0 is constant."""
    return Poisson() if cv == 1 else Renewal(cv=cv)


def arrivals_ns(arrivals: Poisson | Renewal | Mmpp | Trace, rate_rps: float, seconds: float,
                random: np.random.Generator) -> Ints:
    """Draw a sample of an arrival process.

    Returns
    -------
    ndarray
        Arrival times before ``seconds``, in whole nanoseconds, ascending.
    """
    return np.floor(arrival_times_s(arrivals, rate_rps, seconds, random) * NS_PER_S).astype(np.int64)


def read_trace(path: str | PathLike[str], names: Sequence[str], seconds: float) -> tuple[list[Ints], int]:
    """The arrivals of a trace for each of ``names``, in whole nanoseconds.

    Arrivals after ``seconds`` are left out. Their number is also returned. Raises InputError if the file cannot be
    read, if times do not ascend, or if a row's workload is not in ``names``.
    """
    times, latest, left_out = {name: array("d") for name in names}, 0.0, 0
    for line, row in numbered_rows(path, COLUMNS):
        time_s, workload = number(path, line, row, "time_s"), text(path, line, row, "workload")
        if time_s < latest:
            raise InputError(f"{path}:{line}: time_s {time_s:g} comes after {latest:g}; sort the rows by time")
        if workload not in times:
            raise InputError(f"{path}:{line}: workload {workload!r} is not in the instance; it has {', '.join(names)}")
        latest = time_s
        if time_s < seconds:
            times[workload].append(time_s)
        else:
            left_out += 1
    return [np.floor(np.array(found) * NS_PER_S).astype(np.int64) for found in times.values()], left_out


NOBODY = Answers(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((3, 0), np.int64), np.zeros(0, np.int64))


class Tally(NamedTuple):
    """Latencies and counts of the requests of one workload in one replication.

    ``latencies_ms`` are the sorted latencies of the requests that arrived after the warm-up. ``measured_drops`` counts
    the requests that arrived after the warm-up and were dropped. ``answers`` is the number of requests answered between
    the warm-up and the end, and ``busy_ns`` the busy time of all processes in that window. The other fields are for the
    whole replication.
    """

    latencies_ms: Floats
    measured_drops: int
    answers: int
    busy_ns: int
    batches: int
    arrived: int
    served: int
    dropped: int
    in_flight: int


def replay(instance: Instance, deployment: Deployment, settings: SimulationSettings, replication: int,
           trace: Sequence[Ints] | None = None) -> tuple[list[Tally], list[Tally], list[Tally], list[Switch]]:
    """Play one replication.

    Parameters
    ----------
    instance, deployment, settings
        The Instance, the Deployment of its plan, the SimulationSettings.
    replication
        The number of the replication. In every replication, each workload has its own random number generator. Its
        arrivals are drawn first, so that they are the same for all plans.
    trace
        The arrivals of every workload in whole nanoseconds, if they are not to be drawn.

    Returns
    -------
    tuple
        A Tally for every workload, one for every FurtherLimit on tokens, one for every workflow, and the Switches to
        standby processes.
    """
    keys = [(replication, at) for at in range(len(instance.workloads))]
    streams = [np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=key)) for key in keys]
    arriving_ns = arrivals_at_stages(instance, trace or [
        arrivals_ns(_arrivals(instance, workload, settings), workload.rate_rps, settings.seconds, random)
        for workload, random in zip(instance.workloads, streams, strict=True)
    ])
    owners = {
        name: _dealt(instance, deployment, settings, name, times_ns, random)
        for name, times_ns, random in zip(instance.workload, arriving_ns, streams, strict=True)
    }
    lines = _lines(deployment, settings, arriving_ns, owners, streams)
    switches = replay_with_shadows(instance, deployment.slices, lines, settings, replication) if settings.shadow else []
    passed = play(instance, deployment, lines, arriving_ns, owners)
    workloads = [
        _tally(settings, times_ns, [(deployment.slices[place.slice], lines[place.slice], place.replica)
                                    for place in places])
        for times_ns, places in zip(arriving_ns, deployment.places.values(), strict=True)
    ]
    tokens, through = answers_of_all(instance, deployment, settings, arriving_ns, owners, streams)
    lost_ns = {at: np.delete(arriving_ns[at], one.at) for at, one in tokens.items()}
    for at, one in tokens.items():
        workloads[at] = _timed(settings, one.arrived_ns, one.arrived_ns + one.took_ns[-1], lost_ns[at])
    limits = [(limit.row, tokens.get(limit.workload, NOBODY), lost_ns.get(limit.workload, NOBODY.at))
              for limit in further_limits(instance)]
    limited = [_timed(settings, one.arrived_ns, one.arrived_ns + one.took_ns[row], lost) for row, one, lost in limits]
    flows = [_timed(settings, first_ns, last_ns)
             for first_ns, last_ns in (through.get(number, times) for number, times in enumerate(passed))]
    return workloads, limited, flows, switches


def _arrivals(instance: Instance, workload: Workload, settings: SimulationSettings) -> Poisson | Renewal | Mmpp | Trace:
    """The arrival process of a workload: that of the settings if they state one, else that of the instance."""
    if settings.arrival_cv is None:
        return instance.policy.arrivals_of(workload)
    return process_of(settings.arrival_cv)


def _routing(instance: Instance, name: str, settings: SimulationSettings) -> Routing:
    """The routing of a workload: that of the settings, else round robin for constant arrivals, else that of the
    instance.
    """
    if settings.routing is None and settings.arrival_cv == 0:
        return "round_robin"
    return settings.routing or instance.policy.routing_of(instance.workload[name])


def _dealt(instance: Instance, deployment: Deployment, settings: SimulationSettings, name: str, times_ns: Ints,
           random: np.random.Generator) -> Ints:
    """The replica of each request of a workload. After the loss of a GPU, it is one of the remaining replicas."""
    routing, parts, places = _routing(instance, name, settings), deployment.parts(name), deployment.places[name]
    after = None
    if settings.fail and name in deployment.engines:
        after = token_parts(deployment.engines[name], settings.fail.gpu)
    elif settings.fail:
        after = parts_after(instance, deployment.slices, places, settings.fail.gpu)

    def owners(times_ns: Ints, parts: Sequence[float]) -> Ints:
        if len(parts) < 2 or routing == "round_robin":
            return in_turns(len(times_ns), parts)
        if routing == "random":
            return by_lot(len(times_ns), parts, random)
        if len(times_ns) < 2:
            return in_turns(len(times_ns), parts)
        return by_fewest(times_ns, parts, servers_of(deployment, places, settings) if places
                         else one_by_one(times_ns, parts))

    if settings.fail is None or after is None:
        return owners(times_ns, parts)
    split = np.searchsorted(times_ns, settings.fail.at_s * NS_PER_S)
    return np.concatenate([owners(times_ns[:split], parts), owners(times_ns[split:], after)])


def _lines(deployment: Deployment, settings: SimulationSettings, arriving_ns: Sequence[Ints],
           owners: Mapping[str, Ints], streams: Sequence[np.random.Generator]) -> list[Line]:
    """The Line of every slice, with the requests routed to it."""
    parts: dict[tuple[int, int], tuple[Ints, Floats]] = {}
    for times_ns, (name, places), random in zip(arriving_ns, deployment.places.items(), streams, strict=True):
        order = np.argsort(owners[name], kind="stable")
        cuts = np.searchsorted(owners[name], np.arange(1, len(places)), sorter=order)
        for place, part in zip(places, np.split(times_ns[order], cuts), strict=False):  # no places: one empty part
            parts[place.slice, place.replica] = part, service_factors(settings.service_cv, len(part), random)
    return [
        line_of(planned, settings, *zip(*(parts[at, one] for one in range(len(planned.piece.replicas))), strict=True))
        for at, planned in enumerate(deployment.slices)
    ]


def _tally(settings: SimulationSettings, arrivals_ns: Ints,
           replicas: Sequence[tuple[PlannedSlice, Line, int]]) -> Tally:
    """The Tally of a workload from its replicas (PlannedSlice, Line, index). Without replicas, all requests are
    dropped.
    """
    found = [before_failure(settings, planned, *answered(line, at)) for planned, line, at in replicas]
    columns = zip(*found, strict=True) if found else ([NOBODY.at], [NOBODY.at], [arrivals_ns])
    counts = {name: sum(int(line.replicas[name][at]) for _, line, at in replicas)
              for name in ("dropped", "measured_drops", "busy_ns", "batches")}
    arrival_ns, done_ns, lost_ns = (np.concatenate(column) for column in columns)
    return _timed(settings, arrival_ns, done_ns, lost_ns, **counts)


def _timed(settings: SimulationSettings, arrival_ns: Ints, done_ns: Ints, lost_ns: Ints = NOBODY.at,
           measured_drops: int = 0, dropped: int = 0, busy_ns: int = 0, batches: int = 0) -> Tally:
    """The Tally of requests with the given arrival and answer times. ``lost_ns`` are the arrival times of requests that
    a lost GPU or a missing replica leaves without an answer; ``dropped`` counts those that a full queue refused. Of
    ``lost_ns``, those count as measured drops that arrived after the loss.
    """
    measure_ns, end_ns = settings.measured_from_s * NS_PER_S, settings.seconds * NS_PER_S
    served, failed_ns = int(np.sum(done_ns <= end_ns)), settings.fail.at_s * NS_PER_S if settings.fail else 0
    return Tally(
        latencies_ms=np.sort((done_ns - arrival_ns)[arrival_ns >= measure_ns]) / NS_PER_MS,
        answers=int(np.sum((done_ns >= measure_ns) & (done_ns <= end_ns))),
        arrived=len(done_ns) + len(lost_ns) + dropped, served=served, in_flight=len(done_ns) - served,
        measured_drops=measured_drops + int(np.sum(lost_ns >= max(measure_ns, failed_ns))),
        dropped=len(lost_ns) + dropped, busy_ns=busy_ns, batches=batches,
    )
