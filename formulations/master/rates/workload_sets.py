"""Plans from workload sets: one program chooses which workloads share each slice, and a second one chooses patterns.

The *workload set* of a pattern is the workloads that it serves. Patterns of one set differ only in how much they carry
of each workload. So a mixture of patterns of one set is often close to another pattern of that set, while a mixture of
patterns of different sets is not. Hence two steps:

1. An integer program chooses how many slices hold each workload set. Only these numbers are integers; the slices of a
   set may be divided among its patterns in fractions.
2. The patterns of the chosen sets are listed in detail. A second integer program looks for a plan that uses the chosen
   sets and whole patterns.

If there is no such plan, the first program has to choose other sets.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from provision.formulations.linear.highs import IntegerSolution
from provision.formulations.master.rates.columns import RateColumns, Relaxed
from provision.formulations.master.restricted import RestrictedMaster
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.rates import RateOracle
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SOLVER

Key = tuple[int, ...]
"""A slice type, and then for each group 1 if it is in the workload set and 0 if not."""


class WorkloadSets:
    """The search for plans that cost at most ``most``, in multiples of the dearest GPU's price.

    Parameters
    ----------
    columns, oracles
        The known patterns, and pairs (slice type, oracle) for all slice types.
    relaxed
        A solution of the linear program over all known patterns.
    most
        The highest cost of a plan.
    draw
        The source of random numbers.

    Attributes
    ----------
    exhausted
        Whether the known patterns leave no workload sets to choose, or many have been tried.
    """

    def __init__(self, columns: RateColumns, oracles: Sequence[tuple[int, RateOracle]], relaxed: Relaxed, most: float,
                 draw: np.random.Generator) -> None:
        self.columns, self.oracles, self.most, self.draw = columns, oracles, most, draw
        within = relaxed.reduced <= most - relaxed.value * (1 - SOLVER) + SOLVER
        self.patterns = np.flatnonzero(within & columns.fits[: len(within)])
        worth = relaxed.per_rps * columns.all.rps
        self.prices = worth * np.vstack([np.ones(len(worth)), draw.random((SCHEDULE.few, len(worth)))])
        self.corners = self._corners(self.patterns)
        self.detailed: dict[Key, Ints] = {}
        self.tried: list[dict[Key, float]] = []
        self.exhausted = False

    def attempt(self, seconds: float) -> tuple[Ints, Floats] | None:
        """Patterns, and a whole-number solution over them in the order of ``RateColumns.integral``; None if the
        workload sets that are chosen next, at random, have none.

        ``seconds`` limits the time of each of the two integer programs.
        """
        keys = sorted(set(self._keys(self.corners)))
        if not keys:
            self.exhausted = True
            return None
        found = self._solved(self.corners, keys, None, seconds)
        self.exhausted = found.status == "infeasible" or len(self.tried) == SCHEDULE.turns
        if found.x is None:
            return None
        slices = dict(zip(keys, np.rint(found.x[-len(keys):]).tolist(), strict=True))
        chosen = {key: many for key, many in slices.items() if many > 0}
        self.tried.append(chosen)
        for key in chosen.keys() - self.detailed.keys():
            self.detailed[key] = self._in_detail(key)
            self.corners = np.union1d(self.corners, self._corners(self.detailed[key]))
        patterns = np.concatenate([self.detailed[key] for key in chosen])
        solved = self._solved(patterns, list(chosen), np.array(list(chosen.values())), seconds)
        return None if solved.x is None else (patterns, solved.x)

    def _keys(self, patterns: Ints) -> list[Key]:
        """The workload sets of patterns."""
        columns = self.columns
        return list(map(tuple, np.column_stack([columns.slice_type[patterns], columns.number[patterns] > 0]).tolist()))

    def _corners(self, patterns: Ints) -> Ints:
        """Of each workload set, the patterns that are worth most at some prices."""
        if not len(patterns):
            return patterns
        _, of_pattern = np.unique(np.array(self._keys(patterns)), axis=0, return_inverse=True)
        worth, found = self.columns.part(self.columns.all)[patterns] @ self.prices.T, []
        for at in range(worth.shape[1]):
            order = np.lexsort((worth[:, at], of_pattern.ravel()))
            found.append(order[np.flatnonzero(np.diff(of_pattern.ravel()[order], append=-1))])
        return patterns[np.unique(np.concatenate(found))]

    def _in_detail(self, key: Key) -> Ints:
        """The undominated patterns of a workload set; all patterns if that would be too many to compare."""
        found = [self.patterns[np.array([one == key for one in self._keys(self.patterns)], bool)]]
        for slice_type, oracle in self.oracles:
            if slice_type == key[0]:
                first = len(self.columns.slice_type)
                self.columns.add(slice_type, oracle.of_set(np.flatnonzero(key[1:]).tolist()))
                found.append(np.arange(first, len(self.columns.slice_type)))
        every = np.concatenate(found)
        with suppress(TooManyError):
            every = every[undominated(self.columns.part(self.columns.all)[every])]
        return every

    def _solved(self, patterns: Ints, keys: list[Key], slices: Floats | None, seconds: float) -> IntegerSolution:
        """A solution in the order: patterns, partitions, price tiers, workload sets.

        Given the numbers of ``slices`` of the workload sets, patterns are whole. Otherwise these numbers are chosen so
        that the patterns leave much of the slices empty, which makes it likely that whole patterns fit as well. They
        then differ from those that were tried before.
        """
        columns, tried, sets = self.columns, self.tried if slices is None else [], np.eye(len(keys))
        left, number = columns.all, columns.number[patterns].T
        master = RestrictedMaster(
            columns.problem, demand=np.where(left.rps > 0, 1.0, 0.0), at_least=left.least[columns.asked_for],
            at_most=-left.most[columns.counted], sets=np.zeros(len(keys)), budget=np.array([-self.most]),
            tried=np.array([1 - sum(one.values()) for one in tried]))
        used = master.columns(
            np.full(len(patterns), float(slices is None)), whole=slices is not None,
            sets=-sets[:, [keys.index(key) for key in self._keys(patterns)]], demand=columns.part(left)[patterns].T,
            at_least=number[columns.asked_for], at_most=-number[columns.counted])
        tiers = master.tiers()
        paid = master.columns(np.zeros(len(tiers.cost)), tiers.most, budget=-tiers.cost[None])
        held = master.columns(
            SCHEDULE.fair * self.draw.random(len(keys)), slices, sets=sets,
            slices=-1.0 * (np.arange(len(left.taken))[:, None] == [key[0] for key in keys]),
            tried=np.array([[-float(key in one) for key in keys] for one in tried]).reshape(-1, len(keys)))
        sorts = [used, master.partitions, paid._replace(matrix=tiers.matrix + paid.matrix),
                 held if slices is None else held._replace(least=slices)]
        return master.integral(sorts, seconds, gap=SCHEDULE.fair)
