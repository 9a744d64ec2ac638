"""The rows for workloads that share whole GPUs under MPS: one row per operating point, linear and exact.

The coefficients are those of ``points.Points``.
"""

import numpy as np

from provision.formulations.assignment.gpus import Level, LinearTerms, Program, Rows, Value, Variable
from provision.formulations.assignment.points import PointCandidates
from provision.models.base.arrays import Ints
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


class SharingRows(Rows):
    """The model with operating points.

    Variables: ``x[w, g][o]`` says that workload w takes operating point o on GPU g, and ``on[w, g]`` that it takes some
    point there.
    """

    def __init__(self, candidates: PointCandidates, copies: Ints, program: Program, name: str) -> None:
        super().__init__(candidates, copies, program, name)
        self.candidates = candidates
        self.hardware = [candidates.data[entry.gpu].hardware for entry in self.entry]
        self.points = {(w, g): candidates.points[w][e] for w in self.workloads for g, e in enumerate(copies)
                       if len(candidates.points[w][e])}
        self.on = {at: program.whole("on_{}_{}".format(*at), 1) for at in self.points}
        self.x = {(w, g): [program.whole(f"x_{w}_{g}_{o}", 1) for o in range(len(points))]
                  for (w, g), points in self.points.items()}
        self.place_once()
        self.choose_point()
        self.fit_units()
        self.tolerate_neighbours()
        self.order_gpus()
        self.minimise_weight(candidates.bound)

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
        """Add rows: the workloads on a GPU fit its units and its MPS clients."""
        for g in self.gpus:
            clients = self.entry[g].type.slice_mps_clients(WHOLE) if self.entry[g].mps else 1
            limit = self.hardware[g].units
            self.program.at_most([*self._sum(g, "units"), (-limit, self.used[g])], 0)
            self.program.at_most([(1, self.on[w, g]) for w in self._on(g)], clients)

    def tolerate_neighbours(self) -> None:
        """Add rows: a chosen point keeps its deadline beside its neighbours (iGniter, eqs. 1-10); see `Points`."""
        for g in self.gpus:
            others, shared, cache, excess = self._environment(g)
            for w in self._on(g):
                for o, x in enumerate(self.x[w, g]):
                    rates = zip(("per_neighbour", "per_cache", "per_excess"), (others, cache, excess), strict=True)
                    terms = [(getattr(self.points[w, g], rate)[o] * unit, level) for rate, (unit, level) in rates]
                    terms.append((self.points[w, g].per_sharing[o], shared))
                    self.program.at_most(terms, self.points[w, g].room[o], when=x)

    def _environment(self, g: int) -> tuple[Level, Variable, Level, Level]:
        """Variables of a GPU: the neighbours of each replica, whether there are any, the L2 utilisation, and the power
        above the cap.

        Levels have only lower rows. A level above the true amount only makes other rows harder to keep.
        """
        members, program = [(1, self.on[w, g]) for w in self._on(g)], self.program
        shared = program.whole(f"shared_{g}", 1)
        program.at_most([*members, (-len(self.workloads), shared)], 1)
        program.at_most([(2, shared), *((-1, on) for _, on in members)], 0)
        others = program.level(f"others_{g}", members, 1, len(self.workloads))
        cache = program.level(f"cache_{g}", self._sum(g, "cache"), 0, self._fullest(g, "cache"))
        left = 1 - self.hardware[g].idle_power_w / self.hardware[g].power_cap_w
        most = max(self._fullest(g, "power") - left, 0)
        excess = program.level(f"excess_{g}", self._sum(g, "power"), left, most)
        return others, shared, cache, excess

    def _fullest(self, g: int, what: str) -> float:
        """The highest sum of a column of points within the units of a GPU: a knapsack with one point per workload."""
        limit = self.hardware[g].units
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
        share = round(float(points.units[o]) * self.hardware[g].unit_share, 9)
        return Replica(workload=one.name, batch=int(points.batch[o]), sm_share=min(share, 1.0),
                       rate_rps=self.instance.planned_rps(one), model=one.named(int(points.model[o])))
