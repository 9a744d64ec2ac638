"""Most throughput on a fixed fleet by the master program: bound, patterns, and plans from them.

A linear program mixes patterns as no whole GPU can, and its prices miss patterns that a plan needs. So some patterns of
the best plan are kept, and others are sought at the prices of what is left of the fleet and of the demand.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
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
    build_s, ended, reason = search.elapsed_s, None, ""
    termination: Termination = "stopped"
    with suppress(KeyboardInterrupt):
        filling = Filling(problem, progress, name)
        ended = filling.from_columns()
        if ended is None and progress.plan is None and instance.policy.latency_budget != FULL_BATCHES:
            served = serve(instance.replace(objective="min_gpus"), search.apart(SCHEDULE.half))
            reason = served.reason
            ended = filling.from_plan(served)
        termination = "completed"
    if ended is not None:
        return replace(ended, build_seconds=build_s)
    return progress.outcome("proved" if progress.proved else termination, reason, build_s)


class Filling:
    """The search on one Problem.

    Parameters
    ----------
    problem
        The Problem.
    progress
        The best plan and bound so far.
    name
        The method's, for its plans.
    """

    def __init__(self, problem: Problem, progress: Progress, name: str) -> None:
        self.problem, self.progress, self.name, self.search = problem, progress, name, progress.search
        self.fleet = FullFleet(problem, rates_of(problem) or {})
        progress.prove(self.fleet.bound)
        if progress.plan is not None:
            self.fleet.add_plan(progress.plan)

    def from_columns(self) -> Outcome | None:
        """Prove bounds and make plans of patterns that are priced; an Outcome where the fleet is proven too small."""
        every = EverySet(self.fleet) if knows_sets(self.fleet) else None
        if every is None or not every.listed(self.search.until(SCHEDULE.first_part)):
            for bound in self.fleet.rounds(self.search.until(SCHEDULE.some)):
                self.progress.prove(bound)
        if every is not None and every.listed(self.search.until(SCHEDULE.half)):
            self._close(every)
            if every.impossible:
                return Outcome("infeasible", "proved", reason=TOO_SMALL)
        if not self.progress.proved:
            self._improve()
        return None

    def from_plan(self, served: Outcome) -> Outcome | None:
        """Make plans from one that serves all rates on few GPUs; its Outcome where it is proven that there is none."""
        if served.status == "infeasible":
            return served
        if served.plan is not None:
            if self.fleet.add_plan(served.plan):
                self.progress.offer(self.problem.instance.adopted(served.plan))
            self._improve()
        return None

    def _close(self, every: EverySet) -> None:
        """Tighten the bound and make plans over all sets of replicas that slices can hold."""
        for found in every.rounds(self.search.until(SCHEDULE.half)):
            self.progress.prove(every.fleet.bound)
            if found is not None:
                self.progress.offer(full_plan(self.problem, *found, self.name))

    def _improve(self) -> None:
        """Seek patterns and make plans of them in turn until proved, out of time, or some turns without a better plan.

        Where the patterns of the first turn make no plan, that is the last.
        """
        search, sought, present = self.search, Sought(self.fleet, self.search.seed), list[Column]()
        idle = 0
        while idle < SCHEDULE.idle and not self.progress.proved and search.left_s > search.time_limit_s * SCHEDULE.rest:
            added, better = sought.seek(search.until(SCHEDULE.some), present), False
            self.progress.prove(self.fleet.bound)
            found = self.fleet.chosen(search.left_s * SCHEDULE.half) if added or not present else None
            if found is not None:
                present = found[1]
                better = self.progress.offer(full_plan(self.problem, *found, self.name))
            elif self.progress.plan is None:
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
