"""Replanning: from a running plan to a plan for new demand, with the least sum of cost and changes, proven.

The integer program has whole numbers of three kinds: of the GPUs of each layout that take each turn (a new GPU is a
layout without slices), of the slices that hold each pattern, and of the GPUs that are paid at each price.

    turns     turns of a layout                              =   its running GPUs
    going on  patterns in which replicas of a slice go on    <=  slices like it that are kept
    slots     patterns on slices of a type                   <=  slices of the type, kept and new
    rates     parts of a workload's rate                     >=  1
    replicas  between min_replicas and max_replicas
    prices    GPUs of a type                                 <=  those paid

Destroyed slices and started replicas have a cost in the objective. If a GPU may carry only a share of a workload, every
GPU is a *pool* of its own; otherwise one pool has all GPUs. The program is exact if all patterns can be listed
(`patterns`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.slots import Held, SlicePattern, parts_of, plan_of
from provision.formulations.linear.description import Description, Terms
from provision.formulations.linear.highs import IntegerSolution, solve_integer
from provision.formulations.pricing.rates import TooManyError
from provision.formulations.replanning.patterns import Options, options_of
from provision.formulations.replanning.running import (
    GIVEN_BACK,
    Going,
    Layout,
    Turn,
    first_entries,
    layouts_of,
    turns_of,
)
from provision.formulations.search.feasibility import unservable
from provision.formulations.search.segments import Segments, best_segments
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SOLVER, TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

NAME = "replan"
ALLOWED = ("batches", "replicas", "slices")
"""What may change: only batch sizes and rates; also replicas, with new slices and new GPUs; or everything."""
LISTED = 0.8
"""The fraction of the time limit in which all patterns must be listed."""
MOST_NEW = 20
"""The most new GPUs of a program in which every GPU is a pool of its own."""
EXACT = TOLERANCE / SOLVER
"""Rows of rates are divided by this number, so that a solver misses rates by no more than the verifier allows."""


class Replanned(NamedTuple):
    """The status, the lower bound on the sum of cost and changes, and the new plan (None if there is none)."""

    status: str
    bound: float
    plan: Plan | None


class _Gpus(NamedTuple):
    """GPUs of one layout: their pool, their indices in the running plan (None for new GPUs), and the most of them."""

    pool: int
    layout: Layout
    running: list[int] | None
    most: float


class _Holding(NamedTuple):
    """The slices that hold one pattern: the variable that counts them, their pool and slice type, what goes on there
    (None if all replicas are started), and the number of replicas that each starts.
    """

    number: int
    pool: int
    slice_type: int
    going: Going | None
    pattern: SlicePattern
    started: int


def replan_counts(
    instance: Instance, plan: Plan, change_cost: float, allow: str, holds: Callable[[Plan], bool],
    limit_s: float = 60.0, gap: float = 1e-6, known: float = math.inf,
) -> Replanned:
    """Replan with the least sum of cost and changes.

    Parameters
    ----------
    instance, plan
        The new problem, and the running plan.
    change_cost
        The cost of a destroyed slice or a started replica, in units of the objective.
    allow
        What may change, one of ALLOWED.
    holds
        Returns whether a plan is feasible by the exact numbers.
    limit_s, gap
        Time limit in seconds, and the relative gap at which the solver stops.
    known
        The sum of cost and changes of a known plan.

    Returns
    -------
    Replanned
        The status is unknown and the bound 0 if patterns of slices cannot be listed.

    Raises
    ------
    InputError
        If slices of the running plan do not fit on their GPU together.
    """
    until, segments, unknown = Deadline(limit_s), best_segments(instance), Replanned("unknown", 0.0, None)
    try:
        layouts = layouts_of(instance, segments, plan)
        if problems := unservable(instance, segments):
            alone = not any(instance.sharing_files(entry.gpu) for entry in instance.fleet)
            return Replanned("infeasible: " + "; ".join(problems), 0.0, None) if alone else unknown
        running = (one for layout in layouts for one in layout.going if one.slice_type >= 0)
        options = options_of(instance, segments, running, Deadline(LISTED * limit_s))
    except TooManyError:
        return unknown
    outside = sum(len(gpu.slices) for gpu, layout in zip(plan.gpus, layouts, strict=True) if layout.entry < 0)
    if allow != "slices" and outside:
        why = f"{outside} slices stand on GPUs that the fleet has not, and {allow} destroys none"
        return Replanned(f"infeasible: {why}", 0.0, None)
    gpus = _gpus(instance, segments, layouts, options, allow, known)
    if gpus is None:
        return unknown
    program = _Program(instance, segments, gpus, options, change_cost, allow == "batches")
    found = program.solve(until.left_s, gap)
    new = None if found.x is None else program.plan(np.round(found.x).astype(int).tolist(), plan)
    new = new if new is not None and holds(new) else None
    if found.status == "infeasible":
        return Replanned("infeasible", 0.0, None)
    bound = max(found.bound - SOLVER * max(1.0, abs(found.bound)), 0.0) if math.isfinite(found.bound) else 0.0
    return Replanned("unknown" if new is None else found.status, bound + change_cost * outside, new)


def _gpus(instance: Instance, segments: Segments, layouts: list[Layout], options: Options, allow: str, known: float
          ) -> list[_Gpus] | None:
    """The GPUs of the running plan by layout, and those that may be added; None if these are too many pools."""
    fresh = [(tiers, Layout(tiers[0], (), turns_of(instance, segments, tiers[0], ())))
             for tiers in first_entries(instance).values() if allow != "batches"]
    several = any(len(turn.new) > 1 for _, layout in fresh for turn in layout.turns) or any(
        len(layout.going) > 1 for layout in layouts)
    apart = several and any(one.max_share_per_gpu < 1 for one in instance.workloads)
    alike = defaultdict[tuple[int, Layout], list[int]](list)
    for g, layout in enumerate(layouts):
        if layout.entry >= 0:
            whole = tuple(turn for turn in layout.turns if len(turn.kept) == len(layout.going))
            free = allow == "slices" or not layout.going
            turns = (*layout.turns, GIVEN_BACK) if free else whole
            alike[g + 1 if apart else 0, layout._replace(turns=turns)].append(g)
    found = [_Gpus(pool, layout, running, len(running)) for (pool, layout), running in alike.items()]
    if not apart:
        return found + [_Gpus(0, layout, None, math.inf) for _, layout in fresh]
    for tiers, layout in fresh:
        entries = [instance.fleet[e] for e in tiers]
        most = sum(math.inf if one.count is None else one.count for one in entries)
        least = min(map(objective_of(instance).weight, entries))
        most = min(most, known * (1 + TOLERANCE) // least) if least else most
        if len(found) - len(alike) + most > MOST_NEW:
            return None
        found += [_Gpus(len(layouts) + 1 + len(found), layout, None, 1) for _ in range(int(most))]
    return found


class _Program:
    """The integer program.

    Parameters
    ----------
    instance, segments, gpus, options
        The problem, the GPUs, and what slices may hold.
    change_cost, batches
        The cost of a change, and whether only batches may change.
    """

    def __init__(self, instance: Instance, segments: Segments, gpus: list[_Gpus], options: Options, change_cost: float,
                 batches: bool) -> None:
        self.instance, self.segments, self.gpus, self.options = instance, segments, gpus, options
        self.change_cost, self.program = change_cost, Description()
        self.kept = defaultdict[tuple[int, Going], Terms](list)
        self.slots = defaultdict[tuple[int, int], Terms](list)
        self.used = defaultdict[int, Terms](list)
        self.objective: Terms = []
        self.turn = [self._turns(at, one) for at, one in enumerate(gpus)]
        self.held = [
            _Holding(self.program.whole(f"on_{at}_{q}", math.inf), pool, going.slice_type, going, pattern, started)
            for at, (pool, going) in enumerate(self.kept)
            for q, (pattern, started) in enumerate(options.on.get(going, ())) if not (batches and started)]
        self.held += [
            _Holding(self.program.whole(f"anew_{pool}_{k}_{q}", math.inf), pool, k, None, pattern, len(pattern))
            for pool, k in self.slots if not batches for q, pattern in enumerate(options.anew[k])]
        taken = {place: [(-number, at) for number, at in terms] for place, terms in self.slots.items()}
        going_on = {place: [(-number, at) for number, at in terms] for place, terms in self.kept.items()}
        for one in self.held:
            self.objective.append((change_cost * one.started, one.number))
            taken[one.pool, one.slice_type].append((1.0, one.number))
            if one.going:
                going_on[one.pool, one.going].append((1.0, one.number))
        for terms in (*taken.values(), *going_on.values()):
            self.program.at_most(terms, 0)
        self.carried = [parts_of(instance, one.pattern) for one in self.held]
        for w in range(len(instance.workloads)):
            self._serve(w)
        for tiers in first_entries(instance).values():
            counts = [instance.fleet[e].count for e in tiers]
            paid = [self.program.whole(f"paid_{e}", math.inf if count is None else count)
                    for e, count in zip(tiers, counts, strict=True)]
            self.program.at_most([*self.used[tiers[0]], *((-1.0, one) for one in paid)], 0)
            self.objective += [(objective_of(instance).weight(instance.fleet[e]), one)
                               for e, one in zip(tiers, paid, strict=True)]
        self.program.objective = self.objective

    def _turns(self, at: int, gpus: _Gpus) -> list[int]:
        """The variables of the turns of some GPUs, with what the turns keep, make, cost and destroy."""
        pool, layout, running, most = gpus
        numbers = [self.program.whole(f"turn_{at}_{t}", most) for t in range(len(layout.turns))]
        for number, turn in zip(numbers, layout.turns, strict=True):
            for going, many in Counter(layout.going[one] for one in turn.kept).items():
                if going.slice_type >= 0:
                    self.kept[pool, going].append((many, number))
                    self.slots[pool, going.slice_type].append((many, number))
            for k, many in Counter(k for _, k in turn.new).items():
                self.slots[pool, k].append((many, number))
            self.used[layout.entry] += [] if turn is GIVEN_BACK else [(1.0, number)]
            self.objective.append((self.change_cost * (len(layout.going) - len(turn.kept)), number))
        if most < math.inf:
            self.program.at_most([(1.0, one) for one in numbers], most)
        if running is not None:
            self.program.at_most([(-1.0, one) for one in numbers], -most)
        return numbers

    def _serve(self, w: int) -> None:
        """Add rows: a workload's rate is carried within its limits on replicas, and no GPU carries more than its
        largest share.
        """
        workload, share = self.instance.workloads[w], self.instance.workloads[w].max_share_per_gpu
        by_pool, number = defaultdict[int, list[tuple[_Holding, float]]](list), list[tuple[float, int]]()
        for one, (parts, many) in zip(self.held, self.carried, strict=True):
            if many[w]:
                by_pool[one.pool].append((one, min(float(parts[w]), share)))
                number.append((float(many[w]), one.number))
        carried: Terms = [(part, one.number) for several in by_pool.values() for one, part in several]
        if share < 1 and 0 not in by_pool:
            carried = [(1.0, self.program.amount(f"carried_{w}_{pool}", share)) for pool in by_pool]
            for (_, total), several in zip(carried, by_pool.values(), strict=True):
                self.program.at_most([(1.0, total), *((-part, one.number) for one, part in several)], 0)
        if self.instance.planned_rps(workload) > 0:
            self.program.at_most([(-part / EXACT, at) for part, at in carried], -1 / EXACT)
        self.program.at_most([(-many, at) for many, at in number], -workload.min_replicas)
        if workload.max_replicas is not None:
            self.program.at_most(number, workload.max_replicas)

    def solve(self, limit_s: float, gap: float) -> IntegerSolution:
        """Solve the program for at most ``limit_s`` seconds."""
        return solve_integer(self.program.as_rows(), np.array([one.whole for one in self.program.variables]), limit_s,
                             gap)

    def plan(self, values: list[int], before: Plan) -> Plan | None:
        """The plan of a solution; None if its replicas do not carry all rates exactly.

        The GPUs of the running plan come first, in their order. Patterns whose replicas are all started go to existing
        slices first, then to new slices on running GPUs, then to new GPUs. A new slice is made only if a replica starts
        there; kept slices stay also empty.
        """
        waiting = defaultdict[tuple[int, int, Going | None], list[SlicePattern]](list)
        for held in self.held:
            waiting[held.pool, held.slice_type, held.going] += [held.pattern] * values[held.number]
        found = list[tuple[int, _Gpus, Turn]]()
        for one, numbers in zip(self.gpus, self.turn, strict=True):
            turns = [turn for turn, number in zip(one.layout.turns, numbers, strict=True)
                     for _ in range(values[number])]
            indices = one.running or [len(before.gpus)] * len(turns)
            found += [(g, one, turn) for g, turn in zip(indices, turns, strict=True) if turn is not GIVEN_BACK]
        found.sort(key=lambda gpu: gpu[0])
        gpus: list[Held] = [[] for _ in found]
        for (g, one, turn), slices in zip(found, gpus, strict=True):
            for at in turn.kept:
                going, piece = one.layout.going[at], before.gpus[g].slices[at]
                place = one.pool, going.slice_type
                several = waiting[*place, going] or waiting[*place, None]
                slices.append((piece.profile, piece.start, several.pop(0) if several else ()))
        for (_, one, turn), slices in zip(found, gpus, strict=True):
            slices += [(self.segments.slice_types[k].profile, start, several.pop(0))
                       for start, k in turn.new if (several := waiting[one.pool, k, None])]
        return plan_of(self.instance, [one.layout.entry for _, one, _ in found], gpus, NAME)
