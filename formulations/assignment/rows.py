"""The assignment model: GPUs, MIG slots on their memory positions, what each slot holds, and the routed rates.

A slot holds a pattern, or replicas at operating points that share its units, whose interference is stated by linear
rows. Equal GPUs may be stated one by one, or together: the sum of their rows is a relaxation without symmetry.

    memory slices   sum of places that cover a memory slice             <=  used GPUs
    compute slices  sum of compute slices of places                     <=  those of used GPUs
    contents        patterns + slots with points                        <=  places
    units, clients, memory of the points in a slot                      <=  those of the slot
    deadlines       see `points`
    rates           sum of the parts of a workload's rate               >=  1
    worths          sum of worth * part                                 <=  1 for each slot
    replicas        between min_replicas and max_replicas
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.points import Points, keep_deadlines
from provision.formulations.assignment.slots import Held, SlicePattern, Slots, parts_of, plan_of
from provision.formulations.linear.description import Description, Terms, Values
from provision.models.base.arrays import Floats
from provision.models.base.tolerances import LOOSE, RELAXED, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import carried_rps, predict_slice

Places = dict[tuple[int, int, int], int]
"""Variables by block, slice type and start."""


class Block(NamedTuple):
    """Equal GPUs that are stated together: the index of their fleet entry, and their number."""

    entry: int
    many: int


class Choice(NamedTuple):
    """What slots hold: a pattern, or a replica at a point of a table. ``variable`` counts it. Each one carries
    ``parts`` (workloads,) of the rates with ``number`` (workloads,) replicas, and could carry ``rps`` requests/s.
    """

    variable: int
    slice_type: int
    parts: Floats
    number: Floats
    rps: float
    pattern: SlicePattern = ()
    at: tuple[Points, int] | None = None


class Model:
    """The statement of an instance.

    ``used[b]`` counts the used GPUs of block b, ``place[b, k, s]`` its slots of type k that start at memory slice s,
    ``rated[w]`` is the row by which the rate of workload w is carried. ``best`` and ``bound`` are the known value of a
    plan and the known bound.
    """

    def __init__(self, instance: Instance, slots: Sequence[Slots], blocks: Sequence[Block], best: float | None = None,
                 bound: float | None = None) -> None:
        self.instance, self.slots, self.blocks = instance, slots, blocks
        self.program, self.counted = Description(), instance.objective == THROUGHPUT
        self.planned_rps = [instance.planned_rps(one) for one in instance.workloads]
        self.used = [self.program.whole(f"used_{b}", block.many) for b, block in enumerate(blocks)]
        self.place, self.rated = Places(), dict[int, int]()
        self.choices: list[list[Choice]] = [[] for _ in blocks]
        self.carried: dict[tuple[int, int], Terms] = {}
        for b, block in enumerate(blocks):
            self._add_slots(b, block)
        for w in range(len(instance.workloads)):
            self._serve(w)
        self._keep_worths()
        self._aim(best, bound)

    def _add_slots(self, b: int, block: Block) -> None:
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
                parts, number = parts_of(self.instance, pattern)
                self.choices[b].append(Choice(variable, k, np.minimum(parts, 1), number,
                                              sum(one.rate_rps for one in pattern), pattern))
            filled += [self._add_points(b, k, table, block.many) for table in slots.tables]
            program.at_most([*((1.0, one) for one in filled), *((-1.0, one) for _, one in placed)], 0)

    def _add_points(self, b: int, k: int, table: Points, many: int) -> int:
        """Add the replicas at points of GPUs; return the variable that counts GPUs with points."""
        program, gpu, name = self.program, table.limits, f"{b}_{k}_{len(self.program.rows)}"
        mode = program.whole(f"mode_{name}", many)
        x = [program.whole(f"x_{name}_{point}", many * most) for point, most in enumerate(table.most.tolist())]
        for taken, limit in ((table.at.units, gpu.limit), (np.ones(len(x)), gpu.most), (table.memory, 1 + LOOSE)):
            program.at_most([*zip(taken.astype(float).tolist(), x, strict=True), (-limit, mode)], 0)
        if many == 1:
            keep_deadlines(program, name, table, x, [self._taken(one) for one in x])
        each = np.eye(len(self.planned_rps))[table.workload]
        self.choices[b] += [Choice(variable, k, each[point] * table.part[point], each[point], float(table.rps[point]),
                                   at=(table, point)) for point, variable in enumerate(x)]
        return mode

    def _taken(self, x: int) -> int:
        """A variable that is 1 if ``x`` is 1 or more."""
        variable = self.program.variables[x]
        if variable.most == 1:
            return x
        found = self.program.whole(f"{variable.name}_taken", 1)
        self.program.at_most([(1.0, x), (-variable.most, found)], 0)
        return found

    def _serve(self, w: int) -> None:
        """Add rows: a workload's rate is carried, no GPU carries more than the largest share of it, and its replicas
        are between its min_replicas and its max_replicas.
        """
        workload, total = self.instance.workloads[w], list[tuple[float, int]]()
        for b, block in enumerate(self.blocks):
            here = [(float(one.parts[w]), one.variable) for one in self.choices[b] if one.parts[w]]
            if here and workload.max_share_per_gpu < 1:  # what is routed to the GPU
                routed = self.program.amount(f"routed_{b}_{w}", workload.max_share_per_gpu * block.many)
                self.program.at_most([(1.0, routed), *((-part, one) for part, one in here)], 0)
                here = [(1.0, routed)]
            self.carried[b, w] = here
            total += here
        if self.planned_rps[w] > 0:
            self.rated[w] = len(self.program.rows)
            self.program.at_most([(-part, one) for part, one in total], LOOSE - 1)
        replicas = [(float(one.number[w]), one.variable) for choices in self.choices for one in choices]
        if workload.min_replicas:
            self.program.at_most([(-many, one) for many, one in replicas], -workload.min_replicas)
        if workload.max_replicas is not None:
            self.program.at_most(replicas, workload.max_replicas)

    def _keep_worths(self) -> None:
        """Add rows: what a GPU carries is worth at most 1."""
        for b, block in enumerate(self.blocks):
            for worth in (one.worth for one in self.slots if one.slice_type.entry == block.entry):
                if worth is not None:
                    here = [(part * number, one) for w, part in enumerate(worth.tolist())
                            for number, one in self.carried[b, w]]
                    self.program.at_most([*here, (-1.0, self.used[b])], RELAXED * block.many)

    def _aim(self, best: float | None, bound: float | None) -> None:
        """Set the objective, with rows that say what is known, and that equal GPUs stand in descending order of a
        weighted sum of what they hold, used ones first.
        """
        held = [[(at + 1.0, one.variable) for at, one in enumerate(choices)] for choices in self.choices]
        for b in (b for b in range(1, len(self.blocks)) if self.blocks[b] == self.blocks[b - 1]):
            self.program.at_most([(1.0, self.used[b]), (-1.0, self.used[b - 1])], 0)
            self.program.at_most([*held[b], *((-number, one) for number, one in held[b - 1])], 0)
        objective, program = objective_of(self.instance), self.program
        terms = [(objective.weight(self.instance.fleet[block.entry]), one)
                 for block, one in zip(self.blocks, self.used, strict=True)]
        if self.counted:
            terms = [(-one.rps, one.variable) for choices in self.choices for one in choices]
        program.objective = terms
        scale = max((abs(weight) for weight, _ in terms), default=0.0) or 1.0
        if best is not None and np.isfinite(best):
            program.at_most([(weight / scale, one) for weight, one in terms], (best + RELAXED * abs(best)) / scale)
        if bound is not None and np.isfinite(bound) and not self.counted:
            program.at_most([(-weight / scale, one) for weight, one in terms], -bound / scale * (1 - TOLERANCE))

    def plan(self, values: Values, name: str) -> Plan | None:
        """The plan of a solution; None if equal GPUs are together, or replicas break an SLO or carry less than they
        claim. Then slots have got the edges that refine the model.
        """
        if any(block.many > 1 for block in self.blocks):
            return None
        gpus = list[Held]()
        for b in range(len(self.blocks)):
            chosen = defaultdict[int, list[SlicePattern]](list)
            points = defaultdict[int, list[tuple[Points, int]]](list)
            for one in self.choices[b]:
                many = round(values[one.variable])
                chosen[one.slice_type] += [one.pattern] * many if one.pattern else []
                points[one.slice_type] += [one.at] * many if one.at else []
            for k, held in points.items():
                chosen[k] += [self._pattern(self.slots[k], held)] if held else []
            stood = [(k, s) for (at, k, s), place in self.place.items() if at == b and values[place] > 0.5]
            gpus.append([(self.slots[k].slice_type.profile, s, chosen[k].pop()) for k, s in stood if chosen[k]])
        return plan_of(self.instance, [block.entry for block in self.blocks], gpus, name)

    def _pattern(self, slots: Slots, held: Sequence[tuple[Points, int]]) -> SlicePattern:
        """The pattern of a GPU with points, at the rates that its replicas carry by the performance model, 0 where they
        break an SLO. If they carry less than their points claim, levels get edges.
        """
        instance, replicas = self.instance, list[Replica]()
        claimed = [table.run[at].model_copy(update={"rate_rps": float(
            table.rps[at] if self.counted else table.part[at] * self.planned_rps[table.workload[at]])})
            for table, at in held]
        told = predict_slice(instance, slots.entry.gpu, Slice(profile=WHOLE, replicas=tuple(claimed)))
        for (table, at), one, found in zip(held, claimed, told, strict=True):
            budget_ms = instance.budget_ms(instance.workload[one.workload]) * (1 + TOLERANCE)
            carried = carried_rps(instance, one, found) if found and found.latency_ms <= budget_ms else 0.0
            if found and carried < one.rate_rps * (1 - RELAXED):
                busy_ms = 1000 * one.batch / found.throughput_rps - float(table.at.after_ms[at])
                slots.edges[table.run[at]].add(busy_ms * (1 - RELAXED))
            replicas.append(one.model_copy(update={"rate_rps": carried}))
        return tuple(replicas)
