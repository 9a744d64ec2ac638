"""Replanning: from a running plan to one for new demand, at the least sum of cost and disturbance.

The model is exact for isolated slices. It counts running GPUs of one layout together. Integer variables: ``z[l, t]``
GPUs of layout l that take turn t (some slices stay, there is room for new ones) or are given back; ``y[c]`` new GPUs
with partition c; ``stay[s]`` slices that go on with their replica at its best batch size; ``x[w, k]`` replicas of
workload w started on slices of kind k; ``n[e]`` GPUs paid at the price of fleet entry e. Rows: the turns of a layout
add up to its GPUs, slices that go on are kept, replicas find slots, rates are carried, the fleet suffices. The model is
written in PuLP and solved by SciPy's HiGHS.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pulp

from provision.formulations.isolated.cover_bound import cover_bound
from provision.formulations.linear.dual_bound import highs, safe_bound
from provision.models.base.tolerances import RELAXED, TOLERANCE
from provision.models.contents.alone.feasibility import unservable
from provision.models.contents.alone.partitions import partitions_of
from provision.models.contents.alone.rearrange import Choice, rearranged
from provision.models.contents.alone.running import Going, RunningPlan, Turn, running
from provision.models.contents.alone.segments import Segments, best_segments
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

ALLOWED = ("batches", "replicas", "slices")
"""What may change: only batch sizes and rates; also replicas, new slices and new GPUs; or everything."""
BEYOND = {"interference", "other_sharing", "gpulets", "share_slices", "max_share_per_gpu", "max_throughput", "survive",
          "even_replicas"}
"""What an instance may need that this model does not know."""
GIVEN_BACK = Turn((), ())


RunningLayout = tuple[int, tuple[Going, ...], tuple[Turn, ...]]
"""Running GPUs alike in fleet entry, what their slices do, and the turns that they can take."""
LinearTerms = list[pulp.LpAffineExpression]


class Replanned(NamedTuple):
    """The status, the bound on the sum of cost and disturbance, and the new plan; None where there is none."""

    status: str
    bound: float
    plan: Plan | None


class _Solved(NamedTuple):
    """The status of the model, its bound, and its choice, None where there is none."""

    status: str
    bound: float
    choice: Choice | None


def replan_counts(instance: Instance, plan: Plan, slice_cost: float, replica_cost: float, allow: str = "slices",
                  limit_s: float = 60.0, gap: float = 1e-6) -> Replanned:
    """Replan exactly.

    Parameters
    ----------
    instance
        The new problem.
    plan
        The Plan that runs.
    slice_cost, replica_cost
        What a destroyed slice and a started replica cost, in units of the objective.
    allow
        One of ALLOWED.
    limit_s
        Seconds.
    gap
        Relative gap at which to stop.

    Returns
    -------
    Replanned

    Raises
    ------
    InputError
        When the running plan is none for slices that stand alone.
    """
    segments = best_segments(instance)
    if problems := unservable(instance, segments):
        return Replanned("infeasible: " + "; ".join(problems), 0.0, None)
    now, started = running(instance, segments, plan), perf_counter()
    if allow != "slices" and (lost := _outside(now)):
        why = f"infeasible: {lost} slices stand on GPUs that the fleet has not, and {allow} destroys none"
        return Replanned(why, 0.0, None)
    model = _Model(instance, segments, now, allow, slice_cost, replica_cost)
    found = model.solve(limit_s, gap)
    if found.choice is not None and not model.carries(found.choice):
        left_s = limit_s - (perf_counter() - started)
        more = _Model(instance, segments, now, allow, slice_cost, replica_cost, 1 + RELAXED).solve(left_s, gap)
        found = more._replace(status="unknown" if more.choice is None else "feasible", bound=found.bound)
    if found.choice is None:
        return Replanned(found.status, found.bound, None)
    new = rearranged(instance, segments, model.partitions, now, found.choice)
    return Replanned(found.status, found.bound, new)


def _outside(now: RunningPlan) -> int:
    """The number of slices on GPUs that are not in the fleet."""
    return sum(len(gpu.slices) for gpu, entry in zip(now.plan.gpus, now.entry, strict=True) if entry < 0)


class _Model:
    """The model of one instance and one running plan; replicas carry ``share`` of the planned rates."""

    def __init__(
        self,
        instance: Instance,
        segments: Segments,
        now: RunningPlan,
        allow: str,
        slice_cost: float,
        replica_cost: float,
        share: float = 1,
    ) -> None:
        self.instance, self.segments, self.running, self.allow = instance, segments, now, allow
        self.partitions = partitions_of(instance, segments)
        self.problem = pulp.LpProblem("replan", pulp.LpMinimize)
        self.layouts: dict[RunningLayout, list[int]] = defaultdict(list)
        for gpu, entry in enumerate(now.entry):
            if entry >= 0:
                self.layouts[entry, now.going[gpu], now.turns[gpu]].append(gpu)
        self.z = {
            (number, at): self._count(f"z_{number}_{at}")
            for number, layout in enumerate(self.layouts) for at in range(len(self._turns(layout)))
        }
        self.stay = {going: self._count(f"stay_{at}") for at, going in enumerate(now.capacity)}
        free = set(now.tiers) if allow != "batches" else set()
        self.y = {c: self._count(f"y_{c}") for c, entry in enumerate(self.partitions.entry) if entry in free}
        useful = np.nonzero(segments.throughput_rps * [kind.entry in free for kind in segments.kinds])
        self.x = {(w, k): self._count(f"x_{w}_{k}") for w, k in zip(*useful, strict=True)}
        self.n = [self._count(f"n_{at}", entry.count) for at, entry in enumerate(instance.fleet)]
        self._rows(share)
        self._minimise(slice_cost, replica_cost)

    def _count(self, name: str, most: int | None = None) -> pulp.LpVariable:
        return self.problem.add_variable(name, 0, most, cat="Integer")

    def _turns(self, layout: RunningLayout) -> list[Turn]:
        """Turns that a layout may take; where its GPUs may be given back, that is the last one."""
        _, going, turns = layout
        whole = [turn for turn in turns if len(turn.kept) == len(going)]
        if self.allow == "slices" or not going:
            return [*turns, GIVEN_BACK]
        return whole

    def _chosen(self) -> Iterator[tuple[pulp.LpVariable, RunningLayout, Turn]]:
        """Every (variable, layout, turn)."""
        for number, layout in enumerate(self.layouts):
            for at, turn in enumerate(self._turns(layout)):
                yield self.z[number, at], layout, turn

    def _rows(self, share: float) -> None:
        add, layouts = self.problem.addConstraint, list(self.layouts)
        for number, layout in enumerate(layouts):
            mine = [self.z[number, at] for at in range(len(self._turns(layout)))]
            add(pulp.lpSum(mine) == len(self.layouts[layout]))
        kept, slots = self._kept_and_slots()
        for going, variable in self.stay.items():
            add(variable <= pulp.lpSum(kept[going]))
        for kind in range(len(self.segments.kinds)):
            taken = [variable for (_, k), variable in self.x.items() if k == kind]
            taken += [variable for going, variable in self.stay.items() if going.kind == kind]
            add(pulp.lpSum(taken) <= pulp.lpSum(slots[kind]))
        self._workload_rows(share)
        for first, indices in self.running.tiers.items():
            add(pulp.lpSum(self.n[index] for index in indices) == pulp.lpSum(self._gpus(first)))

    def _kept_and_slots(self) -> tuple[dict[Going, LinearTerms], dict[int, LinearTerms]]:
        """Linear terms that count the slices that could go on, by their Going, and all slots, by kind."""
        kept: dict[Going, LinearTerms] = defaultdict(list)
        slots: dict[int, LinearTerms] = defaultdict(list)
        for variable, (_, going, _), turn in self._chosen():
            for one, number in Counter(going[at] for at in turn.kept).items():
                kept[one].append(number * variable)
                slots[one.kind].append(number * variable)
            for kind, number in Counter(kind for _, kind in turn.new).items():
                slots[kind].append(number * variable)
        for c, variable in self.y.items():
            for kind in np.flatnonzero(self.partitions.slots[c]).tolist():
                slots[kind].append(int(self.partitions.slots[c, kind]) * variable)
        return kept, slots

    def _workload_rows(self, share: float) -> None:
        """Every workload's rate is carried by enough replicas, with the compute slices of its cheapest cover."""
        throughput = self.segments.throughput_rps
        _, cover = cover_bound(self.instance, throughput, self.segments, self.partitions)
        capacity = self.running.capacity
        for w, workload in enumerate(self.instance.workloads):
            mine = [(variable, throughput[at], at[1]) for at, variable in self.x.items() if at[0] == w]
            mine += [(one, capacity[how][0], how.kind) for how, one in self.stay.items() if how.workload == w]
            planned = self.instance.planned_rps(workload)
            if planned > 0:
                self.problem += pulp.lpSum(min(rps / planned, 1) * variable for variable, rps, _ in mine) >= share
            held = [self.segments.kinds[kind].compute * variable for variable, _, kind in mine]
            self.problem += pulp.lpSum(held) >= int(cover.cost[w])
            self.problem += pulp.lpSum(variable for variable, _, _ in mine) >= workload.min_replicas
            if workload.max_replicas is not None:
                self.problem += pulp.lpSum(variable for variable, _, _ in mine) <= workload.max_replicas

    def _gpus(self, entry: int) -> LinearTerms:
        """Linear terms that count the GPUs of a type, given by its first fleet entry."""
        new = [variable for c, variable in self.y.items() if self.partitions.entry[c] == entry]
        return new + [one for one, layout, turn in self._chosen() if layout[0] == entry and turn is not GIVEN_BACK]

    def _minimise(self, slice_cost: float, replica_cost: float) -> None:
        """Objective: cost of the GPUs, of destroyed slices and of started replicas."""
        terms = [self.instance.weight(entry) * one for entry, one in zip(self.instance.fleet, self.n, strict=True)]
        terms.append(slice_cost * _outside(self.running))
        terms += [slice_cost * (len(going) - len(turn.kept)) * one for one, (_, going, _), turn in self._chosen()]
        terms += [replica_cost * variable for variable in self.x.values()]
        self.problem += pulp.lpSum(terms)

    def solve(self, limit_s: float, gap: float) -> _Solved:
        """The best choices within the time."""
        found = highs(self.problem, limit_s, gap)
        if found.x is None:
            status = "infeasible" if found.status == 2 else "unknown"
            return _Solved(status, 0.0, None)
        names = [variable.name for variable in self.problem.variables()]
        value = dict(zip(names, np.round(found.x).astype(int).tolist(), strict=True))
        started = np.zeros(self.segments.throughput_rps.shape, int)
        for at, variable in self.x.items():
            started[at] = value[variable.name]
        opened = np.zeros(len(self.partitions.entry), int)
        for c, variable in self.y.items():
            opened[c] = value[variable.name]
        turns = self._taken(value)
        stays = self._staying(value, turns)
        status = "optimal" if found.status == 0 else "feasible"
        bound = safe_bound(found) + self.problem.objective.constant
        return _Solved(status, bound, Choice(turns, stays, started, opened))

    def carries(self, choice: Choice) -> bool:
        """Whether the replicas of a choice carry every rate, up to the verifier's rounding."""
        held = (choice.started * self.segments.throughput_rps).sum(axis=1)
        for gpu, position in choice.stays:
            going = self.running.going[gpu][position]
            held[going.workload] += self.running.capacity[going][0]
        asked = [self.instance.planned_rps(one) * (1 - TOLERANCE) for one in self.instance.workloads]
        return bool(np.all(held >= asked))

    def _taken(self, value: Mapping[str, int]) -> list[tuple[int, Turn]]:
        """(GPU, Turn) of every running GPU that is not given back."""
        taken = []
        for number, (layout, gpus) in enumerate(self.layouts.items()):
            waiting = list(gpus)
            for at, turn in enumerate(self._turns(layout)):
                for _ in range(value[self.z[number, at].name]):
                    gpu = waiting.pop(0)
                    if turn is not GIVEN_BACK:
                        taken.append((gpu, turn))
        return taken

    def _staying(self, value: Mapping[str, int], turns: Sequence[tuple[int, Turn]]) -> set[tuple[int, int]]:
        """(GPU, position) of the slices that go on."""
        left = {going: value[variable.name] for going, variable in self.stay.items()}
        stays = set()
        for gpu, turn in turns:
            for position in turn.kept:
                going = self.running.going[gpu][position]
                if left.get(going, 0) > 0:
                    left[going] -= 1
                    stays.add((gpu, position))
        return stays
