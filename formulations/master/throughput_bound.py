"""An upper bound on throughput under interference, for any number of replicas: as if none had neighbours.

Every replica takes units of some GPU type and carries the rate that it would carry there alone; together replicas take
no more units than the GPUs of a type have. The unit constraint is relaxed with prices (Lagrangian relaxation, Geoffrion
1974): each replica takes the units of the highest throughput beyond their price. Any prices give a bound, and the duals
of the linear program give a good one.
"""

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.highs import linprog
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.contents.interference.boxes import NOTHING, alone
from provision.models.contents.interference.throughput_plans import ThroughputProblem


def throughput_bound(problem: ThroughputProblem) -> float:
    """Upper bound on the requests/s of all plans with one replica per part of a ThroughputProblem."""
    pairs = [(alone(menu), supply.count) for menu, supply in zip(problem.menus, problem.fleet.supplies, strict=True)]
    worth = np.concatenate([one for one, _ in pairs], axis=1)
    units = np.concatenate([np.arange(1, one.shape[1] + 1) for one, _ in pairs])
    of_type = np.repeat(np.arange(len(pairs)), [one.shape[1] for one, _ in pairs])
    there = np.array([count * one.shape[1] for one, count in pairs], float)
    counts = problem.classes.counts
    prices = _prices(worth, units, of_type, there, counts)
    gained = np.where(worth > NOTHING, worth - (prices[of_type] * units), NOTHING).max(axis=1)
    return float(prices @ there + counts @ gained) * (1 + TOLERANCE)


def _prices(worth: Floats, units: Ints, of_type: Ints, there: Floats, counts: Ints) -> Floats:
    """Duals of the rows that limit the units of each type; zeros where the program has no solution."""
    one, choice = np.nonzero(worth > NOTHING)
    at = np.arange(len(one))
    taken = csr_array((units[choice].astype(float), (of_type[choice], at)), (len(there), len(at)))
    once = csr_array((np.ones(len(at)), (one, at)), (len(counts), len(at)))
    found = linprog(-worth[one, choice], A_ub=taken, b_ub=there, A_eq=once, b_eq=counts)
    return np.maximum(-found.ineqlin.marginals, 0) if found.status == 0 else np.zeros(len(there))
