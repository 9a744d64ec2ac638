"""Replanning: new demand and the plan that runs, for the least sum of cost and disturbance; exact for isolated slices.

GPUs of one layout are counted together. Integer variables: ``z[l, t]`` GPUs of layout l that take turn t (stay in part,
with room for new slices) or are given back, ``y[c]`` new GPUs with partition c, ``stay[s]`` slices that go on with
their replica at its best batch size, ``x[w, k]`` replicas of workload w started on slices of kind k. Rows: turns of a
layout add up to its GPUs, slices that stay are kept, replicas find slots, rates are carried, the fleet suffices.
The model is PuLP's, solved by HiGHS through SciPy.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import pulp

from provision.formulations.cover_bound import cover_bound
from provision.formulations.dual_bound import highs, safe_bound
from provision.models.errors import UnsupportedError
from provision.models.feasibility import unservable
from provision.models.method import needs
from provision.models.partitions import partitions_of
from provision.models.running import Turn, running
from provision.models.segments import best_segments

ALLOWED = ("batches", "replicas", "slices")
"""What may change: batch sizes and rate shares; replicas, new slices and GPUs too; everything."""
CANNOT = {"interference", "share_slices", "max_share_per_gpu"}
GIVEN_BACK = Turn((), ())


class Replanned(NamedTuple):
    """What the model found: the status, the bound on the weighted objective, and the choices, None without any.

    ``turns`` are pairs (GPU of the running plan, its Turn) for those that stay, ``stays`` the slices (GPU, position)
    that go on, ``started`` (workloads, kinds) replicas started, ``opened`` (partitions,) new GPUs.
    """

    status: str
    bound: float
    turns: list
    stays: set
    started: np.ndarray
    opened: np.ndarray


def replan_counts(instance, plan, slice_cost, replica_cost, allow="slices", limit_s=60.0, gap=1e-6):
    """Solve the model.

    Parameters
    ----------
    instance
        The new problem.
    plan
        The Plan that runs.
    slice_cost, replica_cost
        What a destroyed slice and a started replica count, in units of the objective.
    allow
        One of ALLOWED.
    limit_s
        Seconds.
    gap
        Relative gap at which to stop.

    Returns
    -------
    (Replanned, Segments, Partitions, Running)

    Raises
    ------
    UnsupportedError
        When workloads share slices or limit their share per GPU.
    """
    if asked := needs(instance) & CANNOT:
        raise UnsupportedError(f"replan cannot plan {' and '.join(sorted(asked))}; it is for isolated slices")
    segments = best_segments(instance)
    if problems := unservable(instance, segments):
        return Replanned("infeasible: " + "; ".join(problems), 0.0, [], set(), None, None), segments, None, None
    model = _Model(instance, segments, running(instance, segments, plan), allow)
    model.minimise(slice_cost, replica_cost)
    return model.solve(limit_s, gap), segments, model.partitions, model.running


class _Model:
    """The model of one instance and one running plan."""

    def __init__(self, instance, segments, now, allow):
        self.instance, self.segments, self.running, self.allow = instance, segments, now, allow
        self.partitions = partitions_of(instance, segments)
        self.problem = pulp.LpProblem("replan", pulp.LpMinimize)
        self.layouts = defaultdict(list)
        for gpu, entry in enumerate(now.entry):
            if entry >= 0:
                self.layouts[entry, now.going[gpu], now.turns[gpu]].append(gpu)
        self.z = {
            (number, at): self._count(f"z_{number}_{at}")
            for number, layout in enumerate(self.layouts) for at in range(len(self._turns(layout)))
        }
        self.stay = {going: self._count(f"stay_{at}") for at, going in enumerate(now.capacity)}
        free = allow != "batches"
        self.y = [self._count(f"y_{c}") for c in range(len(self.partitions.entry) * free)]
        useful = np.nonzero(segments.throughput_rps * free)
        self.x = {(w, k): self._count(f"x_{w}_{k}") for w, k in zip(*useful, strict=True)}
        self._rows()

    def _count(self, name):
        return self.problem.add_variable(name, 0, None, cat="Integer")

    def _turns(self, layout):
        """Turns that a layout may take, the last one being given back to the fleet."""
        _, going, turns = layout
        whole = [turn for turn in turns if len(turn.kept) == len(going)]
        if self.allow == "slices" or not going:
            return [*turns, GIVEN_BACK]
        return whole

    def _chosen(self):
        """Every (variable, layout, turn)."""
        for number, layout in enumerate(self.layouts):
            for at, turn in enumerate(self._turns(layout)):
                yield self.z[number, at], layout, turn

    def _rows(self):
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
        self._workload_rows()
        for index, entry in enumerate(self.instance.fleet):
            if entry.count is not None:
                add(pulp.lpSum(self._gpus(index)) <= entry.count)

    def _kept_and_slots(self):
        """Terms of the slices that could go on, by how they go, and of all slots, by kind."""
        kept, slots = defaultdict(list), defaultdict(list)
        for variable, (_, going, _), turn in self._chosen():
            for one, number in Counter(going[at] for at in turn.kept).items():
                kept[one].append(number * variable)
                slots[one.kind].append(number * variable)
            for kind, number in Counter(kind for _, kind in turn.new).items():
                slots[kind].append(number * variable)
        for c, variable in enumerate(self.y):
            for kind in np.flatnonzero(self.partitions.slots[c]):
                slots[kind].append(int(self.partitions.slots[c, kind]) * variable)
        return kept, slots

    def _workload_rows(self):
        """Every workload's rate is carried by enough replicas, with the compute slices of its cheapest cover."""
        throughput = self.segments.throughput_rps
        _, cover = cover_bound(self.instance, throughput, self.segments, self.partitions)
        capacity = self.running.capacity
        for w, workload in enumerate(self.instance.workloads):
            mine = [(variable, throughput[at], at[1]) for at, variable in self.x.items() if at[0] == w]
            mine += [(one, capacity[how][0], how.kind) for how, one in self.stay.items() if how.workload == w]
            planned = self.instance.planned_rps(workload)
            if planned > 0:
                self.problem += pulp.lpSum(min(rps / planned, 1) * variable for variable, rps, _ in mine) >= 1
            held = [self.segments.kinds[kind].compute * variable for variable, _, kind in mine]
            self.problem += pulp.lpSum(held) >= int(cover.cost[w])
            self.problem += pulp.lpSum(variable for variable, _, _ in mine) >= workload.min_replicas
            if workload.max_replicas is not None:
                self.problem += pulp.lpSum(variable for variable, _, _ in mine) <= workload.max_replicas

    def _gpus(self, entry):
        """Terms that count the GPUs of a fleet entry."""
        new = [variable for c, variable in enumerate(self.y) if self.partitions.entry[c] == entry]
        return new + [one for one, layout, turn in self._chosen() if layout[0] == entry and turn is not GIVEN_BACK]

    def minimise(self, slice_cost, replica_cost):
        """Objective: cost of the GPUs, of destroyed slices and of started replicas."""
        terms = [
            self.instance.weight(entry) * variable
            for index, entry in enumerate(self.instance.fleet) for variable in self._gpus(index)
        ]
        terms += [slice_cost * (len(going) - len(turn.kept)) * one for one, (_, going, _), turn in self._chosen()]
        terms += [replica_cost * variable for variable in self.x.values()]
        self.problem += pulp.lpSum(terms)

    def solve(self, limit_s, gap):
        """The best choices within the time."""
        found = highs(self.problem, limit_s, gap)
        if found.x is None:
            status = "infeasible" if found.status == 2 else "unknown"
            return Replanned(status, 0.0, [], set(), None, None)
        names = [variable.name for variable in self.problem.variables()]
        value = dict(zip(names, np.round(found.x).astype(int).tolist(), strict=True))
        started = np.zeros(self.segments.throughput_rps.shape, int)
        for at, variable in self.x.items():
            started[at] = value[variable.name]
        opened = np.array([value[variable.name] for variable in self.y], int)
        turns = self._taken(value)
        stays = self._staying(value, turns)
        status = "optimal" if found.status == 0 else "feasible"
        return Replanned(status, safe_bound(found), turns, stays, started, opened)

    def _taken(self, value):
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

    def _staying(self, value, turns):
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
