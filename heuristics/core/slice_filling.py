"""Compiled filling of slices: what stands on GPUs, and putting the most valuable onto a slice."""

from typing import NamedTuple

import numpy as np

from provision.heuristics.core.slice_tables import NONE, SettingTables
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled
from provision.models.base.tolerances import DUST

ALL = 1 - 1e-9
"""The part of what is left of a rate that a workload's last replica must carry; the rest is rounding."""


class State(NamedTuple):
    """What stands on GPUs.

    Attributes
    ----------
    entry
        (GPUs,) fleet entry.
    slice_type, setting, alone
        (GPUs, places) slice type of the slice, its setting, the workload of its segment; NONE where there is none.
    ways, parts
        (GPUs, places, ways) the ways on a slice in the order in which they came, then NONE, and the part of its
        workload's rate that each carries; a segment has its part first.
    on_gpu
        (GPUs, workloads) part of each rate that a GPU carries.
    left, replicas
        (workloads,) part of each rate that is not carried, and number of replicas.
    """

    entry: Ints
    slice_type: Ints
    setting: Ints
    alone: Ints
    ways: Ints
    parts: Floats
    on_gpu: Floats
    left: Floats
    replicas: Ints


@compiled
def occupy(tables: SettingTables, state: State, gpu: int, place: int, worth: Floats) -> None:
    """Put the most valuable on an empty slice: a segment, or a setting filled in either order."""
    slice_type, best = state.slice_type[gpu, place], 0.0
    ways, parts = np.empty(state.ways.shape[2], np.int64), np.empty(state.ways.shape[2])
    for w in range(len(worth)):
        most, least, bonus = allowed(tables, w, state.replicas[w], state.left[w], tables.cap[w] - state.on_gpu[gpu, w])
        part = min(tables.segment[w, slice_type], most)
        gain = worth[w] * part + bonus
        if tables.segment[w, slice_type] > 0 and part >= least and gain > best:
            best, state.alone[gpu, place], state.parts[gpu, place, 0] = gain, w, part
    for setting in range(len(tables.slice_type)):
        if tables.slice_type[setting] != slice_type:
            continue
        for dense in (False, True):
            gain = fill(tables, state, gpu, setting, worth, dense, ways, parts)
            if gain > best:
                best, state.alone[gpu, place], state.setting[gpu, place] = gain, NONE, setting
                for at in range(len(ways)):
                    state.ways[gpu, place, at], state.parts[gpu, place, at] = ways[at], parts[at]
    account(tables, state, gpu, place, 1)


@compiled
def fill(tables: SettingTables, state: State, gpu: int, setting: int, worth: Floats, dense: bool, ways: Ints,
         parts: Floats) -> float:
    """Fill ``ways`` and ``parts`` of a setting greedily; returns their worth, 0 for fewer than two workloads.

    The most valuable ways come first, or where ``dense`` those of the most value for what they take of the slice.
    """
    begin, end = tables.first[setting], tables.first[setting + 1]
    room, free, memory_gib = tables.room[setting], tables.clients[setting], tables.memory_gib[setting]
    left, replicas, seen = state.left.copy(), state.replicas.copy(), np.zeros(len(worth), np.bool_)
    most, least, bonus = np.empty(len(worth)), np.empty(len(worth)), np.empty(len(worth))
    open_to = 0
    for w in range(len(worth)):
        most[w], least[w], bonus[w] = allowed(tables, w, replicas[w], left[w], tables.cap[w] - state.on_gpu[gpu, w])
        open_to += most[w] > 0 or bonus[w] > 0
    if open_to < 2:
        return 0.0
    counts, total, workloads, held = np.zeros(end - begin, np.int64), 0.0, 0, 0
    ways[:] = NONE
    while held < len(ways):
        best, found, taken, gained = 0.0, NONE, 0.0, 0.0
        for at in range(begin, end):
            w, many = tables.workload[at], counts[at - begin]
            if (most[w] <= 0 and bonus[w] <= 0) or tables.processes[at] > free or tables.held_gib[at] > memory_gib:
                continue
            part = min(tables.most[at], most[w])
            if tables.busy[at] > 0:
                part = min(part, room / tables.busy[at])
            new = many == 0 or tables.counted[w]
            if many >= tables.limit[at] or part < 0 or (new and (part < tables.least[at] or part < least[w])):
                continue
            gain = worth[w] * part + (bonus[w] if new else 0.0)
            taking = tables.busy[at] * part + tables.processes[at] * tables.schedule.process + DUST
            key = gain / taking if dense else gain
            if key > best:
                best, found, taken, gained = key, at, part, gain
        if found == NONE:
            break
        w = tables.workload[found]
        replicas[w] += counts[found - begin] == 0 or tables.counted[w]
        counts[found - begin] += 1
        workloads += not seen[w]
        seen[w] = True
        ways[held], parts[held] = found, taken
        held, total = held + 1, total + gained
        left[w] = max(left[w] - taken, 0.0)
        most[w], least[w], bonus[w] = allowed(tables, w, replicas[w], left[w],
                                              tables.cap[w] - state.on_gpu[gpu, w] - state.left[w] + left[w])
        room -= tables.busy[found] * taken
        memory_gib -= tables.held_gib[found]
        free -= tables.processes[found]
    return total if workloads > 1 else 0.0


@compiled
def allowed(tables: SettingTables, w: int, replicas: int, left: float, room: float) -> tuple[float, float, float]:
    """What a further replica of a workload may carry on a GPU, must carry, and is worth besides.

    It may carry what is ``left`` of the rate and there is ``room`` for. A workload's last replica must carry all that
    is left, and infinitely much where there may be none.
    """
    least = 0.0 if replicas < tables.replicas[w] - 1 else left * ALL if replicas < tables.replicas[w] else np.inf
    return min(left, room), least, tables.schedule.replica if replicas < tables.fewest[w] else 0.0


@compiled
def account(tables: SettingTables, state: State, gpu: int, place: int, sign: int) -> None:
    """Record that a slice carries what stands on it, or with ``sign`` -1 that it no longer does."""
    alone = state.alone[gpu, place]
    if alone != NONE:
        carry(state, gpu, alone, sign * state.parts[gpu, place, 0], sign)
        return
    for at in range(state.ways.shape[2] if state.setting[gpu, place] != NONE else 0):
        way, new = state.ways[gpu, place, at], 1
        if way == NONE:
            break
        w = tables.workload[way]
        for earlier in range(0 if tables.counted[w] else at):
            if state.ways[gpu, place, earlier] == way:
                new = 0
        carry(state, gpu, w, sign * state.parts[gpu, place, at], sign * new)


@compiled
def carry(state: State, gpu: int, w: int, part: float, replicas: int) -> None:
    """Record that a GPU carries a part of a workload's rate, by a number of replicas; both may be negative."""
    left = state.left[w] - part
    state.left[w] = left if left > DUST else 0.0
    state.on_gpu[gpu, w] += part
    state.replicas[w] += replicas
