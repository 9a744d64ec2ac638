"""The marginal cost of a request: duals of the linear program over MIG partitions.

The program minimises the price of GPUs. Segments (x, fractional) in the slots of partitions (y, fractional) must carry
every workload's rate. The dual of a rate row is the cost of one more request/s. Another SLO allows other operating
points, so the cost of a change of SLO is the difference between two such programs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.restricted import RestrictedMaster
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.workload import Workload

SLO_STEP = 0.1
"""The relative change of an SLO whose cost is computed."""


class Marginal(NamedTuple):
    """The marginal prices of one workload, in units of the objective.

    ``per_rps`` is the cost of one more request/s. ``share`` is the fraction of the whole value that the workload's rate
    costs at this price. ``tighter_per_ms`` is the cost per ms by which the SLO is shortened; None if the shorter SLO
    cannot be kept. ``looser_per_ms`` is the saving per ms by which it is lengthened. Both are for a change of the SLO
    by the fraction SLO_STEP.
    """

    workload: str
    per_rps: float
    share: float
    tighter_per_ms: float | None
    looser_per_ms: float


def marginal_prices(instance: Instance, of: Sequence[str] = ()) -> list[Marginal]:
    """The marginal prices of all workloads, or of those named in ``of``. The workload with the dearest rate comes
    first.

    Parameters
    ----------
    instance
        The problem.
    of
        Names of workloads; empty for all.

    Raises
    ------
    InputError
        If workloads share slices, if a workload cannot be served, or if no workload has a name in ``of``.
    """
    if unknown := [name for name in of if name not in instance.workload]:
        raise InputError(f"marginal prices: the instance has no workload {unknown[0]!r}")
    if needs(instance) & {"interference", "other_sharing", "share_slices", "max_throughput"}:
        raise InputError(
            "marginal prices are those of isolated slices; not for share_slices, igniter data, max_throughput"
        )
    value, per_rps = relaxed(instance)
    if not math.isfinite(value):
        raise InputError("marginal prices: the fleet cannot carry this demand; solve says what would fit")
    rows = [_marginal(instance, at, value, float(per_rps[at])) for at, one in enumerate(instance.workloads)
            if not of or one.name in of]
    return sorted(rows, key=lambda row: -row.share)


def relaxed(instance: Instance) -> tuple[float, Floats]:
    """Solve the linear program of an instance. Return its value, infinite if it is infeasible, and (workloads,) the
    duals of the rates, per request/s.
    """
    useful_rps = np.minimum(best_segments(instance).throughput_rps, cap_rps(instance)[:, None])
    rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    if (rates_rps > 0)[~useful_rps.any(axis=1)].any():
        return math.inf, np.zeros(len(rates_rps))
    problem = Problem(instance)
    workload, slice_type = np.nonzero(useful_rps)
    program = RestrictedMaster(problem, demand=rates_rps)
    every = np.arange(len(workload))
    segments = program.columns(
        np.zeros(len(every)), slices=csr_array((-np.ones(len(every)), (slice_type, every)),
                                               (useful_rps.shape[1], len(every))),
        demand=csr_array((useful_rps[workload, slice_type], (workload, every)), (len(rates_rps), len(every))))
    found = program.relaxed([program.offered, program.partitions, segments])
    if found is None:
        return math.inf, np.zeros(len(rates_rps))
    unit = problem.dearest * float(problem.unit)
    return found.value * unit, program.split(found.duals)["demand"] * unit


def _marginal(instance: Instance, index: int, value: float, per_rps: float) -> Marginal:
    """The prices of a workload, by index; ``value`` and ``per_rps`` are those of the instance itself."""
    workload, step_ms = instance.workloads[index], SLO_STEP * instance.workloads[index].slo_ms
    shorter, longer = (relaxed(_with_slo(instance, index, factor))[0] for factor in (1 - SLO_STEP, 1 + SLO_STEP))
    share = per_rps * instance.planned_rps(workload) / value if value else 0.0
    tighter_per_ms = (shorter - value) / step_ms if math.isfinite(shorter) else None
    return Marginal(workload.name, per_rps, share, tighter_per_ms, (value - longer) / step_ms)


def _with_slo(instance: Instance, index: int, factor: float) -> Instance:
    """The instance with the SLO of one workload times a factor."""
    workloads = list(instance.workloads)
    workloads[index] = Workload(**workloads[index].with_slo(factor))
    return instance.replace(workloads=tuple(workloads))
