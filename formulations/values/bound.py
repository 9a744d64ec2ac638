"""A bound that counts whole replicas, for any number of workloads that share whole GPUs under interference.

Take any function that gives every replica a value, by its class and by the requests/s that it carries, and that does
not fall with the latter. The replicas of a workload carry its rate together, so they are worth at least as much as the
cheapest set of replicas that does (`nodes`). No GPU's replicas are worth more than the best patterns of its slices,
which exact pricing bounds (`pricing`). So the numbers of GPUs, each times this value, are no less than the least values
of all workloads (`type_counts`). A workload counts with the longest SLO of its class, and without limits on its
replicas, except a limit of one. The function comes from a linear program (`program`). Once the bound is near the
program's value, the function comes from prices between the program's and those that proved the best bound.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.pricing.mps.offers import PlaceValues, forgiving, padded
from provision.formulations.pricing.mps.rate_points import small_patterns, together_rps
from provision.formulations.search.problem import Problem
from provision.formulations.search.type_counts import TypeCounts
from provision.formulations.values.nodes import ValueNodes, WorkloadClass, classes_of, least_value, node_rates
from provision.formulations.values.program import Patterns, Prices, ValueProgram, cells_of, worth_of
from provision.formulations.values.schedule import SCHEDULE
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline, Stopwatch
from provision.models.base.tolerances import DUST, FORGIVEN, MISSING
from provision.models.performance.colocation import Colocation
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.search import Progress


class ValueBound:
    """The bound over some classes. ``proof`` holds the proven bound.

    Parameters
    ----------
    instance
        The problem.
    classes
        Classes of all its workloads that need a replica.

    Attributes
    ----------
    next_s, priced_s
        The seconds that the last round took, and its pricing.
    found, closed
        Whether the last round found patterns, and whether no further round raises the bound.
    values, center, worth, best
        The values of replicas that proved the best bound (None before the first round), the prices from which they
        came, (pools,) what no GPU is worth more than at these values, and the bound in multiples of the dearest GPU's
        price.
    patterns
        The patterns found so far.
    """

    def __init__(self, instance: Instance, classes: Sequence[WorkloadClass]) -> None:
        self.classes, self.finer = list(classes), 0
        self.problem = problem = Problem(instance, [one.group(longest=True) for one in classes], relaxed_problem=True)
        self.proof, self.found, self.closed = TypeCounts(problem.pools, problem.most_gpus), True, False
        self.values: PlaceValues | None = None
        self.center: Prices | None = None
        self.worth: list[float] = []
        self.best = self.next_s = self.priced_s = 0.0
        first = [instance.workloads[int(one.members[0])] for one in classes]
        self.single = np.array([one.max_replicas == 1 for one in first])
        number: dict[object, int] = {}
        self.kind = np.array([number.setdefault(
            (one.models, instance.policy.traffic_of(one), one.max_replicas == 1), len(number)) for one in first])
        self.slos_ms = np.array([one.slo_ms[1] for one in classes])
        self.patterns = Patterns(problem)
        self.most_rps = self._begin()
        self.program = self._program(None)

    def _begin(self) -> Floats:
        """Add a pattern of one replica with all units for each class and model. Return (kinds,) the most requests/s of
        a replica that count.
        """
        best_rps = np.minimum(self.problem.single_rps.max(axis=1), [one.rates_rps[0] for one in self.classes])
        for file, points in enumerate(self.patterns.points):
            alone = small_patterns(points, 1, 1)
            np.maximum.at(best_rps, points.at.group[alone[:, 0]], together_rps(points, alone)[:, 0])
            self.patterns.add(file, alone)
        return np.array([best_rps[self.kind == one].max() * bool((best_rps[self.kind == one] > 0).all())
                         for one in range(self.kind.max() + 1)])

    def _program(self, before: ValueProgram | None) -> ValueProgram:
        """The program with the present number of rates. If there was one ``before``, its patterns and the prices of the
        best bound are carried over.
        """
        fine, numbers = SCHEDULE.fineness[self.finer], range(self.kind.max() + 1)
        steps = np.array([fine.steps and bool(self.single[self.kind == one].all()) for one in numbers])
        rates = [np.concatenate([self.classes[at].rates_rps for at in np.flatnonzero(self.kind == one).tolist()])
                 for one in numbers]
        nodes = ValueNodes(self.kind, self.slos_ms, padded([
            node_rates(rates_rps, max(float(rps), 1.0) * (1 + 2 * FORGIVEN), bool(step), fine.rates, SCHEDULE.lowest)
            for rates_rps, rps, step in zip(rates, self.most_rps, steps, strict=True)]), steps, SCHEDULE.slos)
        values = nodes.levels[nodes.of_node].ravel()
        if before is not None and self.center is not None:
            values = nodes.taken_over(before.nodes, self.center.nodes)
            self.center = self.center._replace(nodes=values)
        near = (2 * (nodes.lower + nodes.above)).astype(int)  # half of the interval between two SLOs of nodes
        cells = cells_of(self.classes, self.kind, near, fine.cells, steps)
        program = ValueProgram(self.patterns, np.zeros(0, int) if before is None else before.entered, nodes, cells,
                               values)
        served, slice_type = np.nonzero(self.problem.single_rps)
        program.add_patterns(slice_type, served[:, None], self.problem.single_rps[served, slice_type][:, None])
        return program

    def rounds(self, until: Deadline) -> Iterator[float]:
        """Yield the proven bound, in units of price, after every round of pricing.

        At first the values have few levels, and more of them once the bound is close to the linear program's value. The
        bound is ``closed`` when pricing adds no pattern at the finest levels, or when it is very close. The rounds also
        end when the next one would take too long, given the time of the last one. The very first round always runs.
        Further calls go on.
        """
        more = bool((self.most_rps > 0).all()) and not self.closed
        while more and (self.values is None or self.next_s < until.left_s):
            watch = Stopwatch()
            duals = self.program.priced(until, SCHEDULE.first, SCHEDULE.best, SCHEDULE.over)
            self.closed = duals is None
            if duals is None or (self.values is not None and self.priced_s > until.left_s):
                return
            rough = self.found
            if rough and self.best > self.program.value * (1 - SCHEDULE.far):
                duals = duals.between(self.center)
            solved_s = watch.elapsed_s
            self.found, self.next_s = self._prove(duals, self.program.nodes.of_classes(duals.nodes)), watch.elapsed_s
            self.priced_s = self.next_s - solved_s
            yield self.proof.bound
            more = self.found or rough  # the program's own prices, priced closely, may still find patterns
            if not self.found or self.best > self.program.value * (1 - SCHEDULE.fineness[self.finer].within):
                most = self.program.value * self.problem.dearest * (1 - SCHEDULE.exact.close)
                more = self._refined() or (more and self.proof.bound < most)
        self.closed = self.closed or not more

    @property
    def ended(self) -> bool:
        """Whether no further round is useful, for example because it is proven that there is no plan."""
        return math.isinf(self.proof.bound) or self.closed

    def prove(self, progress: Progress, seconds: float) -> bool:
        """Tighten the bound for some seconds, for at least a round if there is time for one. Record it whenever it
        rises, unless it proves that no plan exists. Return whether further rounds are useful and there is time for one.
        """
        search, seconds = progress.search, max(seconds, self.next_s * SCHEDULE.patience)
        for units in self.rounds(search.within(seconds)) if search.left_s > 0 else ():
            progress.prove(self.problem.objective(units) if 0 < units < math.inf else None)
            if self.ended or progress.enough:
                break
        return not self.ended and self.next_s < search.left_s

    def _refined(self) -> bool:
        """Go on with a finer program; return whether there is one."""
        if self.finer + 1 == len(SCHEDULE.fineness) or self.program.nodes.steps.all():
            return False
        self.finer += 1
        self.program = self._program(self.program)
        return True

    def _prove(self, duals: Prices, values: PlaceValues) -> bool:
        """Prove a bound at some prices by exact pricing, closely if the last round found no patterns. Return whether
        that found patterns that are worth more than their slice.
        """
        problem, every, before = self.problem, np.arange(len(self.classes))[:, None], len(self.patterns)
        most = np.array([worth_of(every, rps[:, None] * (1 + FORGIVEN), values).max()
                         for rps in problem.single_rps.T])
        distance = 1 - self.best / max(self.program.value, self.best, DUST) if self.found else 0.0
        close = max(SCHEDULE.exact.close, SCHEDULE.part * distance)
        loose, effort = forgiving(values.rps, values.value), SCHEDULE.exact._replace(close=close)
        for file, slice_type in enumerate(self.patterns.slice_types):
            worth = self.patterns.price(file, loose, float(duals.slices[slice_type]), effort, SCHEDULE.best,
                                        self.patterns.points[file].most)
            most[slice_type] = max(most[slice_type], worth)
        asked, full = self._asked(values), [float((pool.partitions @ most).max()) for pool in problem.pools]
        proven = asked / max(DUST, *(value * problem.dearest / pool.worth
                                     for value, pool in zip(full, problem.pools, strict=True)))
        if self.values is None or proven > self.best:
            self.center, self.best, self.values, self.worth = duals, max(proven, self.best), values, full
        self.proof.add_prices(asked, full)
        return len(self.patterns) > before

    def _asked(self, values: PlaceValues) -> float:
        """The least values of replica sets of all workloads. Rates of workloads that may be split are rounded down to a
        fine grid.
        """
        total = 0.0
        for at, one in enumerate(self.classes):
            grid = np.geomspace(one.rates_rps[-1], one.rates_rps[0], SCHEDULE.grid)
            grid[0] = one.rates_rps[-1]
            rates_rps = one.rates_rps if self.single[at] else grid[np.searchsorted(grid, one.rates_rps, "right") - 1]
            distinct, which = np.unique(rates_rps, return_inverse=True)
            total += float(self.least_value(values, at, distinct)[which].sum())
        return total

    def least_value(self, values: PlaceValues, at: int, rates_rps: Floats) -> Floats:
        """(rates,) the least value of the replicas that carry each rate of a workload of a class."""
        if self.single[at]:
            found: Floats = np.interp(rates_rps, values.rps[at], values.value[at])
            return found
        counts = np.zeros((len(rates_rps), values.rps.shape[1]), int)
        least: Floats = least_value(values.rps[at], values.value[at], rates_rps * (1 - MISSING), counts)
        return least


FEATURES = {"several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
            "max_replicas", "max_share_per_gpu", "variants", "interference", "other_sharing", "random_interference",
            "isolated_data"}
"""What instances may have that are bounded in this way. Their shared GPUs must have data of interference."""


def applies(instance: Instance) -> bool:
    """Whether a ValueBound can bound an instance."""
    sharing = [one for entry in instance.fleet if entry.mps for one in instance.sharing_files(entry.gpu)]
    known = bool(sharing) and all(isinstance(one, IgniterProfiles | Colocation) for one in sharing)
    return known and needs(instance) <= FEATURES and not instance.workflows and any(
        instance.planned_rps(one) > 0 for one in instance.workloads)


def value_bound(instance: Instance) -> ValueBound:
    """The bound of an instance to which it ``applies``."""
    every_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    needed = np.flatnonzero(every_rps > 0)
    return ValueBound(instance, classes_of(instance, needed, every_rps[needed], SCHEDULE.classes))
