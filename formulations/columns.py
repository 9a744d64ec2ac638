"""Column generation over one-GPU patterns: rounds of linear program and pricing, and the bound these prove."""

from time import perf_counter

import numpy as np

from provision.formulations.pattern_master import Master
from provision.formulations.pricing import hardened, items_of, search

SCALE = 10**6
"""Whole-number units of a dual price of 1."""
FLOOR = SCALE + 20
"""Patterns of less value are not worth a column."""
NODES, MORE = 2000, 20
"""Nodes per cell at first, and the factor when these find too little."""
SLOWER = 4
"""About how much longer a round then takes: few cells need so many."""
ROOM = 20_000
"""Most patterns from one pricing."""
FEW = 0.02
"""A round that adds fewer columns than this part of the classes looks further next time."""


class Columns:
    """The columns of one set of merged demands; ``bound`` is proven for these, in GPUs."""

    def __init__(self, tables, merged):
        self.tables, self.counts = tables, merged.counts
        self.master = Master(merged.demands, merged.counts)
        self.bound, self.converged, self.nodes, self.took_s, self.least_s = 1, False, NODES, 0.0, 0.0

    def rounds(self, end):
        """Add columns until none is missing or the time ``end`` would pass; yields after every round."""
        while not self.converged and perf_counter() + self.took_s < end:
            started = perf_counter()
            further = self._price()
            self.took_s = perf_counter() - started
            self.least_s = self.took_s if self.nodes == NODES else self.least_s
            if further:
                self.nodes *= MORE
                self.took_s *= SLOWER
            yield self.bound

    def _price(self):
        """One round; returns whether the next should look further. The bound is Farley's."""
        _, duals, _, _ = self.master.relaxed()
        found, new = self._extend(np.floor(duals * SCALE).astype(np.int64), self.nodes)
        self.converged = not new and found.exhaustive
        return not found.exhaustive and new < FEW * len(duals)

    def vary(self, draw):
        """Columns that suit duals drawn around those of the linear program, for whole-number plans."""
        _, duals, _, _ = self.master.relaxed()
        self._extend(np.floor(duals * draw.uniform(0.8, 1.3, len(duals)) * SCALE).astype(np.int64), NODES)

    def _extend(self, values, nodes):
        """Price at some duals; returns what was found and how many columns are new."""
        items = items_of(self.tables, self.master.serves, values, self.counts)
        found = search(self.tables, items, FLOOR, nodes, ROOM)
        self.bound = max(self.bound, -(-int(values @ self.counts) // int(found.most)))
        hardened(self.tables, found, *self.master.next_harder())
        rows = zip(found.members.tolist(), found.size.tolist(), strict=True)
        return found, self.master.add(tuple(sorted(members[:size])) for members, size in rows)
