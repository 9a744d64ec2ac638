"""Fewer classes for large instances: similar demands merged, into the hardest of them or the easiest.

Covering the hardest covers all; no plan for all takes fewer GPUs than one for as many of the easiest.
"""

from dataclasses import dataclass

import numpy as np

from provision.models.igniter_tables import hardness


@dataclass(frozen=True)
class Merged:
    """Demands (model, budget in ms, rate in requests/s), each for ``counts`` replicas."""

    demands: tuple
    counts: np.ndarray


def coarse(classes, target, easiest=False):
    """The demands of some Classes, merged to about ``target``: by model, budgets, then rates, in equal parts."""
    counts = classes.counts
    share = target / len(counts)
    if share >= 1:
        return Merged(classes.demands, counts)
    merged = {}
    for near in _alike(classes.demands, share):
        for part in np.array_split(near, max(round(len(near) * share), 1)):
            demand = _extreme([classes.demands[row] for row in part], easiest)
            merged[demand] = merged.get(demand, 0) + int(counts[part].sum())
    demands = sorted(merged, key=hardness)
    return Merged(tuple(demands), np.array([merged[one] for one in demands]))


def _alike(demands, share):
    """Rows of demands of one model and near budgets, by rate."""
    for model in sorted({demand[0] for demand in demands}):
        rows = [row for row, demand in enumerate(demands) if demand[0] == model]
        budgets = np.unique([demands[row][1] for row in rows])
        for chunk in np.array_split(budgets, min(len(budgets), int(np.sqrt(len(rows) * share)) + 1)):
            near = [row for row in rows if chunk[0] <= demands[row][1] <= chunk[-1]]
            yield sorted(near, key=lambda row: -demands[row][2])


def _extreme(demands, easiest):
    """A demand that serves all of them, or one that all of them serve."""
    models, budgets, rates = zip(*demands, strict=True)
    return (models[0], max(budgets), min(rates)) if easiest else (models[0], min(budgets), max(rates))
