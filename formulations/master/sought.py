"""Contents for plans of most throughput: worth much at the prices of linear programs, or like contents in use.

A linear program mixes contents as no whole GPU can, and its prices miss contents that a plan needs. So some contents of
the best plan are kept, and others are sought at the prices of what is left of the fleet and of the demand.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from provision.formulations.linear.highs import solve_linear
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.held import Column

DRAWN = 3
"""How often prices are drawn around those of a linear program that finds no more contents. Only rates that are asked
are dear then, so that contents are found which give a workload no more of these than it needs, and the rest to others.
"""


class Sought:
    """Seeks contents for a FullFleet.

    Parameters
    ----------
    fleet
        The FullFleet that gets the contents.
    seed
        For what is drawn: prices, and the contents of a plan that are kept.
    """

    def __init__(self, fleet: FullFleet, seed: int) -> None:
        self.fleet, self.draw = fleet, np.random.default_rng(seed)
        self.tried: set[Column] = set()

    def seek(self, until: float, present: Sequence[Column] = ()) -> bool:
        """Add contents that hold until a perf_counter, or until there are none; returns whether some were added.

        Parameters
        ----------
        until
            When to end, in seconds.
        present
            The contents of a plan: some of them, drawn anew in each call, are kept.
        """
        kept = [one for one in present if self.draw.random() < 0.5]
        asked_rps = self.fleet.demand_rps.copy()
        for one in kept:
            np.subtract.at(asked_rps, [member.group for member in one.members], one.rps)
        asked_rps = np.maximum(asked_rps, 0)
        before, left, like = len(self.fleet.columns), DRAWN, set(present)
        while perf_counter() < until:
            contents = list(self.fleet.columns)
            rows = self.fleet.rows(contents, missing=True)
            rows.least[: len(contents)] = _number(contents, kept)
            found = solve_linear(rows)
            if found is None:
                break
            self.fleet.price(found.duals, until)
            like |= {one for one, part in zip(contents, found.x, strict=False) if part > 0}
            for one in like - self.tried:
                self.tried.add(one)
                self.fleet.add_near(one, until)
            if len(contents) == len(self.fleet.columns):
                if not left:
                    break
                left -= 1
                self.fleet.price(found.duals * self.draw.uniform(0, 2, len(found.duals)), until, asked_rps)
        return len(self.fleet.columns) > before


def _number(contents: Sequence[Column], kept: Sequence[Column]) -> NDArray[np.int64]:
    """(contents,) how often each is kept."""
    return np.array([kept.count(one) for one in contents])
