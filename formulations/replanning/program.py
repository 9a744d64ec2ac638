"""The integer program of replanning: running GPUs by layout, new GPUs by partition, patterns of their slices.

Integer variables: ``z[l, t]`` is the number of GPUs of layout l that take turn t (a new state, in which some slices
stay and there is room for new ones) or are given back. ``y[c]`` is the number of new GPUs with partition c. ``on[s,
q]`` is the number of slices that now run s and go on with pattern q. ``anew[k, q]`` is the number of slices of type k
with pattern q whose replicas are all started. ``n[e]`` is the number of GPUs that are paid at the price of fleet entry
e.

Rows: the turns of a layout add up to its GPUs; slices that go on are kept; there are slots for all patterns; the rates
are carried; and the fleet has enough GPUs. The program is written in PuLP and solved by SciPy's HiGHS.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pulp

from provision.formulations.assignment.patterns import SlicePattern
from provision.formulations.linear.dual_bound import highs, safe_bound
from provision.formulations.replanning.model import GIVEN_BACK, Model, RunningLayout
from provision.formulations.replanning.placed import Choice
from provision.formulations.replanning.running import Going, Turn
from provision.models.problem.objective import objective_of

LinearTerms = list[pulp.LpAffineExpression]


class Solved(NamedTuple):
    """The status of the program, its lower bound, and the best choice (None if there is none)."""

    status: str
    bound: float
    choice: Choice | None


class _Held(NamedTuple):
    """The slices that hold one pattern: the variable that counts them, their pool, slice type and pattern, and the
    number of replicas that each starts.
    """

    number: pulp.LpVariable
    pool: int
    slice_type: int
    pattern: SlicePattern
    started: int


class Program:
    """The integer program of a Model.

    Parameters
    ----------
    model
        The model of replanning.
    share
        The factor on all planned rates that the replicas must carry.
    bounds
        Whether the program is for a lower bound. If so, slices may also hold patterns that are not listed, within the
        bound on these.
    """

    def __init__(self, model: Model, share: float = 1.0, bounds: bool = False) -> None:
        self.model, self.instance, self.options = model, model.instance, model.options
        self.problem = pulp.LpProblem("replan", pulp.LpMinimize)
        self.z = {(number, at): self._count(f"z_{number}_{at}")
                  for number, layout in enumerate(model.layouts) for at in range(len(model.turns(layout)))}
        entries = model.partitions.entry
        self.y = {(at, c): self._count(f"y_{at}_{c}", 1 if model.apart else None)
                  for at, (_, entry) in enumerate(model.new) for c in np.flatnonzero(entries == entry).tolist()}
        self.n = [self._count(f"n_{at}", entry.count) for at, entry in enumerate(self.instance.fleet)]
        self.kept, self.slots = self._kept_and_slots()
        batches = model.weights.allow == "batches"
        self.on = {
            (pool, going, at): _Held(self._count(f"on_{number}_{at}"), pool, going.slice_type, pattern, started)
            for number, (pool, going) in enumerate(self.kept)
            for at, (pattern, started) in enumerate(self.options.on.get(going, ())) if not (batches and started)
        }
        self.anew = {
            (pool, slice_type, at): _Held(
                self._count(f"anew_{pool}_{slice_type}_{at}"), pool, slice_type, pattern, len(pattern.replicas)
            )
            for pool, slice_type in self.slots
            if not batches
            for at, pattern in enumerate(self.options.anew[slice_type])
        }
        self.cost: LinearTerms = []
        self.mine: dict[int, list[tuple[_Held, float, int]]] = defaultdict(list)
        self._describe()
        self._rows(share, bounds)
        self._minimise()

    def _count(self, name: str, most: int | None = None, whole: bool = True) -> pulp.LpVariable:
        return self.problem.add_variable(name, 0, most, cat="Integer" if whole else "Continuous")

    def _describe(self) -> None:
        """Record for every workload the patterns that have it, the fraction of its rate in each, and its replicas in
        each.
        """
        planned_rps = self.model.criteria.planned_rps
        for held in (*self.on.values(), *self.anew.values()):
            pattern, parts, number = held.pattern, defaultdict[int, float](float), Counter[int]()
            for one in pattern.replicas:
                planned = planned_rps[one.workload]
                parts[one.workload] += one.capacity_rps / planned if planned else 1.0
                number[one.workload] += 1
            for w, part in parts.items():
                most = 1.0 if pattern.routed else float(self.model.criteria.share[w])
                self.mine[w].append((held, min(part, most), number[w]))

    def _chosen(self) -> Iterator[tuple[pulp.LpVariable, RunningLayout, Turn]]:
        """Yield (variable, layout, turn) for every turn of every layout."""
        for number, layout in enumerate(self.model.layouts):
            for at, turn in enumerate(self.model.turns(layout)):
                yield self.z[number, at], layout, turn

    def _kept_and_slots(self) -> tuple[dict[tuple[int, Going], LinearTerms], dict[tuple[int, int], LinearTerms]]:
        """Linear terms for two counts: the running slices that are kept, and all slices of the new plan.

        The first are by pool and what runs on the slice (Going), the second by pool and slice type.
        """
        kept: dict[tuple[int, Going], LinearTerms] = defaultdict(list)
        slots: dict[tuple[int, int], LinearTerms] = defaultdict(list)
        for variable, (pool, _, going, _), turn in self._chosen():
            for one, number in Counter(going[at] for at in turn.kept if going[at].slice_type >= 0).items():
                kept[pool, one].append(number * variable)
                slots[pool, one.slice_type].append(number * variable)
            for slice_type, number in Counter(slice_type for _, slice_type in turn.new).items():
                slots[pool, slice_type].append(number * variable)
        for (at, c), variable in self.y.items():
            for slice_type, terms in self.model.partitions.slices({c: variable}).items():
                slots[self.model.new[at][0], slice_type] += terms
        return kept, slots

    def _rows(self, share: float, bounds: bool) -> None:
        add, model = self.problem.addConstraint, self.model
        for number, (layout, gpus) in enumerate(model.layouts.items()):
            add(pulp.lpSum(self.z[number, at] for at in range(len(model.turns(layout)))) == len(gpus))
        for at in range(len(model.new) if model.apart else 0):
            add(pulp.lpSum(variable for (one, _), variable in self.y.items() if one == at) <= 1)
        going_on: dict[tuple[int, Going], LinearTerms] = defaultdict(list)
        taken: dict[tuple[int, int], LinearTerms] = defaultdict(list)
        for (pool, going, _), held in self.on.items():
            going_on[pool, going].append(held.number)
            taken[pool, going.slice_type].append(held.number)
        for (pool, slice_type, _), held in self.anew.items():
            taken[pool, slice_type].append(held.number)
        offers, extra = self._unlisted(taken) if bounds else ({}, {})
        for place, variables in going_on.items():
            add(pulp.lpSum(variables) <= pulp.lpSum(self.kept[place]))
        for slot, variables in taken.items():
            add(pulp.lpSum(variables) <= pulp.lpSum(self.slots[slot]))
        for w in range(len(self.instance.workloads)):
            self._workload_rows(w, share, offers.get(w, []), extra.get(w, []))
        for first, indices in model.now.tiers.items():
            add(pulp.lpSum(self.n[index] for index in indices) == pulp.lpSum(self._gpus(first)))

    def _workload_rows(self, w: int, share: float, offers: LinearTerms, extra: LinearTerms) -> None:
        """Add rows: a workload's rate is carried within its limits on replicas, and no GPU carries more than its
        largest share.
        """
        workload, mine = self.instance.workloads[w], self.mine[w]
        if self.model.criteria.planned_rps[w] > 0:
            self.problem += pulp.lpSum([*self._carried(w), *offers]) >= share
        if self.model.compute is not None:
            slice_types = self.model.segments.slice_types
            self.problem += pulp.lpSum(slice_types[held.slice_type].compute * held.number for held, *_ in mine) >= \
                int(self.model.compute[w])
        number = pulp.lpSum([*(many * held.number for held, _, many in mine), *extra])
        self.problem += number >= workload.min_replicas
        if workload.max_replicas is not None:
            self.problem += number <= workload.max_replicas

    def _carried(self, w: int) -> LinearTerms:
        """Linear terms for the fractions of a workload's rate that patterns carry."""
        terms = [part * held.number for held, part, _ in self.mine[w]]
        limit = float(self.model.criteria.share[w])
        if limit == 1 or not self.model.apart:
            return terms
        by_pool: dict[int, list[tuple[_Held, float]]] = defaultdict(list)
        for held, part, _ in self.mine[w]:
            by_pool[held.pool].append((held, part))
        carried = []
        for pool, several in by_pool.items():
            carried.append(self._count(f"carried_{w}_{pool}", whole=False))
            self.problem += carried[-1] <= limit
            self.problem += carried[-1] <= pulp.lpSum(part * held.number for held, part in several)
            self.problem += pulp.lpSum(part * held.number for held, part in several if held.pattern.routed) <= limit
        return carried

    def _unlisted(self, taken: Mapping[tuple[int, int], LinearTerms]
                  ) -> tuple[dict[int, LinearTerms], dict[int, LinearTerms]]:
        """For every workload, terms for the part of its rate on slices with unlisted patterns, and for its replicas
        there.

        Workloads divide the time of such a slice (``network.relaxed``). At most as many replicas may go on there as run
        on slices that are kept; all others are started.
        """
        offers: dict[int, LinearTerms] = defaultdict(list)
        extra: dict[int, LinearTerms] = defaultdict(list)
        for slice_type, relaxed in enumerate(self.options.relaxed):
            pools = [pool for pool, of in self.slots if of == slice_type]
            if relaxed is None or not pools:
                continue
            slices = []
            for pool in pools:
                slices.append(self._count(f"open_{pool}_{slice_type}"))
                taken[pool, slice_type].append(slices[-1])
            time = []
            for w in np.flatnonzero(np.isfinite(relaxed.time)).tolist():
                offer = self._count(f"offer_{slice_type}_{w}", 1, whole=False)
                stay, start = self._count(f"stay_{slice_type}_{w}"), self._count(f"start_{slice_type}_{w}")
                runs = [sum(key.workload == w for key in going.keys) * pulp.lpSum(terms)
                        for (_, going), terms in self.kept.items() if going.slice_type == slice_type]
                self.problem += stay <= pulp.lpSum(runs)
                self.problem += stay + start <= relaxed.clients * pulp.lpSum(slices)
                self.problem += offer <= float(relaxed.most[w]) * (stay + start)
                self.cost.append(self.model.weights.replica_cost * start)
                time.append(float(relaxed.time[w]) * offer)
                offers[w].append(offer)
                extra[w] += [stay, start]
            self.problem += pulp.lpSum(time) <= pulp.lpSum(slices)
        return offers, extra

    def _gpus(self, entry: int) -> LinearTerms:
        """Linear terms that count the GPUs of a type, given by its first fleet entry."""
        new = [variable for (at, _), variable in self.y.items() if self.model.new[at][1] == entry]
        return new + [one for one, layout, turn in self._chosen() if layout[1] == entry and turn is not GIVEN_BACK]

    def _minimise(self) -> None:
        """Set the objective: the cost of the GPUs, of destroyed slices and of started replicas."""
        weights = self.model.weights
        terms = [
            objective_of(self.instance).weight(entry) * one
            for entry, one in zip(self.instance.fleet, self.n, strict=True)
        ]
        terms.append(weights.slice_cost * self.model.outside)
        terms += [weights.slice_cost * (len(layout[2]) - len(turn.kept)) * one for one, layout, turn in self._chosen()]
        terms += [weights.replica_cost * held.started * held.number
                  for held in (*self.on.values(), *self.anew.values())]
        self.problem += pulp.lpSum([*terms, *self.cost])

    def solve(self, limit_s: float, gap: float) -> Solved:
        """Solve the program for at most ``limit_s`` seconds."""
        found = highs(self.problem, limit_s, gap)
        if found.x is None:
            status = "infeasible" if found.status == 2 else "unknown"
            return Solved(status, 0.0, None)
        names = [variable.name for variable in self.problem.variables()]
        value = dict(zip(names, np.round(found.x).astype(int).tolist(), strict=True))
        status = "optimal" if found.status == 0 else "feasible"
        return Solved(status, safe_bound(found) + self.problem.objective.constant, self._choice(value))

    def _choice(self, value: Mapping[str, int]) -> Choice:
        anew: dict[tuple[int, int], list[SlicePattern]] = defaultdict(list)
        for (pool, slice_type, _), held in self.anew.items():
            anew[pool, slice_type] += [held.pattern] * value[held.number.name]
        opened = [(self.model.new[at][0], c) for (at, c), one in self.y.items() for _ in range(value[one.name])]
        turns = list(self._taken(value))
        return Choice(turns, self._going_on(value, turns), anew, opened)

    def _taken(self, value: Mapping[str, int]) -> Iterator[tuple[int, int, Turn]]:
        """Yield (pool, GPU, Turn) of every running GPU that is not given back."""
        for number, (layout, gpus) in enumerate(self.model.layouts.items()):
            waiting = iter(gpus)
            for at, turn in enumerate(self.model.turns(layout)):
                for _ in range(value[self.z[number, at].name]):
                    gpu = next(waiting)
                    if turn is not GIVEN_BACK:
                        yield layout[0], gpu, turn

    def _going_on(self, value: Mapping[str, int], turns: list[tuple[int, int, Turn]]
                  ) -> dict[tuple[int, int], SlicePattern]:
        """The pattern that each slice (GPU, position) holds, for slices of which some replicas go on."""
        left: dict[tuple[int, Going], list[SlicePattern]] = defaultdict(list)
        for (pool, going, _), held in self.on.items():
            left[pool, going] += [held.pattern] * value[held.number.name]
        places = [(gpu, at, left[pool, self.model.now.going[gpu][at]]) for pool, gpu, turn in turns for at in turn.kept]
        return {(gpu, at): patterns.pop() for gpu, at, patterns in places if patterns}
