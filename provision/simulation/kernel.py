"""The event loop of one slice: requests arrive, wait, and are served in batches. Busy processes slow each other down.

Time is in whole nanoseconds. At the same time, ends of batches come first, then arrivals, then starts of batches; among
equal events the lower index comes first. The idea of processor sharing: every batch in service has some work left,
which decreases at a speed that depends on the processes that are busy at the moment. When a process becomes busy or
idle, the ends of all batches in service are computed again.

Replicas that take turns form a ring, in which one replica at a time runs a batch. When it ends, the next replica in the
ring whose batch is due starts. If no batch is due, the replica whose batch is due first starts then. So a batch that is
due waits for at most one batch of each other replica: that round is the duty cycle of gpu-lets and Nexus.
"""

from typing import Any, NamedTuple

import numpy as np

from provision.models.base.compiled import compiled, inner

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
