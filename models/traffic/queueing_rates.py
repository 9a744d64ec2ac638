"""The highest rates that operating points carry with their P99 inside a budget: what methods search."""

from operator import itemgetter

import numpy as np

from provision.models.traffic.queueing import LATE, MOST_LOAD
from provision.models.traffic.queueing_kernels import most_load

MOST_PATIENCE = 20.0
"""Patience beyond this many hold times is not counted on."""


def best_by_rate(points, max_processes, budgets_ms):
    """For each budget, the operating point that carries the highest rate with its P99 inside the budget.

    Parameters
    ----------
    points
        OperatingPoints.
    max_processes
        Use no point with more processes than this.
    budgets_ms
        Array of longest latencies of a task.

    Returns
    -------
    ndarray
        (budgets, 4): that rate in requests/s, batch latency in ms, batch, processes; zeros where there is none.
    """
    table = np.column_stack([points.throughput_rps, points.latency_ms, points.batch, points.processes])
    table = table[points.processes <= max_processes]
    table = table[np.argsort(-table[:, 0], kind="stable")]
    different, which = np.unique(budgets_ms, return_inverse=True)
    return np.array([_best(table, budget_ms) for budget_ms in different])[which]


def _best(table, budget_ms):
    best = (0.0, 0.0, 0.0, 0.0)
    for throughput_rps, latency_ms, *counts in table.tolist():
        if throughput_rps * MOST_LOAD <= best[0]:
            break
        if latency_ms <= budget_ms:
            batch, processes = map(int, counts)
            patience = min((budget_ms - latency_ms) * throughput_rps / (1000 * batch * processes), MOST_PATIENCE)
            rate_rps = throughput_rps * most_load(batch, processes, patience, LATE, MOST_LOAD)
            best = max(best, (rate_rps, latency_ms, batch, processes), key=itemgetter(0))
    return best
