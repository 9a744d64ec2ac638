"""Plans for uncertain demand: for every quantile of a demand trace, the best plan, its cost, and the fraction of
windows that it serves. A plan holds in all windows in which no rate is higher than its rates. The plan for quantile 1,
the highest rate of every workload, therefore holds in every window; it is the robust plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from provision.instances.files.demand import Demand
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.sweeps.run import Settings, row, solved
from provision.sweeps.table import TableRow
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def price_of_safety(instance: Instance, demand: Demand, settings: Settings, quantiles: Sequence[float] = QUANTILES,
                    tell: Callable[[int], None] = lambda solved: None) -> list[TableRow]:
    """One row per quantile, on the best plan for rates at that quantile: every workload has the quantile of its own
    rates over the windows.

    Parameters
    ----------
    instance
        The instance; workloads without demand keep their rates.
    demand
        The demand trace.
    settings
        The keyword arguments of ``solve``.
    quantiles
        The quantiles, as numbers between 0 and 1.
    tell
        A function that is called with the number of quantiles solved so far.

    Returns
    -------
    list of dict
        ``quantile``, ``covered`` (the fraction of the windows in which the plan carries all rates; None without a
        plan), then the columns of a sweep. A lower quantile never costs more than a higher one, since a plan for more
        traffic serves less traffic too; for the same reason a higher quantile never has a weaker bound.
    """
    found: dict[float, tuple[Instance, Result]] = {}
    above: Result | None = None
    for quantile in sorted(set(quantiles), reverse=True):
        # The method "higher" takes an observed rate, so that quantile 1 is the highest rate.
        rates = np.quantile(demand.rates_rps, quantile, axis=0, method="higher")
        varied = demand.instance(instance, rates)
        above = _no_worse(varied, solved(varied, settings, start=above.plan if above else None), above)
        found[quantile] = varied, above
        tell(len(found))
    _carry_bounds_up(instance, found)
    return [
        {"quantile": quantile, "covered": windows_carried(varied, demand, result.plan)} | row(result)
        for quantile in quantiles for varied, result in [found[quantile]]
    ]


def _no_worse(instance: Instance, result: Result, above: Result | None) -> Result:
    """The Result of a quantile. If the plan of the next higher quantile (``above``) is valid for this instance and
    better, it replaces the plan in the Result.
    """
    if above is None or above.plan is None or not objective_of(instance).better(above.objective, result.objective):
        return result
    report = verify(instance, above.plan)
    if not report.ok:
        return result
    taken = f"the plan of a higher quantile, {above.method}'s"
    return replace(
        result, plan=above.plan, report=report, objective=above.objective, status="feasible", reason=taken
    )


def _carry_bounds_up(instance: Instance, found: dict[float, tuple[Instance, Result]]) -> None:
    """Replace every bound by the tightest bound of lower quantiles, if that is tighter; this is valid since higher
    rates never cost less.
    """
    bound = None
    for quantile in sorted(found):
        varied, result = found[quantile]
        if objective_of(instance).tighter(result.bound, bound):
            bound = result.bound
        found[quantile] = varied, replace(result, bound=bound)


def windows_carried(instance: Instance, demand: Demand, plan: Plan | None) -> float | None:
    """The fraction of the windows in which a plan carries every rate, headroom included; None without a plan."""
    if plan is None:
        return None
    capacity = capacity_rps(instance, plan, verify(instance, plan).predictions)
    held = np.array([capacity[name] for name in demand.workloads])
    planned = instance.policy.planned_rps(1.0) * demand.rates_rps
    return float(np.mean(np.all(planned <= held * (1 + TOLERANCE), axis=1)))
