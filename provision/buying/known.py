"""What the search knows: plans (columns) and proven bounds (cuts), each for some demand.

A plan for a demand also serves every lower one, and what a demand needs at least every higher one needs too: shorter
queues and lower rates break no SLO. So periods with like demand share both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.buying.market import Market
from provision.formulations.linear.highs import Rows, solve_integer
from provision.models.base.arrays import Floats, Ints
from provision.models.plans.plan import Plan, carried_rps

CLOSE = 1e-9
SPOT_LIMIT_S = 2.0


class Column(NamedTuple):
    """A plan for the rates (workloads,): its GPUs by type, the indices of those that may be spot, and their counts."""

    rates: Floats
    gpus: Floats
    on_spot: tuple[int, ...]
    spot: Floats
    plan: Plan


class Cut(NamedTuple):
    """A proven bound: all plans for the rates have ``prices`` @ GPUs >= ``least``, infinite if there is no plan."""

    rates: Floats
    prices: Floats
    least: float


class Floor(NamedTuple):
    """A proven bound: with no more ``committed`` GPUs by type, the other GPUs for the rates cost ``least`` per hour;
    infinite if there is no plan.
    """

    rates: Floats
    committed: Floats
    least: float


class Known:
    """All plans and proofs so far. ``firm`` has the cuts on what firm GPUs carry, for rates without the shares that may
    stand on spot GPUs.
    """

    def __init__(self, market: Market) -> None:
        self.market = market
        self.columns: list[Column] = []
        self.total: list[Cut] = []
        self.firm: list[Cut] = []
        self.floors: list[Floor] = []
        self._tables: dict[str, list[Any]] = {}

    def add(self, rates: Floats, plan: Plan, on_spot: tuple[int, ...] | None = None) -> None:
        """Add a plan for some rates; ``on_spot`` names its GPUs that may be spot, by default those that save most."""
        chosen = on_spot_of(self.market, plan) if on_spot is None else on_spot
        spot = self.market.counts(plan.model_copy(update={"gpus": tuple(plan.gpus[one] for one in chosen)}))
        self.columns.append(Column(rates, self.market.counts(plan), chosen, spot, plan))

    def serving(self, rates: Floats) -> list[int]:
        """The columns that serve these rates, without those that another one beats."""
        if not self.columns:
            return []
        table = self._table("columns", self.columns)
        found = np.flatnonzero((table[0] >= rates * (1 - CLOSE)).all(axis=1))
        sizes = np.hstack([table[1], -table[2]])[found]
        kept: list[int] = []
        for row in np.argsort(sizes.sum(axis=1), kind="stable").tolist():
            if not (sizes[kept] <= sizes[row]).all(axis=1).any():
                kept.append(row)
        return found[kept].tolist()

    def cuts(self, rates: Floats, firm: bool = False) -> list[Cut]:
        """The cuts that hold for these rates, the strongest of each direction."""
        several, holds = self._holding(rates, firm)
        best: dict[bytes, Cut] = {}
        for one in (several[at] for at in holds):
            key = one.prices.tobytes()
            if key not in best or best[key].least < one.least:
                best[key] = one
        return list(best.values())

    def least(self, rates: Floats, prices: Floats, firm: bool = False) -> float:
        """A proven bound on ``prices`` @ GPUs for some rates."""
        several, holds = self._holding(rates, firm)
        if not len(holds):
            return 0.0
        table = self._table("firm" if firm else "total", several)
        return float(((prices / table[1][holds]).min(axis=1) * table[2][holds]).max())

    def _holding(self, rates: Floats, firm: bool) -> tuple[list[Cut], Ints]:
        """All cuts of a kind, and the indices of those that hold for these rates."""
        several = self.firm if firm else self.total
        if not several:
            return several, np.zeros(0, int)
        table = self._table("firm" if firm else "total", several)
        return several, np.flatnonzero((table[0] <= rates * (1 + CLOSE)).all(axis=1))

    def _table(self, name: str, several: Sequence[Column | Cut]) -> list[Any]:
        """Rates and two further fields of columns or cuts as arrays: GPUs and those on spot, or prices and bounds."""
        if name not in self._tables or len(self._tables[name][0]) != len(several):
            further = ("gpus", "spot") if name == "columns" else ("prices", "least")
            self._tables[name] = [np.array([getattr(one, field) for one in several]) for field in ("rates", *further)]
        return self._tables[name]

    def floors_of(self, rates: Floats) -> list[Floor]:
        """The floors that hold for these rates, the strongest for each number of committed GPUs."""
        best: dict[bytes, Floor] = {}
        for one in self.floors:
            key = one.committed.tobytes()
            if (one.rates <= rates * (1 + CLOSE)).all() and (key not in best or best[key].least < one.least):
                best[key] = one
        return [*best.values()]

    def suffices(self, rates: Floats, gpus: Floats) -> bool | None:
        """Whether GPUs by type suffice for some rates, by what is known; None if it is unknown."""
        if any((self.columns[at].gpus <= gpus).all() for at in self.serving(rates)):
            return True
        finite = np.isfinite(gpus).all()
        short = any(cut.least == inf or (finite and cut.prices @ gpus < cut.least - CLOSE) for cut in self.cuts(rates))
        return False if short or any((gpus <= one.committed).all() for one in self.floors_of(rates)) else None


def on_spot_of(market: Market, plan: Plan) -> tuple[int, ...]:
    """The GPUs of a plan that save most as spot GPUs while no workload has more than its share on them."""
    saved = np.zeros(len(market.types))
    for offer in market.spot:
        saved[offer.type] = max(market.usual[offer.type] - offer.price, 0.0)
    may = [at for at, gpu in enumerate(plan.gpus) if saved[market.types.index(gpu.gpu)] > 0]
    if not may:
        return ()
    whole = carried_rps(plan.gpus)
    parts = np.zeros((len(market.names), len(may)))
    for column, at in enumerate(may):
        for name, rate in carried_rps([plan.gpus[at]]).items():
            parts[market.names.index(name), column] = rate / whole[name] if whole[name] > 0 else 0.0
    kinds: dict[bytes, list[int]] = {}
    for column, at in enumerate(may):
        kinds.setdefault(parts[:, column].tobytes() + plan.gpus[at].gpu.encode(), []).append(column)
    first = [columns[0] for columns in kinds.values()]
    cost = -np.array([saved[market.types.index(plan.gpus[may[one]].gpu)] for one in first])
    rows = Rows(cost, csr_array(-parts[:, first]), -market.shares - CLOSE, np.zeros(len(first)),
                np.array([len(columns) for columns in kinds.values()], float))
    found = solve_integer(rows, np.ones(len(first), bool), SPOT_LIMIT_S).x
    if found is None:
        return ()
    taken = np.rint(found).astype(int)
    return tuple(sorted(may[one] for columns, many in zip(kinds.values(), taken, strict=True)
                        for one in columns[:many]))
