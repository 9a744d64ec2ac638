"""Column generation over one-GPU patterns: rounds of linear program and pricing, and the bound these prove."""

from time import perf_counter

import numpy as np

from provision.formulations.master.pattern_master import Master
from provision.formulations.master.type_counts import TypeCounts
from provision.models.contents.interference.options import options_of
from provision.models.contents.interference.pricing import hardened, search

SCALE = 10**6
"""Whole-number units of a dual price of 1."""
SLIGHT = 20
"""Patterns worth no more than so much above the price of a GPU are not worth a column."""
CELLS, MORE = 1500, 4
"""Cells to search at first, and the factor when these find too little."""
ROOM = 20_000
"""Most patterns from one pricing."""
FEW = 0.02
"""A round that adds fewer columns than this part of the classes looks further next time."""


class Columns:
    """The columns of one set of merged demands; ``bound`` is proven for these, in units of price.

    ``duals`` of the classes and ``prices`` of GPUs of each type come from the linear program, in multiples of the
    fleet's dearest price. When no column is missing there, and GPU types are several and ``sharp`` asks for it, columns
    are sought for the counts of GPUs at the bound, until these are cut off or no column is missing either.
    """

    def __init__(self, fleet, merged, sharp):
        self.fleet, self.counts, self.sharp = fleet, merged.counts, sharp and len(fleet.stocks) > 1
        self.options = [options_of(stock.tables, merged.demands, merged.counts) for stock in fleet.stocks]
        self.master = Master(merged.demands, merged.counts, fleet)
        self.duals, self.prices = np.zeros(len(merged.demands)), np.ones(len(fleet.stocks))
        self.proof, self.aim, self.converged = TypeCounts(fleet.stocks, int(merged.counts.sum())), None, False
        self.cells, self.took_s = CELLS, 0.0

    @property
    def bound(self):
        """The bound so far."""
        return self.proof.bound

    def rounds(self, end):
        """Add columns until none is missing or the time ``end`` would pass; yields after every round."""
        while not self.converged and perf_counter() + self.took_s < end:
            started = perf_counter()
            further = self._price() if self.aim is None else self._cut()
            self.took_s = perf_counter() - started
            if further:
                self.cells *= MORE
                self.took_s *= MORE
            yield self.bound

    def _price(self):
        """One round; returns whether the next should look further."""
        value, self.duals, self.prices, _, _ = self.master.relaxed()
        exhaustive, new = self._round(self.duals, self.prices)
        done = (not new and exhaustive) or self.bound >= value * self.fleet.dearest
        self.aim = self.proof.counts if done and self.sharp else None
        self.converged = done and self.aim is None
        return not exhaustive and new < FEW * len(self.duals)

    def _cut(self):
        """One round at the counts aimed at, others at the price of the missing GPUs; returns as ``_price``."""
        _, duals, prices, _, _ = self.master.relaxed(self.aim)
        exhaustive, new = self._round(duals, prices)
        aimed, self.aim = self.aim, self.proof.counts
        self.converged = self.aim is None or (self.aim == aimed and not new and exhaustive)
        return not exhaustive and new < FEW * len(duals)

    def _round(self, duals, prices):
        found, new = self._extend(whole(duals), prices, self.cells)
        self.proof.add(whole(duals) @ self.counts, [one.most for one in found])
        return all(one.exhaustive for one in found), new

    def vary(self, draw):
        """Columns that suit duals drawn around those of the linear program, for whole-number plans."""
        self._extend(whole(self.duals * draw.uniform(0.8, 1.3, len(self.duals))), self.prices, CELLS)

    def _extend(self, values, prices, cells):
        """Price at some duals; returns what was found for each type and how many columns are new."""
        found = _priced(self.fleet, self.options, values, prices, cells)
        new = 0
        for index, (stock, one) in enumerate(zip(self.fleet.stocks, found, strict=True)):
            hardened(stock.tables, one, *self.master.next_harder())
            rows = zip(one.members.tolist(), one.size.tolist(), strict=True)
            new += self.master.add((index, tuple(sorted(members[:size]))) for members, size in rows)
        return found, new


def _priced(fleet, options, values, prices, cells):
    """What pricing finds for each type."""
    floors = whole(prices) + SLIGHT
    pairs = zip(fleet.stocks, options, floors, strict=True)
    return [search(stock.tables, one, values, floor, cells, ROOM) for stock, one, floor in pairs]


def whole(duals):
    """Duals in whole numbers."""
    return np.floor(duals * SCALE).astype(np.int64)


def prove(problem, proof, duals, prices):
    """Add to TypeCounts the cut that any duals of all classes prove by themselves."""
    classes, values = problem.classes, whole(duals)
    options = [options_of(stock.tables, classes.demands, classes.counts) for stock in problem.fleet.stocks]
    found = _priced(problem.fleet, options, values, prices, MORE * CELLS)
    proof.add(values @ classes.counts, [one.most for one in found])
