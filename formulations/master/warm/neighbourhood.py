"""Improves a plan: most of its columns are kept, and the integer program chooses the rest anew.

This is large neighbourhood search over the columns of the master program (Shaw 1998). A GPU is kept if its patterns are
valid and have low reduced costs. Kept columns raise the linear program's value by at least their reduced costs. So the
sum of these must be less than the difference between the wanted price and the linear program's value.
"""

import math
from collections import Counter

import numpy as np

from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import add_plan
from provision.formulations.master.role_columns import Chosen, MasterDuals
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.plans.plan import Plan


class Neighbourhood:
    """Searches for better plans that have most of their columns in common with a known plan.

    Parameters
    ----------
    columns
        The columns so far. The plan's columns are added to them.
    plan
        A plan of the instance; it need not be valid.
    draw
        Random generator for the choice among GPUs of about the same reduced cost.
    """

    def __init__(self, columns: Generation, plan: Plan, draw: np.random.Generator) -> None:
        self.columns, self.draw = columns, draw
        self.stand(plan)

    def stand(self, plan: Plan) -> None:
        """Begin from another plan."""
        self.plan, self.standing = plan, add_plan(self.columns.program, self.columns.problem, plan)

    def better(self, until: Deadline, below: float, wanted: float) -> Chosen | None:
        """A whole-number solution cheaper than ``below``, in units; None if none was found.

        The solution should cost at most ``wanted``. As long as none is found, more GPUs are planned anew. If ``below``
        is infinite, the solution may cost a little more than the linear program's value, and after every failure still
        more.
        """
        relaxed = self.columns.program.relaxed(strict=True)
        if relaxed is None:
            return None
        step = float(self.columns.problem.dearest)
        lowest = max(self.columns.bound, math.ceil(self.columns.units(relaxed)))
        share, goal = SCHEDULE.some, max(lowest + step, wanted)
        if math.isfinite(below):
            goal = min(below - step, max(lowest, wanted))
        while lowest < below and not until.over and share < 1:
            found = self._sought(relaxed, goal, share, until)
            if found is not None:
                return found
            if math.isinf(below):
                goal += step
            else:
                share *= SCHEDULE.patience
        return None

    def _sought(self, relaxed: MasterDuals, goal: float, share: float, until: Deadline) -> Chosen | None:
        """A whole-number solution that costs at most ``goal``, in units, with at least the fraction ``share`` of the
        GPUs planned anew.
        """
        program, step = self.columns.program, float(self.columns.problem.dearest)
        least = self._least(relaxed.reduced, (goal / step - relaxed.value) * (1 - share), share)
        kept = (relaxed.reduced <= SCHEDULE.nearly) | (least > 0)
        kept[program.loose()] = False
        return program.integral(kept, least, min(SCHEDULE.whole_s, until.left_s), goal)

    def _least(self, reduced: Floats, most: float, share: float) -> Ints:
        """(columns,) the least value of each column: how often the kept GPUs use it.

        Parameters
        ----------
        reduced
            (columns,) reduced costs.
        most
            The largest sum of the reduced costs of kept columns.
        share
            The fraction of the GPUs that are planned anew in any case.
        """
        program, gpus = self.columns.program, self.standing.gpus
        at = {one: program.others + number for number, one in enumerate(program.patterns)}
        costs = np.array([
            sum(max(reduced[at[one]], 0.0) for one in gpu) if holds and all(one in at for one in gpu) else np.inf
            for gpu, holds in zip(gpus, self.standing.holds, strict=True)])
        order = np.argsort(costs + SCHEDULE.used * self.draw.random(len(costs)), kind="stable")
        stays = (np.cumsum(costs[order]) <= most) & (np.arange(len(costs)) < (1 - share) * len(costs))
        free = np.ones(len(costs), bool)
        free[order[stays]] = False
        patterns = Counter(one for number, gpu in enumerate(gpus) if not free[number] for one in gpu)
        moved = {one.workload for number, gpu in enumerate(self.plan.gpus) if free[number]
                 for piece in gpu.slices for one in piece.replicas}
        sets = Counter(one for name, one in self.standing.replica_sets.items()
                       if name not in moved and program.wanted[one.group])
        return np.concatenate([np.zeros(program.others, int),
                               np.array([patterns[one] for one in program.patterns], int),
                               np.array([sets[one] for one in program.replica_sets], int)])
