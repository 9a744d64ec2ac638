"""The assignment model: GPUs, MIG slots on their memory positions, what each slot holds, and the routed rates.

A slot holds a pattern, or replicas at operating points that share its units, whose interference is stated by linear
rows. Equal GPUs may be stated one by one, or together: the sum of their rows is a relaxation without symmetry. There,
an *open* slot stands for any pattern that is not listed: it carries what worths allow (`slots`).

    memory slices   sum of places that cover a memory slice             <=  used GPUs
    compute slices  sum of compute slices of places                     <=  those of used GPUs
    contents        patterns + slots with points + open slots           <=  places
    units, clients, memory of the points in a slot                      <=  those of the slot
    deadlines       see `interference`
    rates           sum of the parts of a workload's rate               >=  1
    worths          sum of worth * part                                 <=  1 for each slot
    replicas        between min_replicas and max_replicas
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.description import Description, Terms, Values
from provision.formulations.assignment.patterns import Held, PatternReplica, SlicePattern, parts_of, plan_of
from provision.formulations.assignment.points import Base, Points, keep_colocated, keep_igniter
from provision.formulations.assignment.slots import Slots
from provision.formulations.pricing.listing import undominated
from provision.models.base.tolerances import LOOSE, RELAXED, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.colocation import Colocation
from provision.models.performance.sm_shares import share_of_units
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of

Refuted = list[tuple[int, int, tuple[tuple[Base, float, int], ...]]]
"""Replicas of a GPU that rows admit and the performance model refutes, and what holds more, too: the indices of slice
type and table, and for each point its base, deadline (ms) and number of replicas.
"""
Places = dict[tuple[int, int, int], int]
"""Variables by block, slice type, and a further index."""


class Block(NamedTuple):
    """Equal GPUs that are stated together: the index of their fleet entry, and their number."""

    entry: int
    many: int


class Choice(NamedTuple):
    """What slots hold: a variable that counts it, and for each one the parts of workloads' rates that it carries, its
    replicas by workload, and the requests/s that it could carry. A ``pattern`` is None if this is a replica at a point.
    """

    variable: int
    slice_type: int
    parts: Mapping[int, float]
    replicas: Mapping[int, int]
    rps: float
    pattern: SlicePattern | None = None


class Shared(NamedTuple):
    """The replicas at points on a GPU: slice type, index of the table, table, and the variable of every point."""

    slice_type: int
    number: int
    table: Points
    x: Sequence[int]


class Model:
    """The statement of an instance.

    ``used[b]`` counts the used GPUs of block b, ``place[b, k, s]`` its slots of type k that start at memory slice s,
    ``open[b, k, r]`` its open slots by relaxation r, if ``opened``. ``refuted`` patterns are excluded; ``best`` and
    ``bound`` are the known value of a plan and the known bound.
    """

    def __init__(self, instance: Instance, slots: Sequence[Slots], blocks: Sequence[Block], refuted: Refuted,
                 opened: bool, best: float | None = None, bound: float | None = None) -> None:
        self.instance, self.slots, self.blocks, self.refuted = instance, slots, blocks, refuted
        self.program, self.counted = Description(), instance.objective == THROUGHPUT
        self.planned_rps = [instance.planned_rps(one) for one in instance.workloads]
        self.used = [self.program.whole(f"used_{b}", block.many) for b, block in enumerate(blocks)]
        self.place, self.open, self.offer = Places(), Places(), Places()
        self.choices: list[list[Choice]] = [[] for _ in blocks]
        self.shared: list[list[Shared]] = [[] for _ in blocks]
        self.filled, self.rated = dict[tuple[int, int], int](), dict[int, int]()
        self.carried: dict[tuple[int, int], Terms] = {}
        for b, block in enumerate(blocks):
            self._add_slots(b, block, opened)
        for k, r in sorted({(k, r) for _, k, r in self.open}):
            self._share_out(k, r)
        for w in range(len(instance.workloads)):
            self._serve(w)
        self._keep_worths()
        self._aim(best, bound)

    def _add_slots(self, b: int, block: Block, opened: bool) -> None:
        """Add the slots of a block: no two overlap in memory, compute slices and instances are limited, and each holds
        one thing.
        """
        entry, program, place = self.instance.fleet[block.entry], self.program, self.place
        mine = {k: slots.slice_type for k, slots in enumerate(self.slots) if slots.slice_type.entry == block.entry}
        types = {k: entry.type.profiles[one.profile] for k, one in mine.items() if one.profile != WHOLE}
        here = {(k, s): program.whole(f"place_{b}_{k}_{s}", block.many)
                for k in mine for s in (types[k].starts if k in types else (0,))}
        place |= {(b, k, s): variable for (k, s), variable in here.items()}
        mig = entry.type.mig if entry.partitioned else None
        for position in range(mig.memory_slices if mig else 1):
            over = [(1.0, one) for (k, s), one in here.items() if s <= position < s + mine[k].memory]
            program.at_most([*over, (-1, self.used[b])], 0)
        if mig:
            compute = [(float(mine[k].compute), one) for (k, _), one in here.items()]
            program.at_most([*compute, (-mig.compute_slices, self.used[b])], 0)
        for k, slots in ((k, self.slots[k]) for k in mine):
            most = (int(types[k].max) if k in types else 1) * block.many
            placed = [(1.0, one) for (at, _), one in here.items() if at == k]
            if len(placed) > 1:
                program.at_most(placed, most)
            filled = [program.whole(f"count_{b}_{k}_{q}", most) for q in range(len(slots.patterns))]
            for variable, pattern in zip(filled, slots.patterns, strict=True):
                parts = {w: part if pattern.routed else min(part, 1.0)
                         for w, part in parts_of(self.instance, pattern).items()}
                self.choices[b].append(Choice(variable, k, parts, Counter(one.workload for one in pattern.replicas),
                                              pattern.throughput_rps, pattern))
            filled += [self._add_points(b, k, f, table, block.many) for f, table in enumerate(slots.tables)]
            for r in range(len(slots.opened) if opened else 0):
                self.open[b, k, r] = program.whole(f"open_{b}_{k}_{r}", most)
                filled.append(self.open[b, k, r])
            self.filled[b, k] = len(program.rows)
            program.at_most([*((1.0, one) for one in filled), *((-1.0, one) for _, one in placed)], 0)

    def _add_points(self, b: int, k: int, f: int, table: Points, many: int) -> int:
        """Add the replicas at points of GPUs; return the variable that counts GPUs with points."""
        program, name = self.program, f"{b}_{k}_{f}"
        if many > 1:  # without rows of interference, a point that takes less and carries more dominates
            costs = np.column_stack([table.units, table.memory_gib, -table.part, -table.rps * self.counted])
            mine = [np.flatnonzero(table.workload == w) for w in np.unique(table.workload)]
            table = table.only(np.concatenate([at[undominated(-costs[at], most=len(at))] for at in mine]))
        mode = program.whole(f"mode_{name}", many)
        x = [program.whole(f"x_{name}_{point}", many * most) for point, most in enumerate(table.most.tolist())]
        program.at_most([*zip(table.units.astype(float).tolist(), x, strict=True), (-table.limit, mode)], 0)
        program.at_most([*((1.0, one) for one in x), (-table.clients, mode)], 0)
        if table.memory_gib.any():
            memory = (table.memory_gib / table.memory_limit_gib).tolist()
            program.at_most([*zip(memory, x, strict=True), (-1 - LOOSE, mode)], 0)
        if many == 1:
            keep = keep_colocated if isinstance(table.data, Colocation) else keep_igniter
            keep(program, name, table, x, [self._at_least(one, 1) for one in x])
        index = {(table.base(point), room): point for point, room in enumerate(table.room_ms.tolist())}
        for *which, held in self.refuted:  # a point at another level has another deadline
            if many == 1 and which == [k, f] and all((base, room) in index for base, room, _ in held):
                program.at_most([(1.0, self._at_least(x[index[base, room]], copies)) for base, room, copies in held],
                                len(held) - 1)
        for point, variable in enumerate(x):
            w = int(table.workload[point])
            self.choices[b].append(Choice(variable, k, {w: float(table.part[point])}, {w: 1}, float(table.rps[point])))
        self.shared[b].append(Shared(k, f, table, x))
        return mode

    def _at_least(self, x: int, copies: int) -> int:
        """A variable that is 1 if ``x`` is at least ``copies``."""
        variable = self.program.variables[x]
        if variable.most == copies == 1:
            return x
        found = self.program.whole(f"{variable.name}_from_{copies}_{len(self.program.variables)}", 1)
        self.program.at_most([(1.0, x), (-(variable.most - copies + 1), found)], copies - 1)
        return found

    def _serve(self, w: int) -> None:
        """Add rows: a workload's rate is carried, no GPU carries more than the largest share of it, and its replicas
        are between its min_replicas and its max_replicas; open slots have any number.
        """
        workload, total = self.instance.workloads[w], list[tuple[float, int]]()
        for b, block in enumerate(self.blocks):
            here = [(one.parts[w], one.variable) for one in self.choices[b] if w in one.parts]
            if here and workload.max_share_per_gpu < 1:  # what is routed to the GPU
                routed = self.program.amount(f"routed_{b}_{w}", workload.max_share_per_gpu * block.many)
                self.program.at_most([(1.0, routed), *((-part, one) for part, one in here)], 0)
                here = [(1.0, routed)]
            self.carried[b, w] = here
            total += here
        if self.planned_rps[w] > 0:
            offers = [(1.0, one) for (_, _, v), one in self.offer.items() if v == w]
            self.rated[w] = len(self.program.rows)
            self.program.at_most([(-part, one) for part, one in [*total, *offers]], (RELAXED if offers else LOOSE) - 1)
        replicas = [(float(one.replicas[w]), one.variable) for choices in self.choices for one in choices
                    if w in one.replicas]
        if workload.min_replicas and not self.open:
            self.program.at_most([(-many, one) for many, one in replicas], -workload.min_replicas)
        if workload.max_replicas is not None:
            self.program.at_most(replicas, workload.max_replicas)

    def _share_out(self, k: int, r: int) -> None:
        """Add rows: the workloads on open slots take no more than all that these slots have."""
        program, level = self.program, self.slots[k].opened[r]
        slots = [one for (_, *at), one in self.open.items() if at == [k, r]]
        able = np.flatnonzero(np.isfinite(level.time)).tolist()
        offers = {w: program.amount(f"offer_{k}_{r}_{w}", 1.0) for w in able}
        self.offer |= {(k, r, w): one for w, one in offers.items()}
        extra = {w: program.amount(f"extra_{k}_{r}_{w}", sum(program.variables[one].most for one in slots)
                                   * level.clients) for w in able if level.most[w] < 1}
        for w, processes in extra.items():
            program.at_most([(1.0, offers[w]), (-float(level.most[w]), processes)], RELAXED)
        if extra:
            program.at_most([*((1.0, one) for one in extra.values()), *((-float(level.clients), one) for one in slots)],
                            0)
        program.at_most([*((float(level.time[w]), one) for w, one in offers.items()), *((-1.0, one) for one in slots)],
                        RELAXED)

    def _keep_worths(self) -> None:
        """Add rows: what a slot carries is worth at most 1."""
        every = range(len(self.instance.workloads))
        for k, slots in enumerate(self.slots):
            opened = [(-1.0, one) for (_, at, _), one in self.open.items() if at == k]
            for worth in slots.worths if opened else ():
                offers = [(float(worth[w]), one) for (at, _, w), one in self.offer.items() if at == k]
                self.program.at_most([*offers, *opened], RELAXED)
        for b, k in ((b, one.slice_type) for b, shared in enumerate(self.shared) for one in shared):
            for worth in self.slots[k].worths if self.slots[k].stated else ():
                here = [(float(worth[w]) * part, one) for w in every for part, one in self.carried[b, w]]
                self.program.at_most([*here, (-1.0, self.used[b])], RELAXED * self.blocks[b].many)

    def _aim(self, best: float | None, bound: float | None) -> None:
        """Set the objective, with rows that say what is known, and that equal GPUs stand in descending order of a
        weighted sum of what they hold, used ones first.
        """
        held = [[(float(1 + min(one.parts) if one.pattern is None else at + 1), one.variable)
                 for at, one in enumerate(choices)] for choices in self.choices]
        for b in (b for b in range(1, len(self.blocks)) if self.blocks[b] == self.blocks[b - 1]):
            self.program.at_most([(1.0, self.used[b]), (-1.0, self.used[b - 1])], 0)
            self.program.at_most([*held[b], *((-number, one) for number, one in held[b - 1])], 0)
        objective, program = objective_of(self.instance), self.program
        terms = [(objective.weight(self.instance.fleet[block.entry]), one)
                 for block, one in zip(self.blocks, self.used, strict=True)]
        if self.counted:
            terms = [(-one.rps, one.variable) for choices in self.choices for one in choices]
            terms += [(-self.slots[k].most_rps, one) for (_, k, _), one in self.open.items()
                      if self.slots[k].most_rps < np.inf]  # else nothing is bounded yet
        program.objective = terms
        scale = max((abs(weight) for weight, _ in terms), default=0.0) or 1.0
        if best is not None and np.isfinite(best):
            program.at_most([(weight / scale, one) for weight, one in terms], (best + RELAXED * abs(best)) / scale)
        if bound is not None and np.isfinite(bound) and not self.counted:
            program.at_most([(-weight / scale, one) for weight, one in terms], -bound / scale * (1 - TOLERANCE))

    def plan(self, values: Values, name: str, edges: dict[Base, list[float]]) -> Plan | None:
        """The plan of a solution; None if equal GPUs are together, or replicas break an SLO or carry less than they
        claim. Then ``refuted`` or ``edges`` have got what refines the model.
        """
        if any(block.many > 1 for block in self.blocks) or any(values[one] > 0.5 for one in self.open.values()):
            return None
        gpus, valid = list[Held](), True
        for b in range(len(self.blocks)):
            chosen = defaultdict[int, list[SlicePattern]](list)
            for one in self.choices[b]:
                chosen[one.slice_type] += [one.pattern] * round(values[one.variable]) if one.pattern else []
            for shared in self.shared[b]:
                held = [(point, round(values[one])) for point, one in enumerate(shared.x) if values[one] > 0.5]
                pattern = self._pattern(shared, held, edges) if held else None
                valid = valid and (not held or pattern is not None)
                chosen[shared.slice_type] += [] if pattern is None else [pattern]
            stood = [(k, s) for (at, k, s), place in self.place.items() if at == b and values[place] > 0.5]
            gpus.append([(self.slots[k].slice_type.profile, s, chosen[k].pop()) for k, s in stood if chosen[k]])
        return plan_of(self.instance, [block.entry for block in self.blocks], gpus, name) if valid else None

    def _pattern(self, shared: Shared, held: Sequence[tuple[int, int]], edges: dict[Base, list[float]]
                 ) -> SlicePattern | None:
        """The pattern of a GPU with points, at the rates that its replicas carry by the performance model. If they
        break an SLO, None, and it is refuted; if they carry less than their points claim, levels get edges.
        """
        table, replicas, valid = shared.table, list[PatternReplica](), True
        at = np.repeat([point for point, _ in held], [many for _, many in held])
        hold_ms = table.hold_ms(at, len(at), np.maximum(table.demand[at].sum(axis=0) - table.demand[at], 0.0))
        for one, hold in zip(at.tolist(), hold_ms.tolist(), strict=True):
            (w, model, batch, units), latency_ms = table.base(one), np.array([table.load_ms[one] + hold])
            workload = self.instance.workloads[w]
            budget_ms = self.instance.budget_ms(workload) * (1 + TOLERANCE)
            carried = float(self.instance.policy.rule_for(workload).capacity_rps(
                np.array([batch]), 1, np.array([hold]), latency_ms, budget_ms)[0]) if latency_ms <= budget_ms else 0.0
            valid = valid and hold <= table.room_ms[one] * (1 + LOOSE) and carried > 0
            claimed = table.rps[one] if self.counted else table.part[one] * self.planned_rps[w]
            if carried < claimed * (1 - RELAXED) and np.isfinite(hold):
                edges[table.base(one)].append(hold * (1 - RELAXED))
            replicas.append(PatternReplica(w, model, batch, 1, share_of_units(1 / table.limit, float(units)), carried))
        models = [self.instance.workloads[one.workload].models[one.model] for one in replicas]
        if self.instance.sharing_of(table.data.gpu, models) is not table.data:
            return None
        if not valid:
            self.refuted.append((shared.slice_type, shared.number, tuple(
                (table.base(point), float(table.room_ms[point]), many) for point, many in held)))
            return None
        return SlicePattern(tuple(replicas))
