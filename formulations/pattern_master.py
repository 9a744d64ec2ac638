"""The master problem of column generation over one-GPU patterns: covering classes at least GPUs.

Rows are classes of equal demand. A place for one demand also serves an easier one of the same model: columns of no
cost along the Hasse edges of this order pass places on. Patterns are deduplicated by content.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, hstack


class Master:
    """The master problem over ``demands``, (model, budget in ms, rate in requests/s), and how often each occurs."""

    def __init__(self, demands, counts):
        self.counts = counts
        self.serves = _serves(demands)
        self.harder, self.easier = _hasse(self.serves)
        self.patterns = {(one,): None for one in range(len(demands))}

    def next_harder(self):
        """For each class where its next harder ones begin in a list of them, and the list."""
        order = np.argsort(self.easier, kind="stable")
        return np.searchsorted(self.easier[order], np.arange(len(self.counts) + 1)), self.harder[order]

    def add(self, patterns):
        """Add patterns, sorted tuples of classes; returns how many are new."""
        before = len(self.patterns)
        self.patterns.update(dict.fromkeys(patterns))
        return len(self.patterns) - before

    def relaxed(self):
        """The linear program: its value, the duals of the classes, and each pattern's part and reduced cost."""
        found = linprog(self._cost(len(self.patterns)), A_ub=-self._matrix(self.patterns), b_ub=-self.counts)
        many = len(self.patterns)
        return found.fun, np.maximum(-found.ineqlin.marginals, 0), found.x[:many], found.lower.marginals[:many]

    def integral(self, patterns, least, time_limit_s):
        """Whole patterns, at least ``least`` of each, that cover all; None when none are found in time."""
        edges = np.zeros(len(self.harder))
        found = milp(
            self._cost(len(patterns)),
            integrality=np.concatenate([np.ones(len(patterns)), edges]),
            bounds=Bounds(np.concatenate([least, edges]), np.inf),
            constraints=LinearConstraint(self._matrix(patterns), lb=self.counts),
            options={"time_limit": time_limit_s},
        )
        if found.x is None:
            return None
        copies = np.rint(found.x[: len(patterns)]).astype(int)
        return [pattern for pattern, many in zip(patterns, copies, strict=True) for _ in range(many)]

    def _cost(self, many):
        return np.concatenate([np.ones(many), np.zeros(len(self.harder))])

    def _matrix(self, patterns):
        """Places for each class in each pattern, then what the edges pass on."""
        sizes = [len(pattern) for pattern in patterns]
        rows = np.concatenate([np.array(pattern) for pattern in patterns])
        places = coo_array((np.ones(len(rows)), (rows, np.repeat(np.arange(len(sizes)), sizes))),
                           (len(self.counts), len(sizes)))
        edges = np.arange(len(self.harder))
        passed = coo_array(
            (np.repeat([-1.0, 1.0], len(edges)), (np.concatenate([self.harder, self.easier]), np.tile(edges, 2))),
            (len(self.counts), len(edges)),
        )
        return hstack([places, passed]).tocsc()


def _serves(demands):
    """(classes, classes) flags: a place for the first, another class, serves the second."""
    model = np.unique([demand[0] for demand in demands], return_inverse=True)[1]
    budget_ms, rate_rps = np.array([demand[1:] for demand in demands]).T
    found = (model[:, None] == model) & (budget_ms[:, None] <= budget_ms) & (rate_rps[:, None] >= rate_rps)
    np.fill_diagonal(found, False)
    return found


def _hasse(serves):
    """Harder and easier ends of the edges that no two others make up for."""
    steps = serves.astype(np.float32)
    return np.nonzero(serves & ~(steps @ steps > 0))
