"""The rows for workloads that share whole GPUs under MPS: one row per operating point.

By iGniter's model the rows are linear and exact, with the coefficients of `IgniterPoints`. By the co-location model
they are linear in norms of the neighbours' demands. A norm is a root of a sum, and so concave in this sum. Rows for
bounds replace it by chords, which lie below it; rows for plans replace it by tangents, which lie above it
(`colocated_rows`).
"""

import numpy as np

from provision.formulations.assignment.colocated_points import ColocatedPoints
from provision.formulations.assignment.colocated_rows import tolerate_demands
from provision.formulations.assignment.gpus import Level, LinearTerms, Program, Rows, Value, Variable
from provision.formulations.assignment.igniter_points import IgniterPoints
from provision.formulations.assignment.one_replica import PointCandidates, share_of
from provision.models.base.arrays import Ints
from provision.models.base.tolerances import FORGIVEN, RELAXED
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.igniter import IgniterHardware
from provision.models.performance.sm_shares import share_of_units
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import THROUGHPUT


class SharingRows(Rows):
    """The integer program that chooses a GPU and an operating point for every workload.

    Variables: ``x[w, g][o]`` says that workload w takes operating point o on GPU g, and ``on[w, g]`` that it takes some
    point there.
    """

    def __init__(self, candidates: PointCandidates, copies: Ints, program: Program, name: str, bound: float
                 ) -> None:
        super().__init__(candidates, copies, program, name)
        self.candidates = candidates
        self.units = [candidates.units[e] for e in copies]
        self.points = {(w, g): points for w in self.workloads for g, e in enumerate(copies)
                       if (points := candidates.points[w][e]) is not None}
        self.on = {at: program.whole("on_{}_{}".format(*at), 1) for at in self.points}
        self.x = {(w, g): [program.whole(f"x_{w}_{g}_{o}", 1) for o in range(len(points))]
                  for (w, g), points in self.points.items()}
        self.place_once()
        self.choose_point()
        self.fit_units()
        for g in self.gpus:
            self.tolerate_neighbours(g)
        self.order_gpus()
        if self.instance.objective == THROUGHPUT:
            self.maximise_throughput()
        else:
            self.minimise_weight(bound)
            self.cut_sets()

    def place_once(self) -> None:
        """Add rows: every workload is on exactly one GPU, and that GPU is used."""
        for w in self.workloads:
            self.program.exactly([(1, self.on[w, g]) for g in self.gpus if (w, g) in self.on], 1)
        for (_, g), on in self.on.items():
            self.program.at_most([(1, on), (-1, self.used[g])], 0)

    def choose_point(self) -> None:
        """Add rows: a workload takes one operating point on its GPU."""
        for at, on in self.on.items():
            self.program.exactly([*((1, x) for x in self.x[at]), (-1, on)], 0)

    def fit_units(self) -> None:
        """Add rows: the workloads on a GPU take no more than its units, its MPS clients and, where it is known, its
        memory.
        """
        for g in self.gpus:
            clients = self.entry[g].type.slice_mps_clients(WHOLE) if self.entry[g].mps else 1
            self.program.at_most([*self._sum(g, "units"), (-self.units[g], self.used[g])], 0)
            if any(self.points[w, g].memory_gib.any() for w in self._on(g)):
                self.program.at_most(self._sum(g, "memory_gib"), self.entry[g].type.memory_gib)
            self.program.at_most([(1, self.on[w, g]) for w in self._on(g)], clients)

    def tolerate_neighbours(self, g: int) -> None:
        """Add rows: every chosen point keeps its deadline beside its neighbours on the GPU."""
        mine = [(w, self.points[w, g]) for w in self._on(g)]
        igniter = {w: points for w, points in mine if isinstance(points, IgniterPoints)}
        if igniter:
            self._tolerate_igniter(g, igniter)
        tolerate_demands(self.program, f"{g}", {
            w: (points, self.x[w, g]) for w, points in mine if isinstance(points, ColocatedPoints)
        })

    def _tolerate_igniter(self, g: int, mine: dict[int, IgniterPoints]) -> None:
        """Add the rows of iGniter's model (eqs. 1-10); see `IgniterPoints`."""
        others, shared, cache, excess = self._environment(g, next(iter(mine.values())).hardware)
        for w, points in mine.items():
            for o, x in enumerate(self.x[w, g]):
                rates = zip(("per_neighbour", "per_cache", "per_excess"), (others, cache, excess), strict=True)
                terms = [(getattr(points, rate)[o] * unit, level) for rate, (unit, level) in rates]
                terms.append((points.per_sharing[o], shared))
                self.program.at_most(terms, points.room[o], when=x)

    def cut_sets(self) -> None:
        """Add rows: the workloads on a GPU weigh no more than the GPU costs (see `set_cuts`). Whole-number solutions
        satisfy these rows anyway, but fractional ones do not.
        """
        cuts = self.candidates.cuts
        if cuts is None:
            return
        for g in self.gpus:
            price = cuts.gpu[self.copies[g]]
            self.program.at_most([*((weight / price, self.on[w, g]) for w, weight in enumerate(cuts.weight)
                                    if (w, g) in self.on), (-1, self.used[g])], RELAXED)

    def maximise_throughput(self) -> None:
        """Set the objective: the requests/s that GPUs carry. A GPU carries at most what its replicas carry alone, and
        at most what `set_cuts` allows.
        """
        cuts = self.candidates.cuts
        alone = {g: [(rps, x) for w in self._on(g)
                     for rps, x in zip(self.points[w, g].rps.tolist(), self.x[w, g], strict=True)] for g in self.gpus}
        if cuts is None:
            self.program.minimise([(-rps, x) for terms in alone.values() for rps, x in terms])
            return
        total, carried = -cuts.bound, []
        for g in self.gpus:
            unit, level = self.program.fraction(f"carried_{g}")
            self.program.at_most([(unit, level), *((-rps / total, x) for rps, x in alone[g])], FORGIVEN)
            weights = [(-weight / total, self.on[w, g]) for w, weight in enumerate(cuts.weight) if (w, g) in self.on]
            used = (-cuts.gpu[self.copies[g]] / total, self.used[g])
            self.program.at_most([(unit, level), *weights, used], RELAXED)
            carried.append((-unit * total, level))
        self.program.minimise(carried)

    def _environment(self, g: int, hardware: IgniterHardware) -> tuple[Level, Variable, Level, Level]:
        """Variables of a GPU: neighbours of each replica, whether there are any, L2 utilisation, power above the cap.

        Levels have only lower rows. A level above the true amount only makes other rows harder to keep.
        """
        members, program = [(1, self.on[w, g]) for w in self._on(g)], self.program
        shared = program.whole(f"shared_{g}", 1)
        program.at_most([*members, (-len(self.workloads), shared)], 1)
        program.at_most([(2, shared), *((-1, on) for _, on in members)], 0)
        others = program.level(f"others_{g}", members, 1, len(self.workloads))
        cache = program.level(f"cache_{g}", self._sum(g, "cache"), 0, self._fullest(g, "cache"))
        left = 1 - hardware.idle_power_w / hardware.power_cap_w
        most = max(self._fullest(g, "power") - left, 0)
        excess = program.level(f"excess_{g}", self._sum(g, "power"), left, most)
        return others, shared, cache, excess

    def _fullest(self, g: int, what: str) -> float:
        """The highest sum of a column of points within the units of a GPU: a knapsack with one point per workload."""
        limit = self.units[g]
        best = np.zeros(limit + 1)
        for w in self._on(g):
            points, before = self.points[w, g], best.copy()
            for units, value in zip(points.units.astype(int), getattr(points, what), strict=True):
                best[units:] = np.maximum(best[units:], before[: limit + 1 - units] + value)
        return float(best.max())

    def order_gpus(self) -> None:
        """Add rows that break symmetry: GPUs of one entry are ordered by the workload with the lowest index on each."""
        for (w, g), on in self.on.items():
            if self.alike(g) is not None:
                lower = [(-1, self.on[v, g - 1]) for v in self._on(g - 1) if v < w]
                self.program.at_most([(1, on), *lower], 0)

    def _on(self, g: int) -> list[int]:
        return [w for w in self.workloads if (w, g) in self.points]

    def _sum(self, g: int, what: str) -> LinearTerms:
        """Linear terms: the sum of a column over the chosen points of a GPU."""
        return [pair for w in self._on(g) for pair in
                zip(getattr(self.points[w, g], what).tolist(), self.x[w, g], strict=True)]

    def hint(self, plan: Plan) -> None:
        """Suggest that every workload is on the same GPU as in a plan."""
        index = {one.name: w for w, one in enumerate(self.instance.workloads)}
        first: dict[tuple[int, int], Replica] = {}
        for g, gpu in self.numbered(plan, lambda gpu: min(index[one.workload] for one in gpu.slices[0].replicas)):
            first |= {(index[one.workload], g): one for one in gpu.slices[0].replicas}
        for at, on in self.on.items():
            self.program.hint(on, int(at in first))

    def plan(self, value: Value) -> Plan | None:
        """The plan of a solution, at planned rates; None if rounding makes it violate a limit."""
        gpus = [self._gpu(g, value) for g in self.gpus if any(value(self.on[w, g]) > 0.5 for w in self._on(g))]
        plan = self.instance.plan_of(self.name, gpus)
        return plan if self.candidates.holds(plan) else None

    def _gpu(self, g: int, value: Value) -> PlannedGpu:
        chosen = [(w, o) for w in self._on(g) for o, x in enumerate(self.x[w, g]) if value(x) > 0.5]
        pieces = Slice(profile=WHOLE, replicas=tuple(self._replica(w, g, o) for w, o in chosen))
        return PlannedGpu(gpu=self.entry[g].gpu, mig=False, slices=(pieces,))

    def _replica(self, w: int, g: int, o: int) -> Replica:
        one, points = self.instance.workloads[w], self.points[w, g]
        data = self.candidates.data[self.copies[g]]
        share = share_of_units(share_of(data), float(points.units[o])) if data else 1.0
        return Replica(workload=one.name, batch=int(points.batch[o]), sm_share=share,
                       rate_rps=self.instance.planned_rps(one), model=one.named(int(points.model[o])))
