"""The marginal cost of a request: duals of the linear program over MIG partitions.

The program minimises the price of GPUs. Segments (x, fractional) in the slots of partitions (y, fractional) must carry
every workload's rate. The dual of a rate row is the cost of one more request/s. Another SLO allows other operating
points, so the cost of a change of SLO is the difference between two such programs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, hstack, vstack

from provision.formulations.linear.highs import linprog
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments, cap_rps
from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.models.problem.method import needs
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import Workload

SLO_STEP = 0.1
"""The relative change of an SLO whose cost is computed."""


class RatePrices(NamedTuple):
    """The optimum of the linear program: its value, and (workloads,) the duals of the rates, per request/s."""

    value: float
    per_rps: Floats


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
    now = relaxed(instance)
    if not np.isfinite(now.value):
        raise InputError("marginal prices: the fleet cannot carry this demand; solve says what would fit")
    rows = [_marginal(instance, at, now) for at, one in enumerate(instance.workloads) if not of or one.name in of]
    return sorted(rows, key=lambda row: -row.share)


def relaxed(instance: Instance) -> RatePrices:
    """Solve the linear program of an instance; the value is infinite if the program is infeasible."""
    segments = best_segments(instance)
    partitions = partitions_of(instance, segments)
    useful_rps = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    rate_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    weights = [objective_of(instance).weight(instance.fleet[entry]) for entry in partitions.entry]
    rows, slice_types = np.nonzero(useful_rps)
    if not len(rows):
        return RatePrices(np.inf if rate_rps.any() else 0.0, np.zeros(len(rate_rps)))
    count = np.arange(len(rows))
    carried = coo_array((-useful_rps[rows, slice_types], (rows, count)), (len(rate_rps), len(rows)))
    taken = coo_array((np.ones(len(rows)), (slice_types, count)), (len(segments.slice_types), len(rows)))
    limited = [index for index, entry in enumerate(instance.fleet) if entry.count is not None]
    no_rate, no_use = csr_array((len(rate_rps), len(weights))), csr_array((len(limited), len(rows)))
    found = linprog(
        np.concatenate([np.zeros(len(rows)), weights]),
        A_ub=vstack([hstack([carried, no_rate]), hstack([taken, -partitions.offered()]),
                     hstack([no_use, partitions.used(limited)])]),
        b_ub=np.concatenate(
            [-rate_rps, np.zeros(len(segments.slice_types)), [instance.fleet[at].count for at in limited]]
        ),
        method="highs",
    )
    if found.status != 0:
        return RatePrices(np.inf, np.zeros(len(rate_rps)))
    return RatePrices(found.fun, -found.ineqlin.marginals[: len(rate_rps)])


def _marginal(instance: Instance, index: int, now: RatePrices) -> Marginal:
    workload, step_ms = instance.workloads[index], SLO_STEP * instance.workloads[index].slo_ms
    dearer = relaxed(_with_slo(instance, index, 1 - SLO_STEP)).value - now.value
    looser = now.value - relaxed(_with_slo(instance, index, 1 + SLO_STEP)).value
    per_rps = float(now.per_rps[index])
    share = per_rps * instance.planned_rps(workload) / now.value if now.value else 0.0
    tighter_per_ms = dearer / step_ms if np.isfinite(dearer) else None
    return Marginal(workload.name, per_rps, share, tighter_per_ms, looser / step_ms)


def _with_slo(instance: Instance, index: int, factor: float) -> Instance:
    workloads = list(instance.workloads)
    workloads[index] = Workload(**workloads[index].with_slo(factor))
    return instance.replace(workloads=tuple(workloads))
