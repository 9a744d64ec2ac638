"""Bounds on throughput that count whole GPUs in each partition, where the linear program takes fractions of them.

At given prices, a value bounds the patterns on each slice type (``FullFleet.price``). So each choice of prices bounds
the throughput by a linear function of the numbers of GPUs in each partition. An integer program finds the numbers that
the lowest of these functions allow most throughput. For these numbers, the linear program over patterns tells the
prices of the next function (Benders decomposition). The integer program's value is a proven bound in each round.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csc_array

from provision.formulations.linear.highs import IntegerSolution, Rows, solve_integer
from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.schedule import SCHEDULE
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import SETTLED, SOLVER


def whole_partitions(fleet: FullFleet, until: Deadline) -> Iterator[float]:
    """Tighten the bound of a FullFleet until further prices do not help or time is over; yield it after every round.

    Where GPUs have one partition each, it does nothing.
    """
    if not fleet.limits or all(len(pool.partitions) == 1 for pool in fleet.problem.pools):
        return
    central = np.zeros(0)
    while not until.over:
        found = _best_numbers(fleet, until.left_s)
        fleet.bound = min(fleet.bound, SOLVER * max(1.0, -found.bound) - found.bound)
        yield fleet.bound
        if found.x is None:
            return
        numbers = np.rint(found.x[:-1])
        central = numbers if not len(central) else (central + numbers) / 2
        # Prices for exactly these numbers are arbitrary where they have no slices of a type.
        near = (1 - SCHEDULE.close) * numbers + SCHEDULE.close * central
        known, partitions, missing = fleet.columns_of(fleet.columns, whole=False)
        rated = fleet.master.known(fleet.rated_already)
        solved = fleet.master.relaxed([known, rated, partitions._replace(least=near, most=near), missing])
        if solved is None:
            return
        before, bound = len(fleet.rated_already), _least(fleet, numbers)
        fleet.price(solved.duals)
        if len(fleet.rated_already) == before and _least(fleet, numbers) * (1 + SETTLED) >= bound:
            return


def _least(fleet: FullFleet, numbers: Floats) -> float:
    """The bound on throughput for given numbers of GPUs in each partition."""
    return min(limit.constant + float(limit.of_partitions @ numbers) for limit in fleet.limits)


def _best_numbers(fleet: FullFleet, time_limit_s: float) -> IntegerSolution:
    """The numbers of GPUs in each partition, and last the throughput, for which the bound is highest."""
    program = fleet.master.program([fleet.master.partitions])
    types = fleet.master.rows["types"]
    granted, many = program.matrix.tocsr()[types].toarray(), len(program.cost)
    limits = np.array([limit.of_partitions for limit in fleet.limits])
    matrix = np.block([[granted, np.zeros((len(granted), 1))], [limits, -np.ones((len(limits), 1))]])
    right = np.concatenate([program.right[types], [-limit.constant for limit in fleet.limits]])
    rows = Rows(np.append(np.zeros(many), -1.0), csc_array(matrix), right, np.append(np.zeros(many), -np.inf),
                np.full(many + 1, np.inf))
    return solve_integer(rows, np.append(np.ones(many, bool), False), time_limit_s)
