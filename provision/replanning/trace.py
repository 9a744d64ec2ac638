"""Replays hours of demand, window by window, under a replanning policy, and counts GPU-hours, changes, and demand not
served.

A new plan is in place ``delay_s`` seconds after the start of its window. Until then only replicas that are in both
plans serve; if changes are made in the background, the whole former plan serves. Requests beyond the capacity of a
workload's replicas count as not served. Capacities are compared with rates; requests are not replayed.

Plans are made for the demand that is expected in the next window: the demand itself, the demand of the last window, a
moving average (gpu-lets), or what statsforecast tells from a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from provision.instances.files.demand import Demand
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline, Stopwatch, end_if_asked
from provision.models.base.errors import InputError, optional
from provision.models.base.objects import known
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.disturbance import disturbance, going_on
from provision.models.plans.plan import Plan
from provision.models.plans.report import Report
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance
from provision.replanning.replan import Replan, replan
from provision.sweeps.run import solved
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify


@dataclass(frozen=True)
class ReplanPolicy:
    """A policy that tells when and how to replan.

    ``planner`` is ``replan``, ``static`` (a single plan for the highest rates) or the name of a method that solves from
    scratch, with ``parameters``. ``every`` is the number of windows between plans; ``forecast`` is one of
    ``forecast.FORECASTS``.
    """

    name: str
    planner: str = "replan"
    every: int = 1
    forecast: str = "known"
    headroom: float = 0.0
    delay_s: float = 0.0
    background: bool = False
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Window:
    """The result of one window: GPUs in use, changes at its start, the demand, and the fraction of the demand that is
    served.
    """

    time_s: float
    gpus: int
    cost_per_hour: float | None
    slices_destroyed: int
    slices_created: int
    replicas_started: int
    demand_rps: float
    served: float
    under_capacity: bool


def simulate_trace(instance: Instance, demand: Demand, policy: ReplanPolicy, change_cost: float | None = None,
                   time_limit_s: float = 5.0, tell: Callable[[int], None] = lambda done: None) -> list[Window]:
    """Replay demand under a policy.

    Parameters
    ----------
    instance
        The instance; workloads without demand keep their rates.
    demand
        The demand, with at least two windows.
    policy
        The policy that tells when and how to replan.
    change_cost
        The cost of a change, as for ``replan``.
    time_limit_s
        The time limit per plan, in seconds.
    tell
        A function that is called with the number of windows done so far.

    Returns
    -------
    list of Window

    Raises
    ------
    InputError
        If there is one window only, windows differ in length, or some window cannot be planned.
    """
    _check_windows(demand)
    rates = expected(demand, policy.forecast)
    plan: Plan | None = None
    windows = list[Window]()
    for row, time_s in enumerate(demand.times_s.tolist()):
        before = plan
        if row % policy.every == 0 and not (policy.planner == "static" and plan):
            ahead = rates.max(axis=0) if policy.planner == "static" else rates[row : row + policy.every].max(axis=0)
            planned = demand.instance(instance, ahead * (1 + policy.headroom))
            plan = _planned(planned, plan, policy, change_cost, time_limit_s, time_s)
        actual = demand.instance(instance, demand.rates_rps[row])
        windows.append(_window(actual, before, known(plan), policy, demand.window_s, time_s))
        tell(row + 1)
    return windows


def summary(windows: Sequence[Window], window_s: float, seconds: float) -> dict[str, Any]:
    """The row of a policy in a table: totals over all windows."""
    hours = window_s / 3600
    costs = [window.cost_per_hour for window in windows if window.cost_per_hour is not None]
    changes, asked = windows[1:], sum(window.demand_rps for window in windows)
    served = sum(window.demand_rps * window.served for window in windows)
    return {
        "gpu_hours": sum(window.gpus for window in windows) * hours,
        "cost": sum(costs) * hours if len(costs) == len(windows) else None,
        "slices_destroyed": sum(window.slices_destroyed for window in changes),
        "slices_created": sum(window.slices_created for window in changes),
        "replicas_started": sum(window.replicas_started for window in changes),
        "windows_under_capacity": sum(window.under_capacity for window in windows),
        "not_served": 1 - served / asked if asked else 0.0,
        "seconds": round(seconds, 2),
    }


def compare_policies(
    instance: Instance, demand: Demand, policies: Iterable[ReplanPolicy], change_cost: float | None = None,
    time_limit_s: float = 5.0, tell: Callable[[str, int], None] = lambda name, done: None,
) -> tuple[list[dict[str, Any]], dict[str, list[Window]]]:
    """The pair (a summary row per policy on the same demand, the windows of every policy by its name)."""
    rows, windows = [], {}
    for policy in policies:
        watch = Stopwatch()
        found = simulate_trace(instance, demand, policy, change_cost, time_limit_s, partial(tell, policy.name))
        windows[policy.name] = found
        rows.append({"policy": policy.name} | summary(found, demand.window_s, watch.elapsed_s))
    return rows, windows


def _check_windows(demand: Demand) -> None:
    """Refuse demand with a single window, or with gaps between its windows."""
    if demand.window_s <= 0:
        raise InputError("demand: has one window; replaying it needs two or more")
    gaps = np.flatnonzero(np.diff(demand.times_s) > demand.window_s * (1 + TOLERANCE))
    if len(gaps):
        raise InputError(
            f"demand: nothing follows {demand.times_s[gaps[0]]:.10g} s after {demand.window_s:g} s, the length of "
            "windows; add rows, of rate 0 where there is no demand"
        )


def _planned(instance: Instance, plan: Plan | None, policy: ReplanPolicy, change_cost: float | None,
             time_limit_s: float, time_s: float) -> Plan:
    """The plan for the expected rates, made by the policy's planner."""
    end_if_asked()
    if policy.planner == "replan" and plan is not None:
        found: Replan | Result = replan(instance, plan, change_cost, time_limit_s=time_limit_s, gap=1e-3)
        reason = found.status
    else:
        method = "auto" if policy.planner in ("replan", "static") else policy.planner
        asked = {"method": method, "time_limit_s": time_limit_s, **dict(policy.parameters)}
        result = solved(instance, asked, start=plan)
        found, reason = result, result.reason or result.status
    if found.plan is None or found.report is None or not found.report.ok:
        raise InputError(f"demand: nothing can be planned for {time_s:g} s: {reason}")
    return found.plan


def _window(instance: Instance, before: Plan | None, plan: Plan, policy: ReplanPolicy, window_s: float,
            time_s: float) -> Window:
    """The Window of a plan: changes at its start, the demand, and the fraction of the demand that is served."""
    changes = disturbance(before or plan, plan)
    report = verify(instance, plan)
    full = capacity_rps(instance, plan, report.predictions)
    meanwhile = _meanwhile(instance, before or plan, plan, report, policy.background)
    rates = {one.name: one.rate_rps for one in instance.workloads if one.rate_rps > 0}
    part = min(1.0, policy.delay_s / window_s) if before else 0.0
    served = sum(part * min(rate, meanwhile[name]) + (1 - part) * min(rate, full[name]) for name, rate in rates.items())
    return Window(
        time_s=time_s, gpus=len(plan.gpus), cost_per_hour=report.cost_per_hour,
        slices_destroyed=changes.slices_destroyed, slices_created=changes.slices_created,
        replicas_started=changes.replicas_started, demand_rps=sum(rates.values()),
        served=served / sum(rates.values()) if rates else 1.0,
        under_capacity=any(rate > full[name] * (1 + TOLERANCE) for name, rate in rates.items()),
    )


def _meanwhile(instance: Instance, before: Plan, plan: Plan, report: Report, background: bool) -> Mapping[str, float]:
    """The capacity of each workload in requests/s while the plan ``before`` is replaced by ``plan``."""
    if background:
        return capacity_rps(instance, before, verify(instance, before).predictions)
    on = going_on(before, plan)
    return capacity_rps(instance, plan, [found for found in report.predictions if (found.gpu, found.slice) in on])


EWMA, EWMA_STEP_S = 2 / 41, 0.5
"""The weight of the newest step in gpu-lets' moving average, and the length of a step in seconds, both as in its public
program.
"""
FORECASTS = ("known", "last", "ewma")


def expected(demand: Demand, kind: str) -> Floats:
    """(windows, workloads), the rates in requests/s that are expected for each window; the rates of the first window
    are always known. Raises InputError if the kind is not one of FORECASTS.
    """
    if kind not in FORECASTS:
        raise InputError(f"forecast {kind!r}: use one of {', '.join(FORECASTS)}")
    rates = demand.rates_rps
    if kind == "known":
        return rates
    seen = rates if kind == "last" else _averaged(rates, window_weight(demand.window_s))
    return np.vstack([rates[:1], seen[:-1]])


def window_weight(window_s: float) -> float:
    """The weight of the whole last window in gpu-lets' moving average; 0.865 for gpu-lets' windows of 20 s."""
    return 1 - (1 - EWMA) ** (window_s / EWMA_STEP_S)


def _averaged(rates: Floats, weight: float) -> Floats:
    """(windows, workloads), the exponentially weighted moving average over all windows up to and including each window.
    """
    averaged = [rates[0]]
    for row in rates[1:]:
        averaged.append(weight * row + (1 - weight) * averaged[-1])
    return np.array(averaged)


LEAST_HISTORY, MOST_HISTORY, LIKELY = 24, 288, 50
"""The fewest and the most intervals that a forecast rests on; the percentage of the interval about a forecast above
which a rise counts as likely: so that three in four are.
"""


def ahead(history: Sequence[Sequence[float]], limit_s: float = inf) -> list[float] | None:
    """The rates that are expected for the next interval; None while there is too little history.

    statsforecast fits an exponential smoothing to each workload. Its forecast counts where a rise is likely; elsewhere
    the last rate does: rates of single clients are noise around it, and the higher of both would be too high.

    Parameters
    ----------
    history
        The rates of past intervals, the oldest first.
    limit_s
        The seconds for all fits; workloads whose turn does not come keep their last rate.

    Raises
    ------
    InputError
        If statsforecast is not installed, or fails on this history.
    """
    deadline = Deadline(limit_s)
    if len(history) < LEAST_HISTORY:
        return None
    with optional():
        from statsforecast import models
    expected = list(map(float, history[-1]))
    try:
        for number, column in enumerate(np.array(history[-MOST_HISTORY:], dtype=float).T):
            if np.ptp(column) and not deadline.over:
                told = models.AutoETS(model="ZZN").forecast(y=column, h=1, level=[LIKELY])
                if told[f"lo-{LIKELY}"][0] > column[-1]:
                    expected[number] = float(told["mean"][0])
    except Exception as error:  # statsforecast raises Exception itself where no model fits
        raise InputError(f"statsforecast: {type(error).__name__}: {error}; go without it: --no-forecast") from error
    return expected
