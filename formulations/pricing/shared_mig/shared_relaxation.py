"""A relaxation of plans with slices that closed networks describe, with its bound.

It divides rates freely, as pricing does for bounds, but counts GPUs and slices in whole numbers, which proves more
where few GPUs suffice. Beside the GPUs of every tier and partition, whole numbers count the segments of workload w on
slices of type k (``x``) and the slices of type k that are shared at level l (``m``). Fractions are ``n[w, k, l]``, the
processes of workload w on these slices, and ``share[w, k, l]``, the part of the workload's rate that they carry. A
level is an interval of utilisation. It is credited with the slowdown at its lower end and the capacity at its upper
end.

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
from provision.formulations.pricing.shared_mig.levels import BOUNDED, bounded_rates
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import Segments, best_segments, cap_rps
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import SOLVER
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Outcome


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
    every, levels = np.arange(len(places)), [BOUNDED[number] for number in places[:, 1].tolist()]
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
    """Two arrays (workloads, slice types, levels), those of ``bounded_rates``; zeros where the data does not describe
    the slice.

    At most one data file may describe the shared slices of each GPU type. The rates come from the networks' mean times,
    so they are not valid under rules for random arrivals.
    """
    found = np.zeros((2, len(instance.workloads), len(segments.slice_types), len(BOUNDED)))
    for k, (at, profile, *_) in enumerate(segments.slice_types):
        entry = instance.fleet[at]
        for w, workload in enumerate(instance.workloads):
            data = instance.sharing_of(entry.gpu, [workload.model])
            if isinstance(data, FittedNetworks) and profile in data.profiles and entry.mps:
                found[:, w, k] = bounded_rates(instance, workload, workload.model, data, entry, profile)
    return found[0], found[1]


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
