"""Fewer classes for large instances: similar demands merged into the hardest of them; covering these covers all."""

from dataclasses import dataclass

import numpy as np

from provision.models.contents.interference.tables import hardness


@dataclass(frozen=True)
class Merged:
    """Demands (models, budget in ms, rate in requests/s), each for ``counts`` replicas.

    ``chains`` are classes of the same models and near budgets, by falling rate, and the merged demand of each.
    """

    demands: tuple
    counts: np.ndarray
    chains: tuple

    def spread(self, classes, duals):
        """Duals of all classes from those of merged demands: in proportion between the rates that bear them."""
        found = np.zeros(len(classes.demands))
        rates = np.array([demand[2] for demand in classes.demands])
        merged = np.array([demand[2] for demand in self.demands])
        for rows, of in self.chains:
            found[rows] = np.interp(rates[rows], merged[of][::-1], duals[of][::-1])
        return found


def coarse(classes, target):
    """The demands of some Classes, merged to about ``target``: by model, budgets, then rates, in equal parts."""
    share = min(target / len(classes.demands), 1.0)
    if share == 1:
        return Merged(classes.demands, classes.counts, ())
    merged, chains = {}, []
    for near in _alike(classes.demands, share):
        parts = np.array_split(near, max(round(len(near) * share), 1))
        of = [(demand, part) for part in parts for demand in [_hardest([classes.demands[row] for row in part])]]
        for demand, part in of:
            merged[demand] = merged.get(demand, 0) + int(classes.counts[part].sum())
        chains.append((near, [demand for demand, part in of for _ in part]))
    demands = tuple(sorted(merged, key=hardness))
    place = {demand: index for index, demand in enumerate(demands)}
    return Merged(demands, np.array([merged[one] for one in demands]),
                  tuple((np.array(near), np.array([place[one] for one in chain])) for near, chain in chains))


def _alike(demands, share):
    """Rows of demands of the same models and near budgets, by rate."""
    for models in sorted({demand[0] for demand in demands}):
        rows = [row for row, demand in enumerate(demands) if demand[0] == models]
        budgets = np.unique([demands[row][1] for row in rows])
        for chunk in np.array_split(budgets, min(len(budgets), int(np.sqrt(len(rows) * share)) + 1)):
            near = [row for row in rows if chunk[0] <= demands[row][1] <= chunk[-1]]
            yield sorted(near, key=lambda row: -demands[row][2])


def _hardest(demands):
    """A demand that serves all of them."""
    models, budgets, rates = zip(*demands, strict=True)
    return models[0], min(budgets), max(rates)
