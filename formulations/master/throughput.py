"""Maximum throughput on a fixed fleet by the master program: bounds, patterns, and plans.

The linear program uses fractions of patterns. At its prices, some patterns that plans need are never generated. So
further patterns are priced at random prices around them.

Where each workload has one replica, bounds are exact: every set of workloads that fits a slice is a column. The value
of a set is an upper bound on its throughput. An integer program chooses sets, which proves a bound on all plans. Then
the best operating points of the chosen sets are searched, which lowers their values. The search ends when the value of
every chosen set is what it carries.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from provision.formulations.linear.restricted import Known
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.plans import Column, rated_plan
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.mps.oracle import InterferencePatterns
from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import GENEROUS, Member
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import LOOSE, SOLVER, TOLERANCE
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search
from provision.models.traffic.rules import FULL_BATCHES

TOO_SMALL = "the workloads do not fit on so few GPUs; objective min_gpus tells how many they take"
UNKNOWN = Running(0, 1, 1, 1.0)
"""A placeholder where the operating point of a replica is not needed."""
Place = tuple[int, tuple[int, ...]]
"""A set of replicas on one slice: the slice type, and the groups of the replicas in ascending order."""


def bounds_of_sets(fleet: FullFleet, until: Deadline) -> Iterator[float]:
    """Tighten the bound of a FullFleet and add the patterns of sets to it; yield the bound after every program.

    It does nothing unless each slice type has one oracle that lists the sets of workloads, with one replica each, that
    share a slice before the deadline.
    """
    oracles = {at: one for at, one in fleet.oracles if isinstance(one, InterferencePatterns)}
    every, settled = {at: one.every(until) for at, one in oracles.items()}, SCHEDULE.set_effort + 1
    if not every or len(every) < len(fleet.oracles) or None in every.values():
        return
    effort, most = Counter[Place](), dict[Place, float]()
    for at, slice_type in np.argwhere(fleet.single_rps > 0).tolist():
        most[slice_type, (at,)], effort[slice_type, (at,)] = float(fleet.single_rps[at, slice_type]) * GENEROUS, settled

    def search(place: Place) -> None:
        """Search for the best operating points of a set with the effort that is its turn."""
        slice_type, groups = place
        most[place], members = oracles[slice_type].best(groups, effort[place])
        held = None if members is None else fleet.add(slice_type, members)
        exact = held is not None and sum(held.rps) >= most[place] * (1 - TOLERANCE)
        effort[place] = settled if exact else effort[place] + 1

    for place in [(slice_type, groups) for slice_type, several in every.items() for groups in several or ()]:
        search(place)
    sets, rates = Known(), [group.rate_rps for group in fleet.problem.groups]
    for slice_type, groups in most:
        column = Column(slice_type, tuple(Member(one, UNKNOWN) for one in groups), tuple(rates[one] for one in groups))
        sets[column] = fleet.entries(column), 0.0
    columns, *others = fleet.columns_of(sets)
    searched = list(most)
    while searched and not until.over:
        worth = np.array(list(most.values()))
        found = fleet.master.integral([columns._replace(cost=-worth, most=np.where(worth > 0, np.inf, 0.0)), *others],
                                      until.left_s)
        if found.x is None:
            return
        fleet.bound = min(fleet.bound, SOLVER * max(1.0, -found.bound) - found.bound)
        yield fleet.bound
        chosen = [place for place, times in zip(most, found.x, strict=False) if times > SCHEDULE.half]
        searched = [place for place in chosen if effort[place] < settled]
        for place in searched:
            search(place)


def fill_fleet(instance: Instance, search: Search, name: str,
               serve: Callable[[Instance, Search], Outcome]) -> Outcome:
    """Plan an instance whose objective is throughput.

    Parameters
    ----------
    instance, search
        The problem and the search.
    name
        The name of the method, for its plans.
    serve
        A method that carries all rates on few GPUs.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
    problem, progress = Problem(instance), Progress(instance, search)
    build_s, reason, fleet = search.elapsed_s, "", FullFleet(problem, rates_of(problem))
    if progress.plan is not None:
        fleet.add_plan(progress.plan)
    for bound in fleet.rounds(search.within(SCHEDULE.turn_s)):
        progress.prove(bound)
    if fleet.bound < fleet.demand_rps.sum() * (1 - LOOSE):  # a plan carries all rates
        return Outcome("infeasible", "proved", reason=TOO_SMALL, build_seconds=build_s)
    if not progress.proved:
        _improve(fleet, progress, name)
    if progress.plan is None and instance.policy.latency_budget != FULL_BATCHES:
        served = serve(instance.replace(objective="min_gpus"), search.apart(SCHEDULE.served_s))
        reason = served.reason
        if served.status == "infeasible":
            return replace(served, build_seconds=build_s)
        if served.plan is not None:
            if fleet.add_plan(served.plan):
                progress.offer(instance.adopted(served.plan))
            _improve(fleet, progress, name)
    return progress.outcome("completed", reason, build_s)


def _improve(fleet: FullFleet, progress: Progress, name: str) -> None:
    """Alternate between pricing and plans until the plan is proven optimal, time is up, or several rounds bring no
    better plan. ``name`` is that of the method.

    If the patterns of the first round make no plan, there is no second round.
    """
    search, draw = progress.search, np.random.default_rng(progress.search.seed)
    idle, seconds, tried = 0, SCHEDULE.turn_s, False
    while idle < SCHEDULE.idle and not progress.proved and search.left_s:
        added, better = fleet.seek(draw, search.within(seconds * SCHEDULE.half)), False
        progress.prove(fleet.bound)
        found = fleet.chosen(min(seconds, search.left_s)) if added or not tried else None
        if found is not None:
            better = progress.offer(rated_plan(fleet.problem, *found, name))
        elif progress.plan is None:
            return
        for bound in () if progress.proved or tried else bounds_of_sets(fleet, search.within(SCHEDULE.served_s)):
            progress.prove(bound)
        tried = True
        idle, seconds = (0, seconds) if better else (idle + 1, seconds * SCHEDULE.patience)
