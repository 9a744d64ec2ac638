"""Most throughput on a fixed fleet by the master program: bound, patterns, and plans from them.

A linear program mixes patterns as no whole GPU can, and its prices miss patterns that a plan needs. So some patterns of
the best plan are kept, and others are sought at the prices of what is left of the fleet and of the demand.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from provision.formulations.master.every_set import EverySet, knows_sets
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.rate_plans import Column, full_plan
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.problem.instance import Instance
from provision.models.problem.search import Outcome, Progress, Search, Termination
from provision.models.traffic.full_batches import NAME as FULL_BATCHES

TOO_SMALL = "the workloads do not fit on so few GPUs; objective min_gpus tells how many they take"


def fill_fleet(instance: Instance, search: Search, name: str,
               serve: Callable[[Instance, Search], Outcome]) -> Outcome:
    """Plan an instance whose objective is throughput; Ctrl-C returns the best plan so far.

    Parameters
    ----------
    instance, search
        The problem and the search.
    name
        The method's, for its plans.
    serve
        What serves all rates on few GPUs.
    """
    refused = proved_infeasible(instance, best_segments(instance))
    if refused:
        return replace(refused, build_seconds=search.elapsed_s)
    problem, progress = Problem(instance), Progress(instance, search)
    built, reason = search.elapsed_s, ""
    termination: Termination = "completed"
    try:
        fleet = FullFleet(problem, rates_of(problem) or {})
        progress.prove(fleet.bound)
        if progress.plan is not None:
            fleet.add_plan(progress.plan)
        every = EverySet(fleet) if knows_sets(fleet) else None
        if every is None or not every.listed(search.until(SCHEDULE.first_part)):
            for bound in fleet.rounds(search.until(SCHEDULE.some)):
                progress.prove(bound)
        if every is not None and every.listed(search.until(SCHEDULE.half)):
            _close(problem, every, progress, name)
            if every.impossible:
                return Outcome("infeasible", "proved", reason=TOO_SMALL, build_seconds=built)
        if not progress.proved:
            _improve(problem, fleet, progress, name)
        if progress.plan is None and instance.policy.latency_budget != FULL_BATCHES:
            served = serve(instance.replace(objective="min_gpus"), search.apart(SCHEDULE.half))
            if served.status == "infeasible":
                return served
            reason = served.reason
            if served.plan is not None:
                if fleet.add_plan(served.plan):
                    progress.offer(instance.adopted(served.plan))
                _improve(problem, fleet, progress, name)
    except KeyboardInterrupt:
        termination = "stopped"
    return progress.outcome("proved" if progress.proved else termination, reason, built)


def _close(problem: Problem, every: EverySet, progress: Progress, name: str) -> None:
    """Tighten the bound and make plans over all sets of replicas that slices can hold."""
    for found in every.rounds(progress.search.until(SCHEDULE.half)):
        progress.prove(every.fleet.bound)
        if found is not None:
            progress.offer(full_plan(problem, *found, name))


def _improve(problem: Problem, fleet: FullFleet, progress: Progress, name: str) -> None:
    """Seek patterns and make plans of them in turn until proved, out of time, or some turns without a better plan.

    Where the patterns of the first turn make no plan, that is the last.
    """
    search, sought = progress.search, Sought(fleet, progress.search.seed)
    present: list[Column] = []
    idle = 0
    while idle < SCHEDULE.idle and not progress.proved and search.left_s > search.time_limit_s * SCHEDULE.rest:
        added, better = sought.seek(search.until(SCHEDULE.some), present), False
        progress.prove(fleet.bound)
        found = fleet.chosen(search.left_s * SCHEDULE.half) if added or not present else None
        if found is not None:
            present = found[1]
            better = progress.offer(full_plan(problem, *found, name))
        elif progress.plan is None:
            return
        idle = 0 if better else idle + 1


class Sought:
    """Seeks patterns for a FullFleet.

    Where prices of a linear program find no more patterns, prices are drawn around them. Only rates that are asked are
    dear then, so that patterns are found which give a workload no more of these than it needs, and the rest to others.

    Parameters
    ----------
    fleet
        The FullFleet that gets the patterns.
    seed
        For what is drawn: prices, and the patterns of a plan that are kept.
    """

    def __init__(self, fleet: FullFleet, seed: int) -> None:
        self.fleet, self.draw = fleet, np.random.default_rng(seed)
        self.tried: set[Column] = set()

    def seek(self, until: Deadline, present: Sequence[Column] = ()) -> bool:
        """Add patterns that hold until time is over, or until there are none; returns whether some were added.

        Parameters
        ----------
        until
            When to end.
        present
            The patterns of a plan: some of them, drawn anew in each call, are kept.
        """
        kept = [one for one in present if self.draw.random() < 0.5]
        asked_rps = self.fleet.demand_rps.copy()
        for one in kept:
            np.subtract.at(asked_rps, [member.group for member in one.members], one.rps)
        asked_rps = np.maximum(asked_rps, 0)
        before, left, like = len(self.fleet.columns), SCHEDULE.again, set(present)
        while not until.over:
            patterns = list(self.fleet.columns)
            known, *others = self.fleet.columns_of(self.fleet.columns, whole=False)
            found = self.fleet.master.relaxed([known._replace(least=_number(patterns, kept)), *others])
            if found is None:
                break
            self.fleet.price(found.duals, until)
            like |= {one for one, part in zip(patterns, found.x, strict=False) if part > 0}
            for one in like - self.tried:
                self.tried.add(one)
                self.fleet.add_near(one, until)
            if len(patterns) == len(self.fleet.columns):
                if not left:
                    break
                left -= 1
                self.fleet.price(found.duals * self.draw.uniform(0, 2, len(found.duals)), until, asked_rps)
        return len(self.fleet.columns) > before


def _number(patterns: Sequence[Column], kept: Sequence[Column]) -> Floats:
    """(patterns,) how often each is kept."""
    return np.array([kept.count(one) for one in patterns], float)
