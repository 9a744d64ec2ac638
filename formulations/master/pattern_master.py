"""The master problem of column generation over one-GPU patterns: covering classes at the least price of GPUs.

Rows are classes of equal demand. A place for one demand also serves an easier one of the same models: columns of no
cost along the Hasse edges of this order pass places on. Patterns are deduplicated by content. A GPU has the price of
the cheapest tier of its type; where that has a count, a row counts the GPUs beyond, which cost what the next tiers
add.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import block_array, coo_array, hstack

from provision.models.contents.interference.tables import least_units, models_apart


class Master:
    """The master problem over ``demands``, (models, budget in ms, rate in requests/s), and how often each occurs.

    The GPU types of ``fleet`` have tables of these demands; prices are in multiples of its dearest.
    """

    def __init__(self, demands, counts, fleet):
        self.counts, self.fleet = counts, fleet
        self.serves = _serves(demands)
        self.harder, self.easier = _hasse(self.serves)
        stocks = fleet.stocks
        able = np.array([least_units(stock.tables) <= stock.tables.limit for stock in stocks])
        able[0] |= ~able.any(axis=0)  # a merged demand may be too hard for all
        self.patterns = {(index, (one,)): None for index, one in np.argwhere(able).tolist()}

    def next_harder(self):
        """For each class where its next harder ones begin in a list of them, and the list."""
        order = np.argsort(self.easier, kind="stable")
        return np.searchsorted(self.easier[order], np.arange(len(self.counts) + 1)), self.harder[order]

    def add(self, patterns):
        """Add patterns, each a type and a sorted tuple of classes; returns how many are new."""
        before = len(self.patterns)
        self.patterns.update(dict.fromkeys(patterns))
        return len(self.patterns) - before

    def relaxed(self, at=None):
        """The linear program, or what so many GPUs of each type ``at`` hand leave for it.

        Returns its value, duals of the classes, prices of the types, each pattern's part and reduced cost.
        """
        patterns, tiers = list(self.patterns), _Tiers(self.fleet, at)
        most = self._most(patterns, tiers)
        found = linprog(self._cost(patterns, tiers), A_ub=-self._matrix(patterns, tiers), b_ub=-self._least(tiers),
                        bounds=np.stack([np.zeros_like(most), most], axis=1))
        duals, many, price = np.maximum(-found.ineqlin.marginals, 0), len(patterns), tiers.price.copy()
        price[tiers.limited] += duals[len(self.counts) :]
        return found.fun, duals[: len(self.counts)], price, found.x[:many], found.lower.marginals[:many]

    def integral(self, patterns, least, time_limit_s):
        """Whole patterns, at least ``least`` of each, that cover all; None when none are found in time."""
        tiers = _Tiers(self.fleet)
        most = self._most(patterns, tiers)
        others = np.zeros(len(most) - len(patterns))
        found = milp(
            self._cost(patterns, tiers),
            integrality=np.concatenate([np.ones(len(patterns)), others]),
            bounds=Bounds(np.concatenate([least, others]), most),
            constraints=LinearConstraint(self._matrix(patterns, tiers), lb=self._least(tiers)),
            options={"time_limit": time_limit_s},
        )
        if found.x is None:
            return None
        copies = np.rint(found.x[: len(patterns)]).astype(int)
        return [pattern for pattern, many in zip(patterns, copies, strict=True) for _ in range(many)]

    def _cost(self, patterns, tiers):
        kinds = [kind for kind, _ in patterns]
        return np.concatenate([tiers.price[kinds], np.zeros(len(self.harder)), tiers.added])

    def _most(self, patterns, tiers):
        return np.concatenate([np.full(len(patterns) + len(self.harder), np.inf), tiers.most])

    def _least(self, tiers):
        return np.concatenate([self.counts, -tiers.count])

    def _matrix(self, patterns, tiers):
        """Places for each class in each pattern, what the edges pass on, and what the GPUs of limited types are."""
        sizes = [len(members) for _, members in patterns]
        rows = np.concatenate([np.array(members) for _, members in patterns])
        places = coo_array((np.ones(len(rows)), (rows, np.repeat(np.arange(len(sizes)), sizes))),
                           (len(self.counts), len(sizes)))
        edges = np.arange(len(self.harder))
        passed = coo_array(
            (np.repeat([-1.0, 1.0], len(edges)), (np.concatenate([self.harder, self.easier]), np.tile(edges, 2))),
            (len(self.counts), len(edges)),
        )
        if not len(tiers.limited):
            return hstack([places, passed]).tocsc()
        used = -(tiers.limited[:, None] == [kind for kind, _ in patterns]).astype(float)
        more = (tiers.limited[:, None] == tiers.kind).astype(float)
        return block_array([[places, passed, None], [coo_array(used), None, coo_array(more)]]).tocsc()


class _Tiers:
    """Prices in multiples of the dearest: of each type's first tier, ``price``, and of what the next tiers add.

    ``limited`` are the types whose first tier has a ``count``; over the next tiers are ``kind``, ``added`` and the
    ``most`` GPUs of each. With GPUs at hand, these are the first tier and cost nothing.
    """

    def __init__(self, fleet, at=None):
        stocks, dearest = fleet.stocks, fleet.dearest
        tiers = [stock.tiers for stock in stocks] if at is None else [
            ((0, many), (stock.worth, None)) for stock, many in zip(stocks, at, strict=True)
        ]
        self.price = np.array([offered[0][0] / dearest for offered in tiers])
        self.limited = np.array([kind for kind, offered in enumerate(tiers) if len(offered) > 1], int)
        self.count = np.array([tiers[kind][0][1] for kind in self.limited], float)
        more = [(kind, price - offered[0][0], np.inf if count is None else count)
                for kind, offered in enumerate(tiers) for price, count in offered[1:]]
        self.kind, self.added, self.most = np.array(more, float).reshape(-1, 3).T
        self.added = self.added / dearest


def _serves(demands):
    """(classes, classes) flags: a place for the first, another class, serves the second."""
    models = models_apart(demands)
    budget_ms, rate_rps = np.array([demand[1:] for demand in demands]).T
    found = (models[:, None] == models) & (budget_ms[:, None] <= budget_ms) & (rate_rps[:, None] >= rate_rps)
    np.fill_diagonal(found, False)
    return found


def _hasse(serves):
    """Harder and easier ends of the edges that no two others make up for."""
    steps = serves.astype(np.float32)
    return np.nonzero(serves & ~(steps @ steps > 0))
