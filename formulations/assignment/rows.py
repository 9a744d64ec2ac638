"""The assignment model: GPUs, MIG slots on their memory positions, what each slot holds, and the routed rates.

A slot holds a column (a pattern of replicas that is known to be valid), or replicas at operating points that share the
slot's units, whose interference is stated by linear rows, or it is open (a relaxation). Equal GPUs may be stated one by
one, or together: the sum of their rows is a relaxation without symmetry.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.columns import Columns
from provision.formulations.assignment.dealt import Held, plan_of
from provision.formulations.assignment.description import Description, Values
from provision.formulations.assignment.patterns import (
    Criteria,
    PatternReplica,
    SlicePattern,
    capacity_rps,
    most_slices,
    slice_types_of,
    undominated,
)
from provision.formulations.assignment.points import (
    Base,
    ColocatedPoints,
    IgniterPoints,
    Points,
    interfering,
    points_of,
)
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import LOOSE, RELAXED, TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.sm_shares import share_of_units
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of

SEGMENTS, RATIO = 6, 2.0
"""The segments of a sum of demands, each with its chord of the norm, and the ratio of their successive ends."""
ENDLESS = 1e4
"""The most requests/s, as a multiple of the planned rate, that open slices count for the most throughput."""

Copies = tuple[tuple[int, int], ...]
"""What a GPU holds: pairs of the index of a point and the number of replicas at it."""


Places = dict[tuple[int, int, int], int]
"""Variables by block, slice type, and a further index."""


class Block(NamedTuple):
    """Equal GPUs that are stated together: the index of their fleet entry, and their number."""

    entry: int
    many: int


class AllowedPatterns:
    """The patterns that the slots of a fleet may hold.

    ``points`` are those of each slice type, one table for each data file. ``refuted`` are patterns of whole GPUs, by
    slice type and table, that rows admit and performance models refute; so they refute what holds more, too. ``edges``
    are ends of levels (see `points`).
    """

    def __init__(self, instance: Instance, columns: Columns) -> None:
        self.instance, self.columns, self.criteria = instance, columns, Criteria(instance)
        self.slice_types: list[SliceType] = slice_types_of(instance)
        self.counted = instance.objective == THROUGHPUT
        self.refuted: dict[tuple[int, int], list[tuple[tuple[Base, float, int], ...]]] = defaultdict(list)
        self.edges: dict[Base, list[float]] = defaultdict(list)
        self.list_points()

    @property
    def bounded(self) -> bool:
        """Whether every plan is a solution of the model with open slices."""
        return not self.columns.unbounded

    @property
    def opened(self) -> bool:
        """Whether there are open slices."""
        return any(self.columns.opened)

    def list_points(self) -> None:
        """List the points anew, with the present ``edges``."""
        self.points: list[list[Points]] = []
        for slice_type in self.slice_types:
            entry = self.instance.fleet[slice_type.entry]
            files = interfering(self.instance, entry) if slice_type.profile == WHOLE else []
            tables = [points_of(self.instance, entry, data, self.edges) for data in files]
            self.points.append([one for one in tables if one is not None])

    def can(self, w: int) -> bool:
        """Whether some slot can serve a workload."""
        return (any(one.workload == w for patterns in self.columns.patterns for column in patterns
                    for one in column.replicas)
                or any(w in table.workload for tables in self.points for table in tables)
                or any(np.isfinite(one.time[w]) for opened in self.columns.opened for one in opened))

    def pattern(self, k: int, table: Points, held: Copies) -> SlicePattern | None:
        """The pattern of a GPU with points, at the rates that its replicas carry by the performance model. If they
        break an SLO, None, and the pattern is refuted; if they carry less than their points claim, levels get edges.
        """
        at = np.repeat([point for point, _ in held], [many for _, many in held])
        others = table.demand[at].sum(axis=0) - table.demand[at]
        hold_ms = table.hold_ms(at, len(at), np.maximum(others, 0.0))
        replicas, valid = [], True
        for one, hold in zip(at.tolist(), hold_ms.tolist(), strict=True):
            w, batch = int(table.workload[one]), table.batch[[one]]
            workload = self.instance.workloads[w]
            latency_ms = np.array([table.load_ms[one] + hold])
            carried = float(capacity_rps(self.instance, workload, batch, latency_ms, 1000 * batch / hold)[0])
            valid = valid and hold <= table.room_ms[one] * (1 + LOOSE) and carried > 0
            claimed = table.rps[one] if self.counted else table.part[one] * self.criteria.planned_rps[w]
            if carried < claimed * (1 - RELAXED):
                self.edges[w, int(table.model[one]), int(batch[0]), int(table.units[one])].append(hold * (1 - RELAXED))
            share = share_of_units(1 / table.limit, float(table.units[one]))
            replicas.append(PatternReplica(w, int(table.model[one]), int(batch[0]), 1, share, carried))
        models = [self.instance.workloads[one.workload].models[one.model] for one in replicas]
        if self.instance.sharing_of(table.data.gpu, models) is not table.data:
            return None
        if not valid:
            self.refuted[k, self.points[k].index(table)].append(tuple(
                (self._base(table, point), float(table.room_ms[point]), many) for point, many in held))
            return None
        return SlicePattern(tuple(replicas), sum(one.capacity_rps for one in replicas))

    @staticmethod
    def _base(table: Points, point: int) -> Base:
        return (int(table.workload[point]), int(table.model[point]), int(table.batch[point]), int(table.units[point]))

    def refuted_here(self, k: int, f: int) -> Iterator[Copies]:
        """Yield the refuted patterns of a table, by the present indices of points. A point with a longer deadline is
        at another level: patterns are refuted at the levels that they had.
        """
        table = self.points[k][f]
        index = {(self._base(table, point), float(room)): point for point, room in enumerate(table.room_ms)}
        for pattern in self.refuted[k, f]:
            if all((base, room) in index for base, room, _ in pattern):
                yield tuple((index[base, room], many) for base, room, many in pattern)


class Model:
    """The statement of an instance. ``x[b, k, f]`` are the variables of the points of table f on GPUs of block b,
    ``place[b, k, s]`` counts slices of type k that start at memory slice s, ``count[b, k, q]`` their columns, ``mode[b,
    k, f]`` slots that hold points, ``open[b, k, r]`` open slices by relaxation r.
    """

    def __init__(self, allowed: AllowedPatterns, blocks: Sequence[Block], weights: Floats | None, opened: bool,
                 best: float | None, bound: float) -> None:
        self.allowed, self.instance, self.blocks = allowed, allowed.instance, blocks
        self.program, self.criteria = Description(), allowed.criteria
        self.used, self.rated, self.filled = list[int](), dict[int, int](), dict[tuple[int, int], int]()
        self.place, self.count, self.mode = Places(), Places(), Places()
        self.x: dict[tuple[int, int, int], list[int]] = {}
        self.kept: dict[tuple[int, int, int], Ints] = {}
        self.open, self.offer, self.extra = Places(), Places(), Places()
        self.parts = [self._parts(patterns) for patterns in allowed.columns.patterns]
        for b, block in enumerate(blocks):
            self.used.append(self.program.whole(f"used_{b}", block.many))
            self._slots(b, block, opened)
        if opened:
            for k in range(len(allowed.slice_types)):
                self._share_out(k)
        for w in range(len(self.instance.workloads)):
            self._carry_rate(w)
            self._keep_replicas(w)
        self._order()
        self._aim(weights, best, bound)

    def _parts(self, patterns: Sequence[SlicePattern]) -> tuple[Floats, Ints]:
        """(columns, workloads) the fractions of the planned rates that columns carry, and their replicas."""
        parts, replicas = np.zeros((2, len(patterns), len(self.instance.workloads)))
        for q, pattern in enumerate(patterns):
            for one in pattern.replicas:
                planned = self.criteria.planned_rps[one.workload]
                parts[q, one.workload] += one.capacity_rps / planned if planned else 1.0
                replicas[q, one.workload] += 1
            if not pattern.routed:
                parts[q] = np.minimum(parts[q], 1.0)
        return parts, replicas.astype(int)

    def _slots(self, b: int, block: Block, opened: bool) -> None:
        """Add the slots of a block: no two overlap in memory, compute slices and instances are limited, and each holds
        one thing.
        """
        entry, program, slice_types = self.instance.fleet[block.entry], self.program, self.allowed.slice_types
        mine = [k for k, one in enumerate(slice_types) if one.entry == block.entry]
        starts = {k: (0,) if slice_types[k].profile == WHOLE else entry.type.profiles[slice_types[k].profile].starts
                  for k in mine}
        here = {(k, s): program.whole(f"place_{b}_{k}_{s}", block.many) for k in mine for s in starts[k]}
        self.place |= {(b, *at): place for at, place in here.items()}
        mig = entry.type.mig if entry.partitioned else None
        for slot in range(mig.memory_slices if mig else 1):
            over = [(1.0, place) for (k, s), place in here.items() if s <= slot < s + slice_types[k].memory]
            program.at_most([*over, (-1, self.used[b])], 0)
        if mig:
            held = [(float(slice_types[k].compute), place) for (k, _), place in here.items()]
            program.at_most([*held, (-mig.compute_slices, self.used[b])], 0)
        for k in mine:
            most = most_slices(self.instance, slice_types[k]) * block.many
            placed = [(1.0, here[k, s]) for s in starts[k]]
            if len(placed) > 1:
                program.at_most(placed, most)
            filled = []
            for q in range(len(self.allowed.columns.patterns[k])):
                self.count[b, k, q] = program.whole(f"count_{b}_{k}_{q}", most)
                filled.append((1.0, self.count[b, k, q]))
            for f, table in enumerate(self.allowed.points[k]):
                self.mode[b, k, f] = program.whole(f"mode_{b}_{k}_{f}", most)
                filled.append((1.0, self.mode[b, k, f]))
                self._fill(b, k, f, table, block.many)
            for r in range(len(self.allowed.columns.opened[k]) if opened else 0):
                self.open[b, k, r] = program.whole(f"open_{b}_{k}_{r}", most)
                filled.append((1.0, self.open[b, k, r]))
            self.filled[b, k] = len(program.rows)
            program.at_most([*filled, *((-number, place) for number, place in placed)], 0)

    def _fill(self, b: int, k: int, f: int, table: Points, many: int) -> None:
        """Add the replicas at points of whole GPUs: units, clients, memory, and on a GPU by itself interference."""
        program, kept = self.program, np.arange(len(table.batch))
        if many > 1:  # without rows of interference, a point that takes less and carries more dominates
            criteria = [table.units, table.memory_gib, -table.part, -table.rps * self.allowed.counted]
            columns = [np.column_stack(criteria)[table.workload == w] for w in np.unique(table.workload)]
            kept = np.concatenate([np.flatnonzero(table.workload == w)[undominated(costs)]
                                   for w, costs in zip(np.unique(table.workload), columns, strict=True)])
        self.kept[b, k, f] = kept
        self.x[b, k, f] = x = [program.whole(f"x_{b}_{k}_{f}_{point}", many * table.most[point])
                               for point in kept.tolist()]
        mode, part = self.mode[b, k, f], table.only(kept)
        program.at_most([*zip(part.units.astype(float).tolist(), x, strict=True), (-table.limit, mode)], 0)
        program.at_most([*((1.0, one) for one in x), (-table.clients, mode)], 0)
        if part.memory_gib.any():
            memory_gib = (part.memory_gib / table.memory_limit_gib).tolist()
            program.at_most([*zip(memory_gib, x, strict=True), (-1 - LOOSE, mode)], 0)
        if many == 1:
            taken = [self._at_least(one, 1) for one in x]
            if isinstance(part, IgniterPoints):
                self._tolerate_igniter(f"{b}_{k}_{f}", part, x, taken)
            elif isinstance(part, ColocatedPoints):
                self._tolerate_demands(f"{b}_{k}_{f}", part, x, taken)
            for held in self.allowed.refuted_here(k, f):
                program.at_most([(1.0, self._at_least(x[point], copies)) for point, copies in held], len(held) - 1)

    def _at_least(self, x: int, copies: int) -> int:
        """A variable that is 1 if ``x`` is at least ``copies``."""
        variable = self.program.variables[x]
        if variable.most == copies == 1:
            return x
        found = self.program.whole(f"{variable.name}_from_{copies}_{len(self.program.variables)}", 1)
        self.program.at_most([(1.0, x), (-(variable.most - copies + 1), found)], copies - 1)
        return found

    def _tolerate_igniter(self, name: str, points: IgniterPoints, x: Sequence[int], taken: Sequence[int]) -> None:
        """Add the rows of iGniter's model: each point keeps its deadline beside its neighbours, exactly.

        Levels (neighbours, L2 utilisation, power above the cap) have only lower rows: a level above the true amount
        only makes other rows harder to keep.
        """
        program, hardware, members = self.program, points.data.hardware, [(1.0, one) for one in x]
        shared = program.whole(f"shared_{name}", 1)
        program.at_most([*members, (-(points.clients - 1), shared)], 1)
        program.at_most([(2.0, shared), *((-1.0, one) for one in x)], 0)
        others = self._level(f"others_{name}", members, 1, points.clients)
        cache, power = points.demand.T
        used = self._level(f"cache_{name}", list(zip(cache.tolist(), x, strict=True)), 0, self._fullest(points, cache))
        power, left = power / hardware.power_cap_w, 1 - hardware.idle_power_w / hardware.power_cap_w
        excess = self._level(f"excess_{name}", list(zip(power.tolist(), x, strict=True)), left,
                             max(self._fullest(points, power) - left, 0.0))
        per_neighbour, per_sharing, per_cache, per_excess, room = points.coefficients()
        for at, when in enumerate(taken):
            program.at_most([(per_neighbour[at], others), (per_sharing[at], shared), (per_cache[at], used),
                             (per_excess[at], excess)], room[at], when)

    def _tolerate_demands(self, name: str, points: ColocatedPoints, x: Sequence[int], taken: Sequence[int]) -> None:
        """Add the rows of the co-location model, which are linear in norms of the neighbours' demands.

        With S the sum of the neighbours' demands of a resource, a replica feels the norm S^(1/r). The range of S is
        divided into segments; binary variables choose the one in which S lies, and there the chord of the root, which
        lies below it, bounds the norm. So the rows exclude no plan. Neighbours of the same workload count beyond their
        points' demands, once each.
        """
        program, per_norm = self.program, points.per_norm()
        norms: dict[int, list[int]] = {}
        totals = []
        for one, demand in enumerate(points.demand.T):
            most = float(self._fullest(points, demand))
            totals.append((most, self._level(f"demand_{name}_{one}", list(zip(demand.tolist(), x, strict=True)), 0,
                                             most)))
        for w in np.unique(points.workload).tolist():
            mine = np.flatnonzero(points.workload == w).tolist()
            norms[w] = [self._norm(f"{name}_{w}_{one}", most, total,
                                   [(-float(points.demand[at, one]), taken[at]) for at in mine],
                                   points.data.norm_order) for one, (most, total) in enumerate(totals)]
        for at, when in enumerate(taken):
            felt, largest = norms[int(points.workload[at])], max(1.0, float(per_norm[at].max()))
            program.at_most([(float(per) / largest, norm) for per, norm in zip(per_norm[at], felt, strict=True)],
                            (1 + LOOSE) / largest, when)

    def _norm(self, name: str, most: float, total: int, own: Sequence[tuple[float, int]], order: float) -> int:
        """A variable that is at least a chord of the norm of ``total`` less a workload's ``own`` demands."""
        program = self.program
        others = self._level(f"others_{name}", [(1.0, total), *own], 0, most)
        norm = program.amount(f"norm_{name}", most ** (1 / order))
        ends = [0.0, *(most / RATIO**step for step in range(SEGMENTS - 1, -1, -1))]
        here = [program.whole(f"segment_{name}_{at}", 1) for at in range(SEGMENTS)]
        program.at_most([(-1.0, one) for one in here], -1)
        for one, (low, high) in zip(here, pairwise(ends), strict=True):
            if high > low:
                slope = (high ** (1 / order) - low ** (1 / order)) / (high - low)
                program.at_most([(1.0, others)], high * (1 + RELAXED), one)
                program.at_most([(slope, others), (-1.0, norm)], slope * low - low ** (1 / order), one)
        return norm

    def _level(self, name: str, terms: Sequence[tuple[float, int]], beyond: float, most: float) -> int:
        """An amount that is at least ``terms - beyond``, and at most ``most``."""
        level = self.program.amount(name, most * (1 + RELAXED))
        self.program.at_most([*terms, (-1.0, level)], beyond)
        return level

    @staticmethod
    def _fullest(points: Points, demand: Floats) -> float:
        """The largest sum of a demand within the units of a GPU, by any replicas: an unbounded knapsack."""
        best = np.zeros(points.limit + 1)
        densest = np.zeros(points.limit + 1)
        np.maximum.at(densest, points.units, demand)
        for units in range(1, points.limit + 1):
            best[units] = max(best[units - own] + densest[own] for own in range(units + 1) if own or not units)
        return float(best.max(initial=0.0))

    def _share_out(self, k: int) -> None:
        """Add rows: the workloads on open slices take no more than all that these slices have, at each level."""
        program, columns = self.program, self.allowed.columns
        for r, level in enumerate(columns.opened[k]):
            slices = [variable for (_, at, which), variable in self.open.items() if (at, which) == (k, r)]
            if not slices:
                return
            most = sum(program.variables[one].most for one in slices) * level.clients
            able = np.flatnonzero(np.isfinite(level.time)).tolist()
            for w in able:
                self.offer[k, r, w] = offer = program.amount(f"offer_{k}_{r}_{w}",
                                                             ENDLESS if self.allowed.counted else 1.0)
                if level.most[w] < 1 or self.instance.workloads[w].min_replicas > 1:
                    self.extra[k, r, w] = program.amount(f"extra_{k}_{r}_{w}", most)
                    program.at_most([(1.0, offer), (-float(level.most[w]), self.extra[k, r, w])], RELAXED)
            here = [(1.0, one) for (at, which, _), one in self.extra.items() if (at, which) == (k, r)]
            program.at_most([*here, *((-float(level.clients), one) for one in slices)], 0)
            time = [(float(level.time[w]), self.offer[k, r, w]) for w in able]
            program.at_most([*time, *((-1.0, one) for one in slices)], RELAXED)
        for worth in columns.worths[k]:
            offers = [(float(worth[w]), one) for (at, _, w), one in self.offer.items() if at == k]
            program.at_most([*offers, *((-1.0, one) for (_, at, _), one in self.open.items() if at == k)], RELAXED)

    def _on(self, b: int, w: int, routed: bool = False) -> list[tuple[float, int]]:
        """Terms: the part of a workload's rate that a block carries. If ``routed``, only columns at fixed rates."""
        terms = []
        for (at, k, q), count in self.count.items():
            if at == b and self.parts[k][0][q, w] and (not routed or self.allowed.columns.patterns[k][q].routed):
                terms.append((float(self.parts[k][0][q, w]), count))
        for (at, k, f), x in self.x.items() if not routed else ():
            if at == b:
                table, kept = self.allowed.points[k][f], self.kept[at, k, f]
                terms += [(float(table.part[point]), one) for point, one in zip(kept.tolist(), x, strict=True)
                          if table.workload[point] == w]
        return terms

    def _carry_rate(self, w: int) -> None:
        """Add rows: a workload's rate is carried, and no GPU carries more than the largest share of it."""
        if self.criteria.planned_rps[w] == 0:
            return
        offers = [(-1.0, one) for (_, _, v), one in self.offer.items() if v == w]
        share, carried = self.instance.workloads[w].max_share_per_gpu, list[tuple[float, int]]()
        for b, block in enumerate(self.blocks):
            here = self._on(b, w)
            if share < 1 and here:
                routed = self.program.amount(f"routed_{b}_{w}", share * block.many)
                self.program.at_most([(1.0, routed), *((-part, one) for part, one in here)], 0)
                if block.many == 1:
                    self.program.at_most(self._on(b, w, routed=True), share * (1 + LOOSE))
                here = [(1.0, routed)]
            carried += [(-part, one) for part, one in here]
        self.rated[w] = len(self.program.rows)
        self.program.at_most([*carried, *offers], (RELAXED if offers else LOOSE) - 1)

    def _keep_replicas(self, w: int) -> None:
        """Add rows: a workload's replicas are between its min_replicas and its max_replicas."""
        workload = self.instance.workloads[w]
        replicas = [(float(self.parts[k][1][q, w]), count) for (_, k, q), count in self.count.items()
                    if self.parts[k][1][q, w]]
        for (b, k, f), x in self.x.items():
            owner = self.allowed.points[k][f].workload[self.kept[b, k, f]]
            replicas += [(1.0, one) for one, v in zip(x, owner.tolist(), strict=True) if v == w]
        extra = [(1.0, one) for (_, _, v), one in self.extra.items() if v == w]
        if workload.min_replicas and (workload.min_replicas > 1 or not self.offer):
            self.program.at_most([(-many, one) for many, one in [*replicas, *extra]], -workload.min_replicas)
        if workload.max_replicas is not None:
            self.program.at_most(replicas, workload.max_replicas)

    def _order(self) -> None:
        """Add rows that break symmetry: the GPUs of an entry stand in descending order of a weighted sum of what they
        hold, used ones first.
        """
        for b in range(1, len(self.blocks)):
            if self.blocks[b] == self.blocks[b - 1] and self.blocks[b].many == 1:
                self.program.at_most([(1.0, self.used[b]), (-1.0, self.used[b - 1])], 0)
                if not self.open:
                    before = [(-number, one) for number, one in self._weighed(b - 1)]
                    self.program.at_most([*self._weighed(b), *before], 0)

    def _weighed(self, b: int) -> list[tuple[float, int]]:
        """Terms: a weighted sum of what a GPU holds."""
        terms, number = list[tuple[float, int]](), 0
        for (at, _, _), count in self.count.items():
            if at == b:
                number += 1
                terms.append((float(number), count))
        for (at, k, f), x in self.x.items():
            if at == b:
                owner = self.allowed.points[k][f].workload[self.kept[at, k, f]]
                terms += [(float(number + 1 + w), one) for one, w in zip(x, owner.tolist(), strict=True)]
        return terms

    def _aim(self, weights: Floats | None, best: float | None, bound: float) -> None:
        """Set the objective, with rows that say what is known: ``best`` is the value of a plan, ``bound`` a bound. With
        ``weights``, the workloads on a GPU weigh at most its price.
        """
        objective, program = objective_of(self.instance), self.program
        prices = [objective.weight(self.instance.fleet[block.entry]) for block in self.blocks]
        if self.allowed.counted:
            terms = [(-self.allowed.columns.patterns[k][q].throughput_rps, one)
                     for (_, k, q), one in self.count.items()]
            for at, x in self.x.items():
                table = self.allowed.points[at[1]][at[2]]
                terms += [(-float(table.rps[point]), one)
                          for point, one in zip(self.kept[at].tolist(), x, strict=True)]
            terms += [(-max(float(self.criteria.planned_rps[w]), 1.0), one) for (_, _, w), one in self.offer.items()]
        else:
            terms = list(zip(prices, self.used, strict=True))
        program.objective = terms
        scale = max((abs(weight) for weight, _ in terms), default=0.0) or 1.0
        if best is not None and np.isfinite(best):
            program.at_most([(weight / scale, one) for weight, one in terms], (best + RELAXED * abs(best)) / scale)
        if np.isfinite(bound) and not self.allowed.counted:
            program.at_most([(-weight / scale, one) for weight, one in terms], -bound / scale * (1 - TOLERANCE))
        for b, block in enumerate(self.blocks if weights is not None else ()):
            assert weights is not None
            on = [(float(weights[w]) / prices[b], one) for (at, k, f), x in self.x.items() if at == b
                  for w, one in zip(self.allowed.points[k][f].workload[self.kept[at, k, f]].tolist(), x, strict=True)]
            program.at_most([*on, (-1.0, self.used[b])], RELAXED * block.many)

    def plan(self, values: Values, name: str) -> Plan | None:
        """The plan of a solution; None if it has open slices, several GPUs with points in one block, or replicas that
        carry less than they claim.
        """
        if any(values[one] > 0.5 for one in self.open.values()):
            return None
        entries, gpus = list[int](), list[Held]()
        for b, block in enumerate(self.blocks):
            held = self._held(b, block, values)
            if held is None:
                return None
            gpus += held
            entries += [block.entry] * len(held)
        return plan_of(self.criteria, entries, gpus, name)

    def _held(self, b: int, block: Block, values: Values) -> list[Held] | None:
        """What the GPUs of a block hold: slices in the order of their starts, each on the first GPU with room."""
        chosen: dict[int, list[SlicePattern]] = defaultdict(list)
        for (at, k, q), count in self.count.items():
            if at == b:
                chosen[k] += [self.allowed.columns.patterns[k][q]] * round(values[count])
        for (at, k, f), x in self.x.items():
            if at == b:
                kept = self.kept[at, k, f].tolist()
                held = tuple((point, round(values[one])) for point, one in zip(kept, x, strict=True)
                             if values[one] > 0.5)
                pattern = None
                if held and (block.many > 1
                             or (pattern := self.allowed.pattern(k, self.allowed.points[k][f], held)) is None):
                    return None
                chosen[k] += [] if pattern is None else [pattern]
        return self._stood(b, block, chosen, values)

    def _stood(self, b: int, block: Block, chosen: Mapping[int, list[SlicePattern]], values: Values
               ) -> list[Held] | None:
        """The slices of a block on its GPUs; None if they do not fit. Intervals that overlap nowhere more than there
        are GPUs always do, by their starts (but the limits on compute slices may break).
        """
        slice_types, gpus = self.allowed.slice_types, [Held() for _ in range(block.many)]
        ends, compute = [0] * block.many, [0] * block.many
        mig = self.instance.fleet[block.entry].type.mig if self.instance.fleet[block.entry].partitioned else None
        places = sorted((s, k) for (at, k, s), place in self.place.items() if at == b
                        for _ in range(round(values[place])))
        for s, k in places:
            if chosen[k]:
                at = next((g for g in range(block.many) if ends[g] <= s and (
                    mig is None or compute[g] + slice_types[k].compute <= mig.compute_slices)), None)
                if at is None:
                    return None
                ends[at], compute[at] = s + slice_types[k].memory, compute[at] + slice_types[k].compute
                gpus[at].append((slice_types[k].profile, s, chosen[k].pop()))
        return [held for held in gpus if held]

