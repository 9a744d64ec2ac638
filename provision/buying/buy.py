"""``provision.buy``: what to reserve for demand over time, and a verified plan for every period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC

import numpy as np

from provision.buying.known import Known
from provision.buying.market import Market
from provision.buying.purchase import Account, End, Grown, Purchase
from provision.buying.search import Found, Searching
from provision.instances.files.demand import read_demand
from provision.instances.files.files import FilePath, refused
from provision.instances.read import read
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.errors import InputError
from provision.models.problem.buying import Buying
from provision.models.problem.instance import Instance
from provision.models.problem.objective import HOURS_PER_MONTH
from provision.solving.solve import check_time_limit

GROWTH = (1.0, 5.0, 10.0)
"""The percentages of growth that are priced by default."""
MAIN, GROWN, LATER = 0.55, 0.25, 0.15
"""The parts of the time for the search itself, for all growth together, and for plans near the one before."""
GAP = 0.001


def buy(instance: Instance | FilePath, time_limit_s: float = 120.0, gap: float = GAP,
        growth: Sequence[float] = GROWTH, few_changes: bool = False, seed: int = 0,
        tell: Callable[[float | None, float], None] = lambda cost, bound: None) -> Purchase:
    """Choose commitments for all periods, and a plan for each, at least total cost.

    Parameters
    ----------
    instance
        An Instance with ``buying``, its shipped name or its path.
    time_limit_s
        Seconds for everything.
    gap
        The search may end when (cost - bound) / cost is no larger.
    growth
        Percentages by which all rates may grow further; each is priced.
    few_changes
        Whether each plan is replanned from the one before, with the GPUs that are bought, so that few replicas move.
        The cost stays; whether fewer GPUs would have to change at a higher cost is not asked.
    seed
        The seed of all solves.
    tell
        Called with the best cost (None if there is none) and the bound whenever both are computed.

    Returns
    -------
    Purchase

    Raises
    ------
    InputError
        If the instance states no demand over time or no prices, or the time limit or a percentage is out of range.
    """
    watch = Stopwatch()
    instance = read(instance)
    check_time_limit(time_limit_s)
    if not 0 <= gap < 1:
        raise InputError(f"gap {gap!r}: should be a fraction from 0 to below 1")
    if bad := [one for one in growth if not 0 < one <= 1000]:
        raise InputError(f"growth {bad[0]:g}: should be above 0 and at most 1000 percent")
    market, deadline = Market(instance), Deadline(time_limit_s)
    search = Searching(market, gap, seed, tell)
    main = MAIN + (0 if growth else GROWN) + (0 if few_changes else LATER)
    found = search.run(main * time_limit_s)
    zone = market.buying.time_zone() or UTC
    known = search.known
    answer = Purchase(instance.name, found.status, "", str(zone), market.hours, None, found.bound)
    if found.choice is None:
        at = None if found.short is None else market.spans[found.groups[found.short].periods[0]].start
        day = "" if at is None else at.astimezone(zone).isoformat(timespec="minutes")
        reason = (f"nothing that may be bought serves the demand of {day}" if at else
                  "no purchase was found in the time; allow more")
        return replace(answer, reason=reason, ends=(End("quota", day, True),) if at else (), solves=search.solves,
                       seconds=watch.elapsed_s)
    columns = [(known.columns[one].plan, known.columns[one].on_spot) for one in found.choice.columns]
    account = Account(market, found, found.choice, columns, zone)
    firm = search.without_spot(found, 0.1 * time_limit_s) if market.spot else (None, 0.0)
    plans = account.plans(few_changes, LATER * time_limit_s / max(1, len(found.groups)))
    ends = _ends(market, known, found, account)
    grown = []
    for percent in sorted(growth):
        more = search.run(max(min(GROWN * time_limit_s / len(growth), deadline.left_s), 1.0), 1 + percent / 100)
        month = HOURS_PER_MONTH / market.hours
        cost = None if more.choice is None else more.choice.cost * month
        short = None if more.short is None else account.moment(
            market.spans[more.groups[more.short].periods[0]].start)
        grown.append(Grown(percent, cost, more.bound * month,
                           None if cost is None else (cost - found.choice.cost * month) / percent, short))
    return replace(
        answer, cost=found.choice.cost, reserved=account.reserved(), periods=account.periods(plans), ends=ends,
        growth=tuple(grown), spot=account.spot(firm), solves=search.solves, seconds=watch.elapsed_s,
        plans=tuple(plans))


def with_demand(instance: Instance, path: FilePath, zone: str | None = None) -> Instance:
    """The instance with the demand of a CSV file, as ``read_demand`` reads it, in place of its own.

    Parameters
    ----------
    zone
        The time zone of moments that name none; by default that of the instance.

    Raises
    ------
    InputError
        If the file or the zone cannot be used.
    """
    given = (instance.buying or Buying()).model_copy(update={"demand": None} | ({"zone": zone} if zone else {}))
    try:
        moments = given.time_zone()
    except ValueError as error:
        raise InputError(f"--{error}") from None
    demand = read_demand(path, zone=moments)
    rows = [{"start": _iso(time_s), "rates": dict(zip(demand.workloads, rates, strict=True))}
            for time_s, rates in zip(demand.times_s.tolist(), demand.rates_rps.tolist(), strict=True)]
    with refused(path, Instance):
        return instance.replace(buying=given.model_dump() | {"demand": rows})


def _iso(time_s: float) -> str:
    return np.datetime64(round(time_s), "s").item().replace(tzinfo=UTC).isoformat()


def _ends(market: Market, known: Known, found: Found, account: Account) -> tuple[End, ...]:
    """The days from which the owned GPUs, the committed GPUs and the quota no longer suffice."""
    def first(what: str, gpus: Callable[[int], Floats]) -> End:
        for period, span in enumerate(market.spans):
            at = account.group_of[period]
            does = known.suffices(found.groups[at].rates, gpus(at))
            if does is not True:
                return End(what, account.moment(span.start), does is False)
        return End(what, None, True)

    ends = [first("owned", lambda at: market.own)] if market.own.any() else []
    if found.choice is not None and found.choice.reserved.any():
        ends.append(first("committed", lambda at: account.committed(at)[0]))
    if np.isfinite(market.caps).any():
        ends.append(first("quota", lambda at: market.caps))
    return tuple(ends)
