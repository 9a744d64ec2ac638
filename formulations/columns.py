"""Column generation over one-GPU patterns: rounds of linear program and pricing, and the bound these prove."""

from time import perf_counter

import numpy as np

from provision.formulations.options import options_of
from provision.formulations.pattern_master import Master
from provision.formulations.pricing import hardened, search

SCALE = 10**6
"""Whole-number units of a dual price of 1."""
FLOOR = SCALE + 20
"""Patterns of less value are not worth a column."""
CELLS, MORE = 1500, 4
"""Cells to search at first, and the factor when these find too little."""
ROOM = 20_000
"""Most patterns from one pricing."""
FEW = 0.02
"""A round that adds fewer columns than this part of the classes looks further next time."""


class Columns:
    """The columns of one set of merged demands; ``bound`` is proven for these, in GPUs."""

    def __init__(self, tables, merged):
        self.tables, self.counts = tables, merged.counts
        self.options = options_of(tables, merged.demands, merged.counts)
        self.master = Master(merged.demands, merged.counts)
        self.duals, self.bound, self.converged = np.zeros(len(merged.demands)), 1, False
        self.cells, self.took_s = CELLS, 0.0

    def rounds(self, end):
        """Add columns until none is missing or the time ``end`` would pass; yields after every round."""
        while not self.converged and perf_counter() + self.took_s < end:
            started = perf_counter()
            further = self._price()
            self.took_s = perf_counter() - started
            if further:
                self.cells *= MORE
                self.took_s *= MORE
            yield self.bound

    def _price(self):
        """One round; returns whether the next should look further. The bound is Farley's."""
        value, self.duals, _, _ = self.master.relaxed()
        found, new = self._extend(whole(self.duals), self.cells)
        self.bound = max(self.bound, farley(whole(self.duals), self.counts, found))
        self.converged = (not new and found.exhaustive) or self.bound >= value
        return not found.exhaustive and new < FEW * len(self.duals)

    def vary(self, draw):
        """Columns that suit duals drawn around those of the linear program, for whole-number plans."""
        self._extend(whole(self.duals * draw.uniform(0.8, 1.3, len(self.duals))), CELLS)

    def _extend(self, values, cells):
        """Price at some duals; returns what was found and how many columns are new."""
        found = search(self.tables, self.options, values, FLOOR, cells, ROOM)
        hardened(self.tables, found, *self.master.next_harder())
        rows = zip(found.members.tolist(), found.size.tolist(), strict=True)
        return found, self.master.add(tuple(sorted(members[:size])) for members, size in rows)


def whole(duals):
    """Duals in whole numbers."""
    return np.floor(duals * SCALE).astype(np.int64)


def farley(values, counts, found):
    """The bound in GPUs that whole-number duals prove when no pattern exceeds the most found."""
    return -(-int(values @ counts) // int(found.most))


def proven(problem, duals):
    """The bound in GPUs that any duals of all classes prove by themselves."""
    classes, values = problem.classes, whole(duals)
    options = options_of(problem.tables, classes.demands, classes.counts)
    return farley(values, classes.counts, search(problem.tables, options, values, FLOOR, MORE * CELLS, ROOM))
