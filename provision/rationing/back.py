"""What would serve a workload that goes without: further GPUs, more money, or a longer SLO. Each is a plan that was
found and verified, not a least one unless it is said to be proven.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from provision.models.base.clock import Deadline
from provision.models.base.known import known
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour
from provision.models.problem.workload import FleetEntry
from provision.solving.solve import solve
from provision.sweeps.parameters import changed

MOST_FACTOR, STEPS = 4.0, 5
"""The largest factor on an SLO that is tried, and the number of bisection steps."""
DIGITS = 3
"""The significant digits of an SLO that is told."""


@dataclass(frozen=True)
class WayBack:
    """What would serve a workload as a whole beside all others as they are served.

    ``gpus`` are the further GPUs by type, and ``more_per_hour`` what they cost (None without prices), or, within a
    budget, how much it lacks; ``proven`` tells that less will not do. ``slo_ms`` is an SLO with which the workload fits
    as things are. Each is None if nothing was found.
    """

    gpus: dict[str, int] | None
    more_per_hour: float | None
    proven: bool
    slo_ms: float | None


def way_back(wanted: Instance, name: str, present: Plan, budget: float | None, until: Deadline, seed: int) -> WayBack:
    """What would serve a workload that goes without.

    Parameters
    ----------
    wanted
        The instance of what is served, and this workload as a whole.
    name
        The workload.
    present
        The plan of what is served.
    budget
        The budget per hour; None for none.
    until
        When to end.
    seed
        Seed of methods that draw random numbers.
    """
    one = wanted.workload[name]
    lifted = wanted if budget is not None else wanted.replace(fleet=_lifted(wanted.fleet), objective="min_cost")
    found = solve(lifted, time_limit_s=max(until.left_s / 3, 0.5), seed=seed, replay=False)
    gpus, more = (None, None) if not found.verified else _further(wanted, lifted, found, present, budget)
    slo_ms = None
    low, high, left = 1.0, MOST_FACTOR, STEPS + 1
    while left and not until.over:
        factor = high if left > STEPS else (low + high) / 2
        longer = changed(wanted, {f"slo.{name}": factor})
        fits = affordable(longer, budget, until.left_s / left, seed) is not None
        if left > STEPS and not fits:
            break
        low, high = (low, factor) if fits else (factor, high)
        slo_ms, left = _rounded_up(one.slo_ms * high), left - 1
    return WayBack(gpus, more, found.status == "optimal", slo_ms)


def _further(wanted: Instance, lifted: Instance, found: Result, present: Plan, budget: float | None
             ) -> tuple[dict[str, int], float | None]:
    """The GPUs of a plan beyond those that there are (within a budget: beyond those of the present plan), and the money
    beyond what there is.
    """
    plan = known(found.plan)
    used = Counter(gpu.gpu for gpu in plan.gpus)
    if budget is not None:
        return dict(used - Counter(gpu.gpu for gpu in present.gpus)), known(cost_per_hour(wanted, plan)) - budget
    there = Counter[str]()
    for entry in wanted.fleet:
        there[entry.gpu] += entry.count or 0
    priced = all(entry.price_per_hour for entry in wanted.fleet)
    return dict(used - there), known(cost_per_hour(lifted, plan)) if priced else None


def _lifted(fleet: tuple[FleetEntry, ...]) -> list[FleetEntry]:
    """The fleet, whose GPUs are free of charge, with further GPUs of its types at their least price."""
    there, prices = dict[tuple[str, bool], FleetEntry](), dict[tuple[str, bool], float]()
    for entry in fleet:
        key = entry.gpu, entry.partitioned
        count = (there[key].count or 0 if key in there else 0) + (entry.count or 0)
        there[key] = entry.model_copy(update={"count": count, "price_per_hour": 0.0, "committed": False, "tier": None})
        prices[key] = min(prices.get(key, math.inf), entry.price_per_hour or 1.0)
    return [*there.values(), *(one.model_copy(update={"count": None, "price_per_hour": prices[key]})
                               for key, one in there.items())]


def affordable(instance: Instance, budget: float | None, seconds: float, seed: int, start: Plan | None = None,
               replay: bool | None = False) -> Result | None:
    """The result of ``solve`` if its plan holds and keeps the budget; None otherwise."""
    found = solve(instance, time_limit_s=max(seconds, 0.5), seed=seed, start=start, replay=replay)
    kept = found.verified and (
        budget is None or known(cost_per_hour(instance, known(found.plan))) <= budget * (1 + FORGIVEN))
    return found if kept else None


def _rounded_up(value: float) -> float:
    """A value rounded up to a few significant digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{math.ceil(value / step - FORGIVEN) * step:.{DIGITS + 3}g}")
