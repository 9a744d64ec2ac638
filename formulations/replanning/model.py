"""The model of replanning: the GPUs of a running plan by layout, the GPUs that may be added, and their pools.

A pool is a set of GPUs whose slices are counted together.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.patterns import Criteria
from provision.formulations.bounds.replica_set_bound import replica_set_bound
from provision.formulations.replanning.options import Options
from provision.formulations.replanning.placed import Choice, placed
from provision.formulations.replanning.running import Going, RunningPlan, Turn
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import Segments, cap_rps
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

ALL = 0
"""The number of the pool that has all GPUs."""
MOST_POOLS = 20
"""The most new GPUs of a model that treats every GPU as a pool of its own (``apart``)."""
GIVEN_BACK = Turn((), ())
"""The turn of a GPU that is given back: no slice stays."""

RunningLayout = tuple[int, int, tuple[Going, ...], tuple[Turn, ...]]
"""A layout of running GPUs: pool, fleet entry, what each slice runs, and the turns (new states) that the GPUs can take.
"""


class Weights(NamedTuple):
    """The costs of a destroyed slice and of a started replica, in units of the objective, and what may change.

    ``allow`` is one of ``counts.ALLOWED``.
    """

    slice_cost: float
    replica_cost: float
    allow: str = "slices"


class Model:
    """The model of one instance and one running plan.

    Attributes
    ----------
    loose
        Whether some patterns of shared slices are not listed. If so, bounds and plans come from different programs.
    new
        (pool, fleet entry) of the GPUs that may be added. If every GPU is a pool of its own, there is one pair for each
        GPU.
    many
        Whether ``new`` would have more than MOST_POOLS entries.
    compute
        (workloads,) the least compute slices of each workload's replicas; None if workloads share slices.
    """

    def __init__(self, instance: Instance, segments: Segments, now: RunningPlan, options: Options, weights: Weights,
                 known: float) -> None:
        self.instance, self.segments, self.now = instance, segments, now
        self.options, self.weights, self.criteria = options, weights, Criteria(instance)
        self.loose = any(options.relaxed)
        self.partitions = partitions_of(instance, segments)
        routed = any(pattern.routed for patterns in options.anew for pattern in patterns)
        several = routed or bool((self.partitions.slots.sum(axis=1) > 1).any())
        self.apart = several and bool((self.criteria.share < 1).any())
        self.compute = None
        if not options.shared:
            useful_rps = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
            self.compute = replica_set_bound(instance, useful_rps, segments, self.partitions)[1].cost
        self.layouts: dict[RunningLayout, list[int]] = defaultdict(list)
        for gpu, entry in enumerate(now.entry):
            if entry >= 0:
                self.layouts[gpu + 1 if self.apart else ALL, entry, now.going[gpu], now.turns[gpu]].append(gpu)
        added = list(now.tiers) if weights.allow != "batches" else []
        self.new, self.many = [(ALL, entry) for entry in added], False
        if self.apart:
            most = {entry: self._most_new(entry, known) for entry in added}
            self.many = sum(most.values()) > MOST_POOLS
            entries = [] if self.many else [entry for entry, many in most.items() for _ in range(int(many))]
            self.new = [(len(now.entry) + 1 + at, entry) for at, entry in enumerate(entries)]

    @property
    def outside(self) -> int:
        """The number of slices on GPUs that are not in the fleet."""
        pairs = zip(self.now.plan.gpus, self.now.entry, strict=True)
        return sum(len(gpu.slices) for gpu, entry in pairs if entry < 0)

    def _most_new(self, entry: int, known: float) -> float:
        """The most GPUs of a type in a plan that is no worse than a known plan."""
        tiers = [self.instance.fleet[index] for index in self.now.tiers[entry]]
        count = sum(np.inf if one.count is None else one.count for one in tiers)
        least = min(map(objective_of(self.instance).weight, tiers))
        return count if least == 0 else min(count, known * (1 + TOLERANCE) // least)

    def plan(self, choice: Choice | None, holds: Callable[[Plan], bool]) -> Plan | None:
        """The plan of a choice; None if it is not feasible."""
        if choice is None:
            return None
        plan = placed(self.instance, self.segments, self.partitions, self.now, choice)
        return plan if plan is not None and holds(plan) else None

    def turns(self, layout: RunningLayout) -> list[Turn]:
        """The turns that a layout may take. If its GPUs may be given back, the last turn is GIVEN_BACK."""
        *_, going, turns = layout
        whole = [turn for turn in turns if len(turn.kept) == len(going)]
        if self.weights.allow == "slices" or not going:
            return [*turns, GIVEN_BACK]
        return whole
