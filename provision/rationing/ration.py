"""``provision.ration``: serve the most weighted traffic where GPUs or money are short, level after level of priority.

The program of `provision.formulations.master.rationing` says which share of each workload's rate is served, with a
bound; ``provision.solve`` then plans these shares at least cost. Where a level is not proven, what goes without is
tried beside what is served.

For a workload that goes without, it is told what would serve it: further GPUs, more money, or a longer SLO. Behind each
is a plan that was found and verified; less may do as well, unless it is said to be proven.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from provision.formulations.master.rationing import Level, Rationing, floor_of
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import best_segments
from provision.instances.files.files import FilePath, refused
from provision.instances.read import read
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.base.tolerances import FORGIVEN
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import committed_per_hour, cost_per_hour
from provision.models.problem.workload import FleetEntry, Workload
from provision.models.traffic.rules import FULL_BATCHES
from provision.solving.solve import check_time_limit, solve
from provision.sweeps.parameters import changed

MOST_FACTOR, STEPS = 4.0, 5
"""The largest factor on an SLO that is tried, and the number of bisection steps."""
DIGITS = 3
"""The significant digits of an SLO that is told."""


@dataclass(frozen=True)
class WayBack:
    """What would serve the whole rate of a workload, beside what is served of all others.

    ``gpus`` are the further GPUs by type. ``more_per_hour`` is what they cost (None without prices) or, if there is a
    budget, what the budget lacks. ``proven`` tells that less will not do. ``slo_ms`` is a longer SLO that needs neither
    further GPUs nor money. Each is None if nothing was found.
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
    """The further GPUs that a plan needs, by type, and their cost per hour (None without prices).

    With a budget: the GPUs that the present plan lacks, and the money per hour that the budget lacks.
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
    """The GPUs of a fleet, free of charge, and any number of further ones of each type at the type's least price."""
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


PROGRAM, PLANNED, TRIALS = 0.4, 0.3, 0.5
"""The part of the time for the program, and the parts of what is then left for the plan and for trials of what goes
without; the rest is for the ways back.
"""
MOST_TOLD = 8
"""The most workloads whose ways back are sought."""


@dataclass(frozen=True)
class Portion:
    """What a workload is served: ``share`` of the rate that it asks for; 0 if it is left out.

    ``reason`` tells why no plan on this fleet serves it, if that is so. ``back`` is what would serve it as a whole,
    beside all others as they are served; None if it is served or nothing was sought.
    """

    workload: str
    priority: int
    weight: float
    asked_rps: float
    share: float
    reason: str = ""
    back: WayBack | None = None

    @property
    def served_rps(self) -> float:
        """The requests/s that are served."""
        return self.share * self.asked_rps


@dataclass(frozen=True)
class Ration:
    """Who is served how much, by level of priority, and the plan for what is served.

    ``instance`` is the instance of what is served; ``result`` has its verified plan.
    """

    instance: Instance
    portions: tuple[Portion, ...]
    levels: tuple[Level, ...]
    budget_per_hour: float | None
    result: Result

    @property
    def short(self) -> list[Portion]:
        """The portions of workloads that are left out or cut."""
        return [one for one in self.portions if one.share < 1]

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision ration --json`` prints, but for the files."""
        return {
            "status": "optimal" if all(one.proven for one in self.levels) else "feasible",
            "budget_per_hour": self.budget_per_hour,
            "workloads": [asdict(one) | {"served_rps": one.served_rps} for one in self.portions],
            "levels": [one._asdict() | {"proven": one.proven} for one in self.levels],
            "plan": self.result.summary(),
        }


def ration(instance: Instance | FilePath, budget_per_hour: float | None = None, time_limit_s: float = 60.0,
           seed: int = 0, tell: Callable[[str], None] = lambda text: None) -> Ration:
    """Serve the most weighted traffic on a limited fleet or within a budget, the highest ``priority`` first.

    Parameters
    ----------
    instance
        An Instance, its shipped name or its path. Its workloads have ``priority``, ``weight`` and ``floor``.
    budget_per_hour
        The most that all GPUs may cost per hour, committed ones included; None for no limit beyond the fleet's counts.
    time_limit_s
        Seconds for all of it.
    seed
        Seed of methods that draw random numbers.
    tell
        Called with texts that name the current activity.

    Raises
    ------
    InputError
        If nothing limits the fleet, every weight is 0, the budget does not suffice for committed GPUs, no workload can
        be served even at its floor, or the instance has rules that this search does not know.
    MethodError
        If a method fails.
    """
    check_time_limit(time_limit_s)
    end = Deadline(time_limit_s)
    rationing = _Rationing(read(instance), budget_per_hour, seed, end)
    tell("serving level after level")
    rationing.serve(PROGRAM * time_limit_s)
    tell("planning what is served")
    rationing.plan()
    tell("looking for room for those who go without")
    rationing.try_more(Deadline(TRIALS * end.left_s))
    return rationing.told(tell)


class _Rationing:
    """One call of ``ration``, step by step."""

    def __init__(self, instance: Instance, budget: float | None, seed: int, end: Deadline) -> None:
        self.given, self.budget, self.seed, self.end = instance, budget, seed, end
        self.fixed = _fixed(instance, budget)
        segments = best_segments(self.fixed)
        able = segments.throughput_rps.max(axis=1, initial=0) > 0
        self.reasons = {one.name: _reason(instance, one) for one, may in zip(instance.workloads, able, strict=True)
                        if not may}
        self.share = {one.name: 0.0 for one in instance.workloads}
        self.levels: tuple[Level, ...] = ()
        self.names: list[str] = []
        self.result: Result | None = None
        self.first: Plan | None = None

    def serve(self, seconds: float) -> None:
        """Decide the shares by the program."""
        able = [one for one in self.fixed.workloads if one.name not in self.reasons]
        self.names = [one.name for one in able]
        if not able:
            raise InputError(f"ration: no workload can be served on this fleet: "
                             f"{'; '.join(f'{name}: {why}' for name, why in self.reasons.items())}")
        money = None if self.budget is None else self.budget - committed_per_hour(self.given)
        program = Rationing(self.fixed.replace(workloads=able), money, self.seed)
        found = program.levels(Deadline(min(seconds, self.end.left_s)))
        self.share |= dict(zip(self.names, found.shares.tolist(), strict=True))
        self.levels, self.first = found.levels, found.plan

    def plan(self) -> None:
        """Plan the shares; if that fails, leave out the least important workload until it succeeds."""
        order = [one.name for one in sorted(self.given.workloads, key=_importance)]
        while any(self.share.values()):
            self.result = self.planned(self.share, PLANNED * self.end.left_s, self.first, None)
            if self.result is not None:
                return
            dropped = next(name for name in order if self.share[name])
            self.share[dropped], self.first = 0.0, None
        needs = min(self.given.workloads, key=lambda one: _least_rps(self.given, one))
        raise InputError(f"ration: no floor can be kept: not even {needs.name} with {needs.floor:g} of its rate fits; "
                         "lower its floor, or allow more GPUs or a higher budget")

    def planned(self, share: dict[str, float], seconds: float, start: Plan | None, replay: bool | None = False
                ) -> Result | None:
        """The Result for these shares within the fleet and the budget; None if it has no plan."""
        return affordable(served(self.given, share, self.budget), self.budget, seconds, self.seed, start, replay)

    def try_more(self, until: Deadline) -> None:
        """Serve workloads that go without as a whole, where a plan turns out to have room for them: first those of high
        priority, which may push out lower levels where their own level is not proven.
        """
        order = sorted(self.given.workloads, key=_importance, reverse=True)
        proven = {level.priority: level.proven for level in self.levels}
        for one in order:
            if self.share[one.name] >= 1 or one.name in self.reasons or until.over:
                continue
            if proven[one.priority] and one.weight * one.rate_rps > 0:
                continue  # any plan with it serves a level less
            trials = [dict(self.share), {name: share if self.given.workload[name].priority >= one.priority else 0.0
                                         for name, share in self.share.items()}]
            for share in trials[:1 if proven[one.priority] else 2]:
                found = self.planned(share | {one.name: 1.0}, until.left_s / 4, None)
                if found is not None:
                    self.share, self.result = share | {one.name: 1.0}, found
                    break

    def told(self, tell: Callable[[str], None]) -> Ration:
        """The answer, with ways back for the most important workloads that go without."""
        result, instance = known(self.result), served(self.given, self.share, self.budget)
        short = [one for one in sorted(self.given.workloads, key=_importance, reverse=True)
                 if self.share[one.name] < 1][:MOST_TOLD]
        ways = dict[str, WayBack]()
        for left, one in zip(range(len(short), 0, -1), short, strict=True):
            if self.end.over:
                break
            tell(f"looking for what would bring {one.name} back")
            wanted = served(self.given, self.share | {one.name: 1.0}, self.budget)
            ways[one.name] = way_back(wanted, one.name, known(result.plan), self.budget, Deadline(
                self.end.left_s / left), self.seed)
        portions = tuple(
            Portion(one.name, one.priority, one.weight, one.rate_rps, self.share[one.name],
                    self.reasons.get(one.name, ""), ways.get(one.name))
            for one in self.given.workloads)
        return Ration(instance, portions, tuple(self._levels()), self.budget, result)

    def _levels(self) -> Iterator[Level]:
        """Yield the levels, with what is served in the end. What no plan can serve counts as asked for, and not in
        bounds. Bounds rest on what the program served the levels above.
        """
        held, known_of = True, {level.priority: level for level in self.levels}
        for priority in sorted({one.priority for one in self.given.workloads}, reverse=True):
            value = {one.name: one.weight * one.rate_rps for one in self.given.workloads if one.priority == priority}
            asked, got = sum(value.values()), sum(value[name] * self.share[name] for name in value)
            level = known_of.get(priority, Level(priority, 0.0, 0.0, 0.0))
            yield Level(priority, asked, got, None if level.bound is None or not held else max(level.bound, got))
            held = held and math.isclose(level.served, got, rel_tol=1e-5, abs_tol=1e-9)


def served(instance: Instance, share: dict[str, float], budget: float | None) -> Instance:
    """The instance of what is served, to be planned at least cost."""
    kept = [one.model_copy(update={"rate_rps": one.rate_rps * share[one.name]})
            for one in instance.workloads if share[one.name] > 0]
    objective = instance.objective
    if budget is not None or objective == THROUGHPUT:
        objective = "min_cost"
    places = instance.places and instance.places.of(one.name for one in kept)
    return instance.replace(workloads=kept, objective=objective, places=places)


def _fixed(instance: Instance, budget: float | None) -> Instance:
    """The instance on a fleet with counts, for the program of most throughput.

    Raises
    ------
    InputError
        If nothing limits the fleet, every weight is 0, or the instance has rules that the program does not know.
    """
    for what, there in (("workflows", instance.workflows), ("even_replicas", instance.policy.even_replicas),
                        ("survive", instance.policy.survive)):
        if there:
            raise InputError(f"ration: knows no {what}; leave {what} out of the instance")
    if instance.policy.latency_budget == FULL_BATCHES:
        raise InputError(f"ration: policy.latency_budget {FULL_BATCHES} serves all or nothing; use another rule")
    if not any(one.weight for one in instance.workloads):
        raise InputError("ration: workloads: every weight is 0, so that nothing is worth serving; give one a weight")
    committed = committed_per_hour(instance)
    if budget is not None and instance.fleet[0].price_per_hour is None:
        raise InputError("ration: a budget needs prices; give every fleet entry a price_per_hour")
    if budget is not None and budget < committed:
        raise InputError(f"ration: budget_per_hour {budget:g}: the committed GPUs alone cost {committed:g}; raise it")
    fleet = [_counted(at, entry, instance, budget, committed) for at, entry in enumerate(instance.fleet)]
    with refused("ration"):
        return instance.replace(objective=THROUGHPUT, fleet=fleet, places=None)


def _counted(at: int, entry: FleetEntry, instance: Instance, budget: float | None, committed: float) -> FleetEntry:
    """A fleet entry with a count: no more GPUs than the nodes have and the budget pays for."""
    count = entry.count
    if instance.places is not None:
        there = instance.places.count_of(entry.gpu)
        count = there if count is None else min(count, there)
    if budget is not None and entry.price_per_hour and not entry.committed:
        affordable = math.floor((budget - committed) / entry.price_per_hour * (1 + FORGIVEN))
        count = affordable if count is None else min(count, affordable)
    if count is None:
        raise InputError(f"ration: fleet[{at}].count: nothing limits the number of {entry.gpu}; give a count, or a "
                         "budget and a price")
    return entry.model_copy(update={"count": count})


def _reason(instance: Instance, one: Workload) -> str:
    """Why no slice of the fleet serves a workload."""
    alone = instance.replace(workloads=[one])
    lines = unservable(alone, best_segments(alone))
    return "; ".join(line.removeprefix(f"workload {one.name}: ") for line in lines)


def _importance(one: Workload) -> tuple[int, float, float]:
    return one.priority, one.weight, one.rate_rps


def _least_rps(instance: Instance, one: Workload) -> float:
    """The least rate at which a workload may be served."""
    return one.rate_rps * floor_of(one.floor, one.max_replicas, one.max_share_per_gpu)
