"""A relaxation of plans with slices that closed networks describe, with its bound.

The roles of the master program are credited with the upper ends of their intervals of rates. That is loose where a
workload needs little of a GPU. This relaxation divides rates freely. Beside the GPUs of every tier and partition, whole
numbers count the segments of workload w on slices of type k (``x``) and the slices of type k that are shared at level l
(``m``). Fractions are ``n[w, k, l]``, the processes of workload w on these slices, and ``share[w, k, l]``, the part of
the workload's rate that they carry. A level is an interval of utilisation. It is credited with the slowdown at its
lower end and the capacity at its upper end.

    demand     parts of a workload's rate on segments and on shared slices  >=  1
    replicas   segments and processes of a workload  >=  min_replicas
    busy       utilisation of slices of type k shared at level l  <=  that of the level times their number
    rate       share[w, k, l]  <=  the highest part that a process carries times n[w, k, l]
    clients    processes on slices of type k at level l  <=  the level's most times their number

Memory is ignored, and slices of a type at a level are not distinguished.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.restricted import RestrictedMaster
from provision.formulations.pricing.rates import GENEROUS
from provision.formulations.pricing.shared_mig.levels import bounded_levels, level_times_ms
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import Segments, SliceType, best_segments, cap_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SOLVER, TOLERANCE
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Outcome
from provision.models.problem.workload import Workload

ANY_NUMBER = 10**6
"""More processes than any slice has."""


LEVELS = bounded_levels(ANY_NUMBER, random_arrivals=False)
"""Levels that together cover every way to share a slice."""


def least_units(problem: Problem, limit_s: float) -> float:
    """The least price of the relaxation's GPUs in units, rounded up; infinite if the fleet is too small, 0 if nothing
    is proven in time.
    """
    instance, segments = problem.instance, problem.segments
    workloads, slice_types = len(instance.workloads), len(segments.slice_types)
    rps, busy = relaxed(instance, segments)
    rate = np.array([instance.planned_rps(one) for one in instance.workloads])
    useful = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    w, k = np.nonzero(useful)
    user, slice_type, level = np.nonzero(rps)
    places, place = np.unique(np.stack([slice_type, level], axis=1), axis=0, return_inverse=True)
    place, uses = place.ravel(), len(user)
    every, levels = np.arange(len(places)), [LEVELS[number] for number in places[:, 1].tolist()]
    most = np.minimum([one.processes for one in levels], _clients(instance, segments)[places[:, 0]])
    part = np.divide(useful[w, k], rate[w], out=np.ones(len(w)), where=rate[w] > 0)
    carried = np.divide(GENEROUS * rps[user, slice_type, level], rate[user], out=np.ones(uses),
                        where=rate[user] > 0)
    program = RestrictedMaster(problem, demand=(rate > 0) / GENEROUS,
                               replicas=np.array([one.min_replicas for one in instance.workloads]),
                               busy=np.zeros(len(places)), rate=np.zeros(uses), clients=np.zeros(len(places)))
    at_user, at_place, each = (partial(_entries, at, many) for at, many in
                               ((user, workloads), (place, len(places)), (np.arange(uses), uses)))
    segment = program.columns(np.zeros(len(w)), slices=-_entries(k, slice_types), replicas=_entries(w, workloads),
                              demand=_entries(w, workloads, np.minimum(part, 1)))
    sharing = program.columns(np.zeros(len(places)), slices=-_entries(places[:, 0], slice_types),
                              busy=_entries(every, len(places), GENEROUS * np.array([one.use for one in levels])),
                              clients=_entries(every, len(places), most.astype(float)))
    share = program.columns(np.zeros(uses), np.where(rate[user] > 0, 1.0, 0.0), whole=False, demand=at_user(),
                            rate=-each(), busy=-at_place(busy[user, slice_type, level] * rate[user]))
    process = program.columns(np.zeros(uses), whole=False, replicas=at_user(), rate=each(np.minimum(carried, 1)),
                              clients=-at_place())
    found = program.integral([program.partitions, program.offered, segment, sharing, share, process], limit_s)
    if found.status == "infeasible":
        return math.inf
    units = found.bound * problem.dearest
    return max(0, math.ceil(units - SOLVER * max(1.0, abs(units)))) if math.isfinite(units) else 0


def _entries(of: Ints, rows: int, values: Floats | None = None) -> csr_array:
    """(rows, columns) a matrix with one entry per column, by default 1, in the row that the column belongs to."""
    return csr_array((np.ones(len(of)) if values is None else values, (of, np.arange(len(of)))), (rows, len(of)))


def relaxed(instance: Instance, segments: Segments) -> tuple[Floats, Floats]:
    """Two arrays (workloads, slice types, levels) at each of LEVELS, loosened by the verifier's tolerances: the highest
    requests/s of a process, 0 where no batch is within the latency budget; and the least utilisation of one request/s.

    At most one data file may describe the shared slices of each GPU type. The rates come from the networks' mean times,
    so they are not valid under rules for random arrivals.
    """
    rps, busy = np.array([[_best(instance, workload, slice_type) for slice_type in segments.slice_types]
                          for workload in instance.workloads]).transpose(2, 0, 1, 3)
    return rps, busy


def _best(instance: Instance, workload: Workload, slice_type: SliceType) -> Floats:
    """(2, levels) the highest rate of a process and the least utilisation of one request/s; zeros if the data does not
    describe the slice.
    """
    entry, found = instance.fleet[slice_type.entry], np.zeros((2, len(LEVELS)))
    data = instance.sharing_of(entry.gpu, [workload.model])
    if not isinstance(data, FittedNetworks) or slice_type.profile not in data.profiles or not entry.mps:
        return found
    network, compute = data.models[workload.model].coefficients, entry.type.slice_compute(slice_type.profile)
    batch = np.array([size for size in data.batches if size <= network.max_batch], np.int64)
    latency_ms, _ = level_times_ms(network, batch, LEVELS, compute)
    fits = latency_ms <= instance.budget_ms(workload) * (1 + TOLERANCE)
    fits &= network.memory_gib(batch, 1) <= entry.type.slice_memory_gib(slice_type.profile) * (1 + TOLERANCE)
    sizes = np.arange(1, network.max_batch + 1)
    least_busy = np.minimum.accumulate(work_ms_array(network, sizes, 1, compute)[1] / (1000 * sizes))
    fill_s = instance.policy.fill_ms(workload.slo_ms) / 1000
    filled = np.minimum(batch, 1 + instance.planned_rps(workload) * fill_s * (1 + TOLERANCE)).astype(int)
    found[0] = np.where(fits, 1000 * batch / latency_ms, 0.0).max(axis=1)
    found[1] = np.where(fits, least_busy[filled - 1], np.inf).min(axis=1)
    found[1, found[0] == 0] = 0.0
    return found


def _clients(instance: Instance, segments: Segments) -> Ints:
    """(slice types,) the number of MPS clients that a slice may have."""
    return np.array([instance.fleet[one.entry].type.slice_mps_clients(one.profile)
                     for one in segments.slice_types], int)


def most_alone_or_shared(instance: Instance) -> Segments:
    """The segments, each with the larger of two throughputs: its own, and a bound for the workload on shared slices.

    The bound counts as many replicas of the workload on the slice as MPS allows clients.
    """
    segments = best_segments(instance)
    most_rps = relaxed(instance, segments)[0].max(axis=2, initial=0) * _clients(instance, segments)
    return replace(segments, throughput_rps=np.maximum(segments.throughput_rps, most_rps))


def never_served(instance: Instance) -> Outcome | None:
    """An infeasible Outcome if no slice can serve some workload, alone or shared; else None."""
    segments = most_alone_or_shared(instance) if is_relaxed(instance) else best_segments(instance)
    return proved_infeasible(instance, segments)


def further_bound(instance: Instance, limit_s: float) -> float:
    """A lower bound on the objective from the relaxation; infinite if the fleet is too small, 0 if there is no bound.

    There is no bound if slices are shared in several ways, if workloads have several models, if time runs out, or if
    the latency rule is for random arrivals: the relaxation computes batch times as closed networks do under half_slo.

    Parameters
    ----------
    instance
        The problem; every workload must be served by some slice of the fleet, alone or shared.
    limit_s
        The time limit of the solver in seconds.
    """
    if not is_relaxed(instance):
        return 0.0
    problem = Problem(instance)
    return problem.objective(least_units(problem, limit_s))


def is_relaxed(instance: Instance) -> bool:
    """Whether the relaxation covers all plans of an instance, so that its bound is valid."""
    gpus = {entry.gpu for entry in instance.fleet}
    files = [data for data in instance.performance if data.gpu in gpus]
    varied = any(workload.variants for workload in instance.workloads)
    if varied or instance.objective == THROUGHPUT or instance.policy.rule.random_arrivals:
        return False
    if any(not data.measured and not isinstance(data, FittedNetworks) for data in files):
        return False
    return all(len(instance.sharing_files(gpu)) == 1 for gpu in gpus)
