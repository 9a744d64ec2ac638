"""Uncertain demand: plans for quantiles of a demand trace, what each covers, and what its safety costs.

Segments serve one workload each, so that a plan for the highest rate of every workload holds in every window
(quantile 1 is the robust plan) and a plan for lower rates in those windows where no rate exceeds what it planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from provision.models.performance.operating_points import ROUNDING
from provision.sweeps.run import row, solved
from provision.verification.capacity import capacity_rps
from provision.verification.verify import verify

if TYPE_CHECKING:
    from provision.instances.files.demand import Demand
    from provision.models.plans.plan import Plan
    from provision.models.problem.instance import Instance
    from provision.sweeps.run import Settings
    from provision.sweeps.table import TableRow

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def price_of_safety(
    instance: Instance, demand: Demand, settings: Settings, quantiles: Sequence[float] = QUANTILES,
    tell: Callable[[int], None] = lambda solved: None,
) -> list[TableRow]:
    """One row per quantile: the best plan for every workload's quantile of its rate over the windows.

    Parameters
    ----------
    instance
        The Instance; workloads without demand keep their rates.
    demand
        The Demand.
    settings
        Keyword arguments of ``solve``.
    quantiles
        Numbers between 0 and 1.
    tell
        Called with the number of quantiles solved so far.

    Returns
    -------
    list of dict
        ``quantile``, ``covered`` (part of the windows in which the plan carries all rates; None without a plan),
        then the columns of a sweep.
    """
    rows = []
    for quantile in quantiles:
        # The method "higher" takes a rate that was seen, so that quantile 1 is the highest.
        rates = np.quantile(demand.rates_rps, quantile, axis=0, method="higher")
        varied = demand.instance(instance, rates)
        result = solved(varied, settings)
        rows.append({"quantile": quantile, "covered": covered(varied, demand, result.plan)} | row(result))
        tell(len(rows))
    return rows


def covered(instance: Instance, demand: Demand, plan: Plan | None) -> float | None:
    """Part of the windows in which a plan carries every rate, headroom included; None without a plan."""
    if plan is None:
        return None
    capacity = capacity_rps(instance, plan, verify(instance, plan).predictions)
    held = np.array([capacity[name] for name in demand.workloads])
    planned = instance.policy.planned_rps(demand.rates_rps)
    return float(np.mean(np.all(planned <= held * (1 + ROUNDING), axis=1)))
