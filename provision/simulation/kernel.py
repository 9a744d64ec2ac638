"""The event loop of one slice: requests arrive, wait, and are served in batches. Busy processes slow each other down.

Time is in whole nanoseconds. At the same time, ends of batches come first, then arrivals, then starts of batches; among
equal events the lower index comes first. The idea of processor sharing: every batch in service has some work left,
which decreases at a speed that depends on the processes that are busy at the moment. When a process becomes busy or
idle, the ends of all batches in service are computed again.

Replicas that take turns form a ring, in which one replica at a time runs a batch. When it ends, the next replica in the
ring whose batch is due starts. If no batch is due, the replica whose batch is due first starts then. So a batch that is
due waits for at most one batch of each other replica: that round is the duty cycle of gpu-lets and Nexus.

The loop works on the Line of a slice, which ``line_of`` makes of a PlannedSlice. ``changed`` gives it other batch
times, and ``answered`` has the answer times of requests.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.base.errors import InputError
from provision.models.performance.gpulets import gpulets_of
from provision.models.plans.plan import Slice
from provision.models.plans.simulation_report import SimulationSettings
from provision.simulation.latencies import BatchTimes

FOREVER = np.iinfo(np.int64).max
NS_PER_MS = 1e6
NS_PER_S = 1e9

REPLICA = np.dtype(
    [(name, np.int64) for name in (
        "batch", "delay_ns", "queue_limit", "step", "stages", "next_in_turn",
        "head", "tail", "upcoming", "end", "factor", "last_factor",
        "idle", "batches", "busy_ns", "dropped", "measured_drops", "arrive_ns", "start_ns",
    )]
)
"""A replica.

``step`` is the number that each of its busy processes adds to the row of the tables, and ``stages`` the number of
stages of its batches. ``next_in_turn`` is the next replica in its ring (the replica itself without temporal sharing).
Of its requests, those before ``head`` are in batches, those before ``tail`` were accepted, and those before
``upcoming`` have arrived. ``factor`` is the index of the factor of its next batch, and ``idle`` the number of processes
that may start a batch. ``arrive_ns`` and ``start_ns`` are the times of its next arrival and its next start of a batch.
"""

SLOT = np.dtype(
    [(name, np.int64) for name in ("replica", "stage", "finish_ns", "begun_ns", "since_ns", "taken", "size")]
    + [("hold_ns", np.float64), ("work", np.float64), ("left", np.float64)]
)
"""A process. At ``since_ns``, its batch had ``left`` of the ``work`` of its ``stage``. A unit of work takes
``hold_ns``.
"""


class Line(NamedTuple):
    """The state of the event loop: a slice with all its requests.

    Attributes
    ----------
    replicas, slots
        Arrays of REPLICA and SLOT.
    arrival_ns, done_ns
        Arrival and answer times of all requests, (requests,), grouped by replica and in order of arrival. Accepted
        requests are moved to the front of their replica's group.
    factor
        Factors on the batch times of the tables, grouped by replica.
    hold_ns, latency_ns
        Tables of the time for which a batch holds its process, and of the time until it is answered, with the shape
        (rows, stages * replicas, batch size + 1). The second axis has all replicas in their first stage, then in the
        second.
    row
        (1,) the row of the tables for the processes that are busy now.
    window_ns
        (2,) when counting of utilisation and drops begins, and when counting of utilisation ends.
    """

    replicas: np.ndarray
    slots: np.ndarray
    arrival_ns: np.ndarray
    done_ns: np.ndarray
    factor: np.ndarray
    hold_ns: np.ndarray
    latency_ns: np.ndarray
    row: np.ndarray
    window_ns: np.ndarray


@compiled
def advance(line: Line, until_ns: int) -> None:
    """Process all events before ``until_ns``. With FOREVER, all accepted requests are served."""
    while True:
        slot, arriving, starting = earliest(line)
        finish_ns = line.slots[slot].finish_ns
        arrive_ns, start_ns = line.replicas[arriving].arrive_ns, line.replicas[starting].start_ns
        if min(finish_ns, arrive_ns, start_ns) >= until_ns:
            return
        if finish_ns <= min(arrive_ns, start_ns):
            end_stage(line, slot)
        elif arrive_ns <= start_ns:
            arrive(line, arriving)
        else:
            start(line, starting)


@inner
def earliest(line: Line) -> tuple[int, int, int]:
    """The slot that finishes first, and the replicas with the first arrival and the first start."""
    slot = arriving = starting = 0
    for at in range(1, len(line.slots)):
        if line.slots[at].finish_ns < line.slots[slot].finish_ns:
            slot = at
    for at in range(1, len(line.replicas)):
        if line.replicas[at].arrive_ns < line.replicas[arriving].arrive_ns:
            arriving = at
        if line.replicas[at].start_ns < line.replicas[starting].start_ns:
            starting = at
    return slot, arriving, starting


@compiled
def next_ns(line: Line) -> int:
    """The time of the next event; FOREVER if there is none."""
    slot, arriving, starting = earliest(line)
    return min(line.slots[slot].finish_ns, line.replicas[arriving].arrive_ns, line.replicas[starting].start_ns)


@inner
def arrive(line: Line, at: int) -> None:
    """Put the next request of a replica into its queue, or drop it if the queue is full."""
    replica = line.replicas[at]
    now_ns = replica.arrive_ns
    if replica.tail - replica.head < replica.queue_limit:
        line.arrival_ns[replica.tail] = now_ns
        replica.tail += 1
        plan_start(line, at, now_ns)
    else:
        replica.dropped += 1
        replica.measured_drops += now_ns >= line.window_ns[0]
    replica.upcoming += 1
    replica.arrive_ns = line.arrival_ns[replica.upcoming] if replica.upcoming < replica.end else FOREVER


@inner
def plan_start(line: Line, at: int, now_ns: int) -> None:
    """Set the start of a replica's next batch: now if it is full, else when its oldest request has waited long enough.
    """
    replica = line.replicas[at]
    waiting = replica.tail - replica.head
    if replica.idle == 0 or waiting == 0:
        replica.start_ns = FOREVER
    elif waiting >= replica.batch:
        replica.start_ns = now_ns
    else:
        replica.start_ns = max(now_ns, line.arrival_ns[replica.head] + replica.delay_ns)


@inner
def start(line: Line, at: int) -> None:
    """Start a batch of waiting requests on the first idle process."""
    replica, free = line.replicas[at], 0
    while line.slots[free].replica != at or line.slots[free].finish_ns != FOREVER:
        free += 1
    slot, now_ns = line.slots[free], replica.start_ns
    slot.begun_ns = slot.since_ns = slot.finish_ns = now_ns
    slot.taken, slot.size = replica.head, min(replica.tail - replica.head, replica.batch)
    slot.stage, slot.hold_ns = 0, 0.0
    slot.work = slot.left = line.factor[replica.factor]
    replica.factor = min(replica.factor + 1, replica.last_factor)
    replica.head += slot.size
    replica.batches += 1
    replica.idle -= 1
    line.row[0] += replica.step
    plan_start(line, at, now_ns)
    hold_turn(line, at)
    rescale(line, now_ns)


@inner
def hold_turn(line: Line, at: int) -> None:
    """Prevent all replicas that take turns with a replica from starting a batch."""
    other = line.replicas[at].next_in_turn
    while other != at:
        line.replicas[other].idle, line.replicas[other].start_ns = 0, FOREVER
        other = line.replicas[other].next_in_turn


@inner
def pass_turn(line: Line, at: int, now_ns: int) -> None:
    """After the end of a batch, plan the starts of the other replicas in the ring, up to the first whose batch is due
    now.
    """
    other = line.replicas[at].next_in_turn
    while other != at:
        line.replicas[other].idle = 1
        plan_start(line, other, now_ns)
        if line.replicas[other].start_ns == now_ns:
            return
        other = line.replicas[other].next_in_turn
    line.replicas[at].idle += 1
    plan_start(line, at, now_ns)


@inner
def end_stage(line: Line, which: int) -> None:
    """Advance the batch in a slot to its next stage, or end it."""
    slot = line.slots[which]
    if slot.stage + 1 == line.replicas[slot.replica].stages:
        finish(line, which)
        return
    slot.stage += 1
    slot.since_ns, slot.hold_ns, slot.left = slot.finish_ns, 0.0, slot.work
    line.row[0] += 1
    rescale(line, slot.since_ns)


@inner
def finish(line: Line, which: int) -> None:
    """End the batch in a slot and answer its requests."""
    slot = line.slots[which]
    replica, now_ns = line.replicas[slot.replica], slot.finish_ns
    beyond_ns = line.latency_ns[line.row[0], _place(line, slot), slot.size] - slot.hold_ns
    done_ns = max(slot.begun_ns, now_ns + np.int64(np.rint(beyond_ns)))
    line.done_ns[slot.taken : slot.taken + slot.size] = done_ns
    replica.busy_ns += max(min(now_ns, line.window_ns[1]) - max(slot.begun_ns, line.window_ns[0]), 0)
    slot.finish_ns = FOREVER
    line.row[0] -= replica.step + replica.stages - 1
    pass_turn(line, slot.replica, now_ns)
    rescale(line, now_ns)


@compiled
def rescale(line: Line, now_ns: int) -> None:
    """Compute the ends of all batches in service again, for the processes that are busy from now on."""
    for slot in line.slots:
        if slot.finish_ns == FOREVER:
            continue
        hold_ns = line.hold_ns[line.row[0], _place(line, slot), slot.size]
        if hold_ns == slot.hold_ns:
            continue
        if slot.hold_ns > 0:
            slot.left -= (now_ns - slot.since_ns) / slot.hold_ns
        slot.since_ns, slot.hold_ns = now_ns, hold_ns
        slot.finish_ns = now_ns + np.int64(np.ceil(max(slot.left, 0.0) * hold_ns))


@inner
def _place(line: Line, slot: Any) -> Any:
    """The column of the tables for the stage of the batch in a slot."""
    return slot.replica + slot.stage * len(line.replicas)


LONGEST_NS = 2**62
EARLY_NS = 4
"""A batch that does not fill starts this many nanoseconds before its latest moment.

The ends of its stages are rounded up to whole nanoseconds, and a request that is answered a nanosecond after its SLO
would count as late.
"""


class PlannedSlice(NamedTuple):
    """A slice with replicas: the index and type of its GPU, its BatchTimes, and for each replica how long a batch may
    wait.
    """

    gpu: int
    type: str
    piece: Slice
    times: BatchTimes
    delays_ms: tuple[float, ...]


def line_of(planned: PlannedSlice, settings: SimulationSettings, arrivals_ns: Sequence[Ints],
            factors: Sequence[Floats]) -> Line:
    """The Line of a slice at the start, before any request has arrived.

    Parameters
    ----------
    planned
        The PlannedSlice.
    settings
        SimulationSettings.
    arrivals_ns, factors
        For each replica, the ascending arrival times of its requests, and the factors on the times of its batches. The
        last factor is for all further batches.

    Returns
    -------
    Line

    Raises
    ------
    InputError
        If serving all requests would take longer than the clock can count.
    """
    ends, factor_ends = np.cumsum([list(map(len, arrivals_ns)), list(map(len, factors))], axis=1)
    replicas = np.zeros(len(arrivals_ns), REPLICA)
    replicas["head"] = replicas["tail"] = replicas["upcoming"] = np.append(0, ends[:-1])
    replicas["end"] = ends
    replicas["factor"], replicas["last_factor"] = np.append(0, factor_ends[:-1]), factor_ends - 1
    replicas["arrive_ns"] = [arrivals[0] if len(arrivals) else FOREVER for arrivals in arrivals_ns]
    replicas["start_ns"] = FOREVER
    replicas["batch"] = [one.batch for one in planned.piece.replicas]
    replicas["idle"] = [one.processes for one in planned.piece.replicas]
    delays_ms, early_ns = (planned.delays_ms, EARLY_NS) if settings.max_delay_ms is None else (settings.max_delay_ms, 0)
    replicas["delay_ns"] = np.maximum(np.minimum(delays_ms, LONGEST_NS / 2 / NS_PER_MS) * NS_PER_MS - early_ns, 0)
    replicas["queue_limit"] = settings.queue_limit or FOREVER
    replicas["step"], replicas["stages"] = planned.times.step, planned.times.stages
    for part in gpulets_of(planned.piece.replicas):
        replicas["next_in_turn"][part] = np.roll(part, -1)
    slots = np.zeros(replicas["idle"].sum(), SLOT)
    slots["replica"], slots["finish_ns"] = np.repeat(np.arange(len(replicas)), replicas["idle"]), FOREVER
    window_ns = np.array([settings.measured_from_s, settings.seconds]) * NS_PER_S
    hold_ns, latency_ns = _tables(planned, settings)
    line = Line(
        replicas, slots, np.concatenate(arrivals_ns), np.zeros(ends[-1], np.int64), np.concatenate(factors),
        hold_ns, latency_ns, np.zeros(1, np.int64), np.rint(window_ns).astype(np.int64),
    )
    work = line.factor.sum() + (ends[-1] + 1) * line.factor[replicas["last_factor"]].max()
    if not work * line.hold_ns.max() + line.latency_ns.max() < LONGEST_NS:
        raise InputError("simulate: serving all requests would take a century; shorten the time or the batch latencies")
    return line


def changed(line: Line, planned: PlannedSlice, settings: SimulationSettings, now_s: float) -> Line:
    """The Line with other batch times from the moment ``now_s`` on."""
    hold_ns, latency_ns = _tables(planned, settings)
    line = line._replace(hold_ns=hold_ns, latency_ns=latency_ns)
    rescale(line, round(now_s * NS_PER_S))
    return line


def answered(line: Line, at: int) -> tuple[Ints, Ints]:
    """The arrival and answer times, in whole nanoseconds, of all requests of a replica whose batch has started.

    An answer time of 0 means that the request has not been answered yet.
    """
    replica = line.replicas[at]
    part = slice(line.replicas["end"][at - 1] if at else 0, replica["head"])
    return line.arrival_ns[part], line.done_ns[part]


def _tables(planned: PlannedSlice, settings: SimulationSettings) -> tuple[Floats, Floats]:
    """The tables ``hold_ns`` and ``latency_ns`` of a Line."""
    scale = settings.service_factor * NS_PER_MS
    hold_ns, latency_ns = (np.minimum(table, LONGEST_NS / scale) * scale
                           for table in (planned.times.hold_ms, planned.times.latency_ms))
    return hold_ns, latency_ns
