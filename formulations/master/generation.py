"""Column generation for the master program: rounds of linear program and pricing, and the bound that they prove.

Each round solves the linear program over the patterns so far, and then prices: the oracles search for patterns that are
worth more than their slice costs at the duals. If no such pattern exists, the linear program is solved over all
patterns.

Every round proves a bound (Lagrangian; for one GPU type Farley 1990). At any prices of slices and places, the replicas
of all workloads have a total price, and no GPU is worth more than its most valuable partition. The quotient bounds the
number of GPUs. `type_counts` extends the bound to several GPU types, price tiers and counts. Prices are rounded down to
whole numbers before patterns are priced, so that all sums are exact. Oracles tolerate more than the verifier does, so
that rounding never invalidates a bound.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.master.columns import Duals, PatternColumns
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.oracle import oracles_of, priced
from provision.formulations.search.problem import Problem
from provision.formulations.search.type_counts import FINE, TypeCounts
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.tolerances import DUST, TOLERANCE


class PricedCut(NamedTuple):
    """Whole-number prices of slices and places that raised the bound. No GPU of a pool has a higher value than its
    ``worth`` (pools,).

    A slice costs no less than any replica that may have it to itself.
    """

    slice_types: NDArray[np.int64]
    places: NDArray[np.int64]
    worth: list[int]


class Generation:
    """The patterns for one Problem. ``bound`` is a proven lower bound in units of price.

    Parameters
    ----------
    problem
        A Problem in which every workload, or part of a workload, has one replica.
    proves
        Whether the bounds are used. If so and there are several GPU types, patterns are also generated for the numbers
        of GPUs of each type that the bound allows.

    Attributes
    ----------
    last, reached
        The last solution of the linear program (None at first), and the highest value that prices have proven, in
        multiples of the dearest GPU's price.
    aim, sharp
        (pools,) the numbers of GPUs that the bound allows, which the linear program then has free of charge, so that
        its prices show what these GPUs lack (None before that stage); and whether there is such a stage.
    effort
        The effort of pricing in the next round, as in ``PatternOracle.price``.
    enough, converged, impossible
        Whether the first call of ``rounds`` has ended, whether no pattern is missing, and whether the patterns cannot
        meet the demand.
    cuts
        The prices that raised the bound.
    """

    def __init__(self, problem: Problem, proves: bool = True) -> None:
        self.problem, self.sharp = problem, proves and len(problem.pools) > 1
        self.program = PatternColumns(problem)
        self.proof = TypeCounts(problem.pools, problem.most_gpus)
        self.proof.at_least(problem.spread_over)
        self.cuts: list[PricedCut] = []
        self.aim: tuple[int, ...] | None = None
        self.last: Duals | None = None
        self.took_s = self.reached = 0.0
        self.effort, self.round = SCHEDULE.firm, 0
        self.converged = self.impossible = self.enough = False
        for slice_type, oracles in oracles_of(problem).items():
            for oracle in oracles:
                self.program.add(slice_type, oracle.seeds())

    @property
    def bound(self) -> float:
        """The proven lower bound, in units of price."""
        return self.proof.bound

    def units(self, found: Duals) -> float:
        """The value of a linear program in units of price, less a tolerance for rounding."""
        return found.value * self.problem.dearest * (1 - TOLERANCE)

    @property
    def gap(self) -> float:
        """The relative gap between the value that prices prove and that of the last linear program. It is 0 where the
        GPUs that are free of charge suffice.
        """
        return 1.0 if self.last is None else 1 - self.reached / max(self.last.value, self.reached, DUST)

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Add patterns until none is missing or the next round would exceed the time; yield the bound after every
        round.

        The first round always runs. The first call ends when the bound is the linear program's value, rounded up to a
        price that GPUs can have. Later calls add patterns that plans need, and raise the bound further if there are
        several GPU types.
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
        """Run one round. Returns whether the oracles should use more effort in the next one.

        The stages of the search for the bound are: until it cannot rise by whole GPUs, until no pattern is missing, and
        the same with the numbers of GPUs fixed at those that the bound allows.
        """
        found = self.program.relaxed(self.aim)
        if found is None:
            self.impossible = True
            return False
        self.last, self.round = found, self.round + 1
        exhaustive, new = self.price(found, self.effort)
        settled, aimed = not new and exhaustive, self.aim
        if aimed is None:
            done = settled or self.bound >= self.units(found)
            if not self.enough and (done or self.bound >= math.ceil(self.units(found))):
                self.enough = True
                return False
            self.aim = self.proof.counts if done and self.sharp else None
            self.converged = done and self.aim is None
        else:
            self.aim = self.proof.counts
            self.converged = self.aim is None or (self.aim == aimed and settled)
        return not exhaustive and not new

    def price(self, at: Duals, effort: int) -> tuple[bool, int]:
        """Add patterns at given prices and prove a bound; return whether pricing was exhaustive, and the number of new
        patterns.
        """
        program, pools = self.program, self.problem.pools
        slices, places = (np.floor(one * FINE + 1e-9).astype(np.int64) for one in (at.slice_types, at.places))
        slices = np.maximum(slices, (program.alone * places[:, None]).max(axis=0, initial=0))
        most, exhaustive, new = slices.copy(), True, 0
        floors = ((at.slice_types + SCHEDULE.slight) * FINE).astype(np.int64)
        for slice_type, found in priced(self.problem, places[: len(self.problem.roles)], floors, effort):
            new += program.add(slice_type, found.patterns)
            most[slice_type] = max(most[slice_type], found.most)
            exhaustive &= found.exhaustive
        worth, before = [int((pool.partitions @ most).max()) for pool in pools], self.bound
        needed = int(places @ program.wanted)
        self.proof.add(needed, worth)
        if self.bound > before:
            self.cuts.append(PricedCut(slices, places, worth))
        over = max(one * self.problem.dearest / pool.worth for one, pool in zip(worth, pools, strict=True))
        if over > 0:
            self.reached = max(self.reached, needed / over)
        return exhaustive, new
