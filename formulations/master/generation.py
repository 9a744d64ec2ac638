"""Column generation for the master program: rounds of linear program and pricing, and the bound that they prove.

Each round solves the linear program over the columns so far, and then prices: the oracles search for patterns that are
worth more than their slice costs at the duals. If no such pattern exists, the linear program is solved over all
patterns.

Every round proves a bound (Lagrangian; for one GPU type Farley 1990). At any prices of slices and roles, the cheapest
replica sets of all workloads have a total price, and no GPU is worth more than its dearest partition. The quotient
bounds the number of GPUs. `type_counts` extends the bound to several GPU types, price tiers and counts. Prices are
rounded down to whole numbers before replica sets and patterns are priced, so that all sums are exact. Oracles tolerate
more than the verifier does, so that rounding never invalidates a bound.
"""

import math
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.bounds.type_counts import FINE, TypeCounts
from provision.formulations.master.breakpoints import Breakpoints
from provision.formulations.master.centre import NOTHING, Centre, averaged, centre_of, drawn
from provision.formulations.master.replica_sets import choices_by_group, forced_roles, priced_replica_sets
from provision.formulations.master.role_columns import MasterDuals, RoleColumns
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.register import oracles_of
from provision.formulations.pricing.types_pricing import TypesPricing
from provision.formulations.search.problem import Group, Problem
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.tolerances import DUST, TOLERANCE
from provision.models.problem.executor import IN_PROCESS, Executor


class PricedCut(NamedTuple):
    """Whole-number prices of slices and roles that raised the bound, and (types,) what no GPU is worth more than."""

    slice_types: NDArray[np.int64]
    roles: NDArray[np.int64]
    worth: list[int]


class Generation:
    """The columns for one Problem. ``bound`` is a proven lower bound in units of price.

    Parameters
    ----------
    problem
        The Problem.
    proves
        Whether the bounds are used. If so and there are several GPU types, columns are also generated for the numbers
        of GPUs of each type that the bound allows.
    centre
        Prices to begin with, and the bound that they prove.
    executor
        Where slice types are priced.
    """

    def __init__(self, problem: Problem, proves: bool = True, centre: Centre = NOTHING,
                 executor: Executor = IN_PROCESS) -> None:
        self.pricing = TypesPricing(problem, executor)
        self.problem, self.sharp = problem, proves and len(problem.pools) > 1
        self.slice_types = len(problem.segments.slice_types)
        single = forced_roles(problem)
        self.choices_of_groups = choices_by_group(problem, frozenset(single))
        forced, wanted = np.zeros(len(problem.roles), int), np.zeros(len(problem.groups), int)
        for at, group in enumerate(problem.groups):
            if at in single:
                forced[single[at]] += len(group.members)
            else:
                wanted[at] = len(group.members)
        self.forced, self.demanding = forced, np.flatnonzero(wanted)
        self.program, self.breakpoints = RoleColumns(problem, forced, wanted), Breakpoints(problem)
        self.scale = SCHEDULE.coarse if len(self.demanding) else FINE
        self.proof = TypeCounts(problem.pools, problem.most_gpus)
        self.proof.at_least(problem.spread_over)
        self.cuts: list[PricedCut] = []
        self.aim: tuple[int, ...] | None = None
        self.effort = 0 if len(self.demanding) else SCHEDULE.firm
        self.took_s, self.converged, self.round, self.excess = 0.0, False, 0, 0.0
        self.impossible = self.enough = False
        self.last: MasterDuals | None = None
        self.centre, self.inward = centre, SCHEDULE.inward
        for slice_type, oracles in oracles_of(problem).items():
            for oracle in oracles:
                self.program.add_patterns(slice_type, oracle.seeds())
        self._add_replica_sets(self._first_prices())

    @property
    def bound(self) -> float:
        """The proven lower bound, in units of price."""
        return self.proof.bound

    def units(self, found: MasterDuals) -> float:
        """The value of a linear program in units of price, less a tolerance for rounding."""
        return found.value * self.problem.dearest * (1 - TOLERANCE)

    @property
    def gap(self) -> float:
        """The relative gap between the bound of the central prices and the value of the last linear program. That is 0
        where the GPUs that are free of charge suffice.
        """
        return 1.0 if self.last is None else 1 - self.centre.value / max(self.last.value, self.centre.value, DUST)

    @property
    def near(self) -> bool:
        """Whether a finer grid of rates is likely to raise the bound more than further columns would."""
        value = 0.0 if self.last is None else self.last.value
        ahead = value * self.problem.dearest > self.bound * (1 + SCHEDULE.used)
        fair = len(self.problem.groups) > SCHEDULE.few and self.gap < SCHEDULE.fair  # the last GPUs take many rounds
        return self.converged or (0 < SCHEDULE.near * value <= self.centre.value and (fair or not ahead))

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Add columns until none is missing or the next round would exceed the time; yield the bound after every round.

        The first round always runs. The first call ends when more columns cannot raise the bound. Later calls add
        columns that only plans need.
        """
        while not self.converged and not self.impossible and (not self.round or self.took_s < until.left_s):
            watch, before = Stopwatch(), self.enough
            harder = self._round()
            self.took_s = watch.elapsed_s * (SCHEDULE.longer if harder else 1)
            self.effort = min(self.effort + harder, SCHEDULE.hardest)
            yield self.bound
            if self.enough and not before:
                return

    def _round(self) -> bool:
        """Run one round: solve the linear program, price at its duals, and go to the next stage if the present stage is
        over.

        Returns whether the oracles should use more effort in the next round.
        """
        found = self._with_replica_sets()
        if found is None:
            self.impossible = True
            return False
        self.last, self.round = found, self.round + 1
        exhaustive, new = self._priced(found, self._floor(found))
        split = self.breakpoints.split(found.spare)
        settled = not new and exhaustive
        if self.aim is None:
            if self._ended_stage(found, settled, split):
                return False
        else:
            aimed, self.aim = self.aim, self.proof.counts
            self.converged = self.aim is None or (self.aim == aimed and settled and not split)
        return not exhaustive and self._harder(new)

    def _floor(self, found: MasterDuals) -> float:
        """How far the value of a pattern must exceed its slice's price for the pattern to be added, in prices of the
        dearest GPU.
        """
        return SCHEDULE.slight if self.enough or self.aim is not None else self._slight(self.units(found))

    def _ended_stage(self, found: MasterDuals, settled: bool, split: bool) -> bool:
        """Go to the next stage of the search for the bound if the present stage is over; return whether a stage has
        just begun.

        The stages are: (1) until the bound cannot rise by whole GPUs, (2) the same with finer units of price, and (3)
        with the numbers of GPUs fixed at those that the bound allows.
        """
        units = self.units(found)
        done = not split and (settled or self.bound >= units)
        finer = self.scale * SCHEDULE.finer if self.scale < SCHEDULE.finest else None
        reached = self.bound >= math.ceil(units) and not (split and len(self.demanding))
        if not self.enough and (reached or (done and finer is None)):
            self.enough = True
            return True
        if done and finer is not None:
            self.scale = finer
            return True
        self.aim = self.proof.counts if done and self.sharp else None
        self.converged = done and self.aim is None
        return False

    def _harder(self, new: int) -> bool:
        """Whether oracles should use more effort, after a round that was not exhaustive and added ``new`` columns.

        While oracles cannot bound the value of patterns well, prices are first moved away from the central prices.
        """
        furthest = 1 - SCHEDULE.inward
        few = SCHEDULE.rest * (len(self.forced) + len(self.demanding)) if self.effort <= SCHEDULE.firm else 0
        weak, self.inward = self.inward > furthest, min(self.inward, furthest)
        return weak or new < max(few, 1)

    def _with_replica_sets(self) -> MasterDuals | None:
        """Solve the linear program, and add the cheapest replica sets at its prices until none is missing.

        Returns None if the columns cannot meet the demand. Often many prices are optimal. Their average then serves
        pricing better than any single optimum, so the prices of solutions of equal value are averaged.
        """
        found = central = self.program.relaxed(at=self.aim, breakpoints=self.breakpoints)
        same = 0
        for _ in range(SCHEDULE.turns if len(self.demanding) <= SCHEDULE.few else 0):
            if found is None or central is None or same == SCHEDULE.again:
                break
            if not self._add_replica_sets(self._whole(found))[1]:
                break
            for inward in (SCHEDULE.inward, 1 - SCHEDULE.inward) if self.centre.value > 0 else ():
                self._add_replica_sets(self._whole(drawn(found, self.centre, inward)))
            value, found = found.value, self.program.relaxed(at=self.aim, breakpoints=self.breakpoints)
            if found is None or found.value < value * (1 - SCHEDULE.slight):
                same, central = 0, found
            else:
                same, central = same + 1, averaged(central, found)
        return central

    def _priced(self, found: MasterDuals, slight: float) -> tuple[bool, int]:
        """Price at a mean of the linear program's and the central prices. If that gives no new column, price at the
        linear program's prices.

        If replica sets are not columns, pricing at the linear program's prices alone takes fewer rounds. Returns
        whether pricing was exhaustive, and the number of new columns.
        """
        if self.centre.value > 0 and self.aim is None and len(self.demanding):
            many = len(self.program.patterns), len(self.program.replica_sets)
            nearly = SCHEDULE.nearly if len(self.problem.groups) <= SCHEDULE.few else 0.0
            exhaustive, _ = self.price(drawn(found, self.centre, self.inward), slight - nearly, self.effort)
            weak = self.excess > SCHEDULE.half * self.gap
            self.inward = (1 + self.inward) / 2 if weak else SCHEDULE.inward
            new = self._missing(found, slight, *many)
            if new:
                return exhaustive, new
        return self.price(found, slight, self.effort)

    def _missing(self, found: MasterDuals, slight: float, patterns: int, replica_sets: int) -> int:
        """How many columns beyond the first ``patterns`` and ``replica_sets`` would improve the solution ``found``."""
        worth, rows = found.roles, np.concatenate([found.slice_types, found.roles])
        groups = found.groups - SCHEDULE.slight
        dear = [sum(worth[role] for role in pattern) > found.slice_types[slice_type] + slight
                for slice_type, pattern in islice(self.program.patterns, patterns, None)]
        cheap = [sum(rows[row] * many for row, many in replica_set.uses) < groups[replica_set.group]
                 for replica_set in islice(self.program.replica_sets, replica_sets, None)]
        return int(sum(dear) + sum(cheap))

    def _whole(self, found: MasterDuals | Centre) -> NDArray[np.int64]:
        """The prices of slices and roles, rounded down to whole-number units (``scale`` units are the price of the
        dearest GPU).
        """
        return np.floor(np.concatenate([found.slice_types, found.roles]) * self.scale + 1e-9).astype(np.int64)

    def _slight(self, units: float) -> float:
        """The smallest excess of a pattern's value over its slice's price that matters for the bound, in prices of the
        dearest GPU.
        """
        if not len(self.demanding):
            return SCHEDULE.slight
        below = math.ceil(units) - 1
        slices = max(int(pool.partitions.sum(axis=1).max()) for pool in self.problem.pools)
        return max(SCHEDULE.slight, SCHEDULE.half * (units / below - 1) / slices) if below > 0 else SCHEDULE.slight

    def price(self, duals: MasterDuals | Centre, slight: float, effort: int) -> tuple[bool, int]:
        """Add columns at given prices and prove a bound; return whether pricing was exhaustive, and the number of new
        columns.

        A pattern is added if its value exceeds its slice's price by at least ``slight``, which may be negative.
        """
        slice_types, roles = np.split(prices := self._whole(duals), [self.slice_types])
        needed, new = self._add_replica_sets(prices)
        most, exhaustive, self.excess = slice_types.copy(), True, 0.0
        above = max(1, int(slight * self.scale)) if slight > 0 else math.floor(slight * self.scale)
        floors = (duals.slice_types * self.scale).astype(np.int64) + above
        for slice_type, found in self.pricing.priced(roles, floors, effort):
            new += self.program.add_patterns(slice_type, found.patterns)
            most[slice_type] = max(most[slice_type], found.most)
            highest = max((int(roles[list(one)].sum()) for one in found.patterns), default=int(floors[slice_type]))
            self.excess = max(self.excess, (found.most - max(highest, slice_types[slice_type])) / self.scale)
            exhaustive &= found.exhaustive
        worth = [int((pool.partitions @ most).max()) for pool in self.problem.pools]
        if needed is not None:
            needed += int(roles @ self.forced)
            before = self.bound
            self.proof.add(needed, worth)
            if self.bound > before:
                self.cuts.append(PricedCut(slice_types, roles, worth))
            self.centre = max(centre_of(needed, most, roles, self.problem.pools), self.centre, key=attrgetter("value"))
        return exhaustive, new

    def price_strictly(self, rounds: int, until: Deadline) -> None:
        """Add columns for the linear program whose replica sets are those that plans may use. Do nothing if the program
        for bounds has the same replica sets.
        """
        for _ in range(0 if all(self.program.strict) else rounds):
            found = self.program.relaxed(strict=True)
            if found is None or until.over or not self.price(found, SCHEDULE.slight, 0)[1]:
                break

    def vary(self, draw: np.random.Generator) -> None:
        """Add columns that plans may need: the cheapest replica sets at prices drawn around the last prices, and the
        best patterns at random prices of roles.
        """
        prices = self._first_prices()[self.slice_types :]
        if self.last is not None:
            drawn = np.concatenate([self.last.slice_types, self.last.roles]) * SCHEDULE.coarse
            self._add_replica_sets((drawn * draw.uniform(0.9, 1.1, len(drawn))).astype(np.int64))
        for slice_type, oracles in oracles_of(self.problem).items():
            for oracle in oracles:
                drawn = prices * np.exp(draw.normal(0, 0.5, len(prices))) * (draw.random(len(prices)) < draw.random())
                found = oracle.price(drawn.astype(np.int64), 0, 0)
                self.program.add_patterns(slice_type, found.patterns)

    def _add_replica_sets(self, prices: NDArray[np.int64]) -> tuple[int | None, int]:
        """Add the cheapest replica sets of every group.

        Returns a lower bound on the price of all replica sets together (None if some group has no replica set), and the
        number of new replica sets.
        """
        needed, new = 0, 0
        for priced in priced_replica_sets(self.problem, self.choices_of_groups, prices):
            if priced is None:
                return None, new
            needed += priced.bound * len(self.problem.groups[priced.group].members)
            if priced.loose != priced.strict:
                new += self.program.add_replica_set(priced.loose, strict=False)
            if priced.strict is not None:
                new += self.program.add_replica_set(priced.strict, strict=True)
        return needed, new

    def _first_prices(self) -> NDArray[np.int64]:
        """The prices to begin with: a slice costs its fraction of a GPU, a role the fraction of its class's highest
        rate.
        """
        slice_types = np.ones(self.slice_types)
        for pool in self.problem.pools:
            size = np.array(
                [self.problem.segments.slice_types[slice_type].compute for slice_type in pool.slice_types], float
            )
            slice_types[list(pool.slice_types)] = size / max(
                float((pool.partitions[:, list(pool.slice_types)] @ size).max()), 1.0
            )
        most: dict[object, float] = {}
        for role in self.problem.roles:
            most[role.workload_class] = max(most.get(role.workload_class, 0.0), role.upto_rps)
        roles = [role.rate_rps / (most[role.workload_class] or 1.0) for role in self.problem.roles]
        return np.maximum(np.concatenate([slice_types, roles]) * self.scale, 1).astype(np.int64)


def hand_on(source: Generation, target: Generation) -> None:
    """Add the patterns of one Generation to another Generation of the same instance, if they are valid there.

    Each role is replaced by the target's role for the same workloads. If the workloads have several roles in the
    target, the role with the least rate is taken.
    """
    group_of = {member: group for group in target.problem.groups for member in group.members}
    roles = {role[:3]: at for at, role in enumerate(target.problem.roles)}
    by_role = {}
    for group in source.problem.groups:
        others = {group_of[member] for member in group.members}
        found = [roles.get((one.models, one.slo_ms, one.rate_rps)) for one in sorted(others, key=_by_rate)]
        by_role[group.models, group.slo_ms, group.rate_rps] = next((one for one in found if one is not None), None)
    to = [by_role.get(role[:3]) for role in source.problem.roles]
    for slice_type, pattern in list(source.program.patterns):
        handed = [to[role] for role in pattern]
        if None not in handed:
            row = tuple(sorted(role for role in handed if role is not None))
            if any(oracle.running(row) is not None for oracle in oracles_of(target.problem).get(slice_type, [])):
                target.program.add_patterns(slice_type, [row])


def _by_rate(group: Group) -> float:
    return group.rate_rps
