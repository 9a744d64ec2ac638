"""Improves a plan: the patterns of most of its GPUs are kept, and the integer program plans the other GPUs anew.

This is large neighbourhood search over the columns of the master program (Shaw 1998). Every kept pattern raises the
linear program's value by at least its reduced cost. So the reduced costs of all kept patterns may add up to no more
than the wanted price less the linear program's value. GPUs with low reduced costs are kept first.
"""

import math
from collections import Counter

import numpy as np

from provision.formulations.master.columns import Chosen, Duals
from provision.formulations.master.generation import Generation
from provision.formulations.master.plans import add_plan
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import Deadline
from provision.models.plans.plan import Plan


class Neighbourhood:
    """Searches for plans that are better than a known plan and have most of its patterns.

    Parameters
    ----------
    columns
        The patterns so far. The plan's patterns are added to them.
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
        self.gpus = add_plan(self.columns.program, plan)

    def better(self, until: Deadline, below: float, wanted: float) -> Chosen | None:
        """A whole-number solution cheaper than ``below``, in units of price; None if none was found.

        The first search is for a solution that costs at most ``wanted``. After every failure, the next search plans
        more GPUs anew. If ``below`` is infinite (no plan is known), the next search instead allows a price that is
        higher by the price of the dearest GPU.
        """
        relaxed = self.columns.program.relaxed()
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

    def _sought(self, relaxed: Duals, goal: float, share: float, until: Deadline) -> Chosen | None:
        """A whole-number solution that costs at most ``goal``, in units of price; None if none was found.

        At least the fraction ``share`` of the GPUs is planned anew.
        """
        step = float(self.columns.problem.dearest)
        least = self._least(relaxed.reduced, (goal / step - relaxed.value) * (1 - share), share)
        kept = (relaxed.reduced <= SCHEDULE.nearly) | (least > 0)
        return self.columns.program.integral(kept, least, min(SCHEDULE.whole_s, until.left_s), goal)

    def _least(self, reduced: Floats, most: float, share: float) -> Ints:
        """(patterns,) how often the kept GPUs of the plan use each pattern; the integer program must use it as often.

        GPUs are kept in the order of their reduced costs, with some noise.

        Parameters
        ----------
        reduced
            (patterns,) reduced costs.
        most
            The most that the reduced costs of the kept patterns may add up to.
        share
            The fraction of the GPUs that are planned anew in any case.
        """
        patterns = self.columns.program.patterns
        costs = np.array([math.inf if gpu is None else sum(max(reduced[patterns.at[one]], 0.0) for one in gpu)
                          for gpu in self.gpus])
        order = np.argsort(costs + SCHEDULE.used * self.draw.random(len(costs)), kind="stable")
        stays = (np.cumsum(costs[order]) <= most) & (np.arange(len(costs)) < (1 - share) * len(costs))
        held = Counter(one for at in order[stays].tolist() for one in self.gpus[at] or ())
        return np.array([held[one] for one in patterns], int)
