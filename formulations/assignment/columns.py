"""Columns: patterns of slices whose replicas have no linear rows, and relaxations of slices whose patterns are not all
listed.

A replica alone on a slice is a column. Closed networks, gpu-lets' turns and further kinds of data get the columns that
their pricing oracle lists or finds; this module is the only one here that asks oracles. Where these are not all, an
*open* slice stands for the others in bounds.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern, alone, clients_of, slice_types_of
from provision.formulations.assignment.points import Interfering
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.rate_oracles import RoleRates
from provision.formulations.pricing.rates import GENEROUS, GroupPrices, Listing, RateOracle
from provision.formulations.pricing.register import way_of
from provision.formulations.pricing.shared_mig.relaxed import LEVELS, clients, relaxed
from provision.formulations.search.problem import Problem, Shareable, groups_of
from provision.formulations.search.segments import SliceType, best_segments
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import TOLERANCE
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.gpulets import Gpulets
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance


class Open(NamedTuple):
    """A relaxation of a shared slice; arrays are (workloads,).

    ``time`` is what a workload's whole planned rate takes of a slice, which is at most 1 for all together; infinite
    where the workload cannot run there. ``most`` is the largest fraction of the rate that one replica carries, or one
    process if ``by_process``. A slice has at most ``clients`` of them.
    """

    time: Floats
    most: Floats
    clients: int
    by_process: bool = False


class Asked(NamedTuple):
    """An oracle of a slice type (by index), the most replicas there, and the problem that it is for. ``relaxing`` tells
    whether its bounds hold for all patterns.
    """

    slice_type: int
    clients: int
    problem: Problem
    oracle: RateOracle
    relaxing: bool


class Columns(NamedTuple):
    """For each slice type its columns, the relaxations of which each open slice keeps one, and the worths of workloads'
    whole rates, (workloads,), which together are at most 1 on an open slice. ``asked`` are the oracles of slice types
    that are not all listed, ``unbounded`` slice types without a relaxation so far.
    """

    patterns: list[list[SlicePattern]]
    opened: list[list[Open]]
    worths: list[list[Floats]]
    asked: list[Asked]
    unbounded: set[int]


def columns_of(instance: Instance, start: Plan | None, until: Deadline) -> Columns:
    """The columns of every slice type. Shared slices of the plan ``start`` are columns too where an oracle does not
    list all until the deadline.
    """
    every, found, slice_types = range(len(instance.workloads)), Columns([], [], [], [], set()), slice_types_of(instance)
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    problems = [Problem(instance, groups), Problem(instance, [group._replace(most=1) for group in groups])] if any(
        _shared_files(instance, one) for one in slice_types) else []
    for k, slice_type in enumerate(slice_types):
        patterns, opened = alone(instance, slice_type, every), list[Open]()
        for data in _shared_files(instance, slice_type):
            listed = _listed(problems[0], slice_type, data, until)
            if listed is not None:
                patterns += listed
                continue
            for problem in problems:
                oracle = _oracle(problem, slice_type, data, until)
                most = clients_of(instance.fleet[slice_type.entry], slice_type.profile)
                found.asked.extend([] if oracle is None else [
                    Asked(k, most, problem, oracle, problem is problems[0])])
            patterns += _running(instance, slice_type, start)
            stated = _by_levels(instance, slice_type) or _stated(instance, slice_type, data)
            opened += stated
            found.unbounded.update([] if stated else [k])
        found.patterns.append(list(dict.fromkeys(patterns)))
        found.opened.append(opened)
        found.worths.append([])
    return found


def ask(columns: Columns, prices: Floats, slots: Floats) -> bool:
    """Ask the oracles for further columns and relaxations; return whether there are new columns.

    No pattern is worth more than an oracle's bound, at any prices. So the workloads of an open slice are, at these
    prices, worth at most that bound.

    Parameters
    ----------
    prices
        (workloads,) the worth of a workload's whole rate.
    slots
        (slice types,) the worth above which patterns are wanted.
    """
    new, bounds = False, dict[int, float]()
    for k, _, problem, oracle, relaxing in columns.asked:
        owners = [group.members[0] for group in problem.groups]
        asked_rps = np.array([group.asked_rps for group in problem.groups])
        priced = oracle.price(GroupPrices(prices[owners] / asked_rps, np.zeros(len(owners)), asked_rps),
                              float(slots[k]), 0)
        listing = priced.patterns if priced.planned is None else priced.planned
        patterns = dict.fromkeys(_patterns(problem, listing, routed=priced.planned is not None))
        fresh = [one for one in patterns if one not in columns.patterns[k]]
        columns.patterns[k].extend(fresh)
        new = new or bool(fresh)
        if relaxing:
            bounds[k] = max(bounds.get(k, 0.0), math.inf if problem.fills else priced.most)
    for k, bound in bounds.items():
        if 0 < bound < math.inf:
            _relax(columns, k, prices, bound)
    return new


def _relax(columns: Columns, k: int, prices: Floats, bound: float) -> None:
    """Add what a bound on all patterns of a slice type, of every file, says of its open slices."""
    asked = next(one for one in columns.asked if one.slice_type == k and one.relaxing)
    owners, worth = [group.members[0] for group in asked.problem.groups], np.zeros(len(prices))
    worth[owners] = prices[owners] / bound
    columns.worths[k].append(worth)
    if k in columns.unbounded and (worth[owners] > 0).all():
        columns.opened[k].append(Open(np.where(worth > 0, 0.0, np.inf), np.ones(len(prices)), asked.clients))
        columns.unbounded.discard(k)


def _shared_files(instance: Instance, slice_type: SliceType) -> list[PerformanceFile]:
    """The files by which slices of a type are shared in other ways than under interference."""
    entry = instance.fleet[slice_type.entry]
    files = instance.sharing_files(entry.gpu) if entry.mps else []
    divided = any(data.divides_sms for data in instance.performance if data.gpu == entry.gpu)  # networks do not do that
    return [data for data in files if not isinstance(data, Interfering)
            and not (divided and isinstance(data, FittedNetworks))
            and (data.sharing == "always" or data.helps_sharing(slice_type.profile))]


def _oracle(problem: Problem, slice_type: SliceType, data: PerformanceFile, until: Deadline) -> RateOracle | None:
    """The oracle of a slice type; None if there is none."""
    at = next((k for k, one in enumerate(problem.segments.slice_types) if one == slice_type), None)
    if at is None:
        return None
    make = way_of(data.kind).rates
    made: RateOracle | None = None if make is None else make(problem, slice_type, data, until)
    return made or (RoleRates(problem, Shareable(at, data)) if problem.roles else None)


def _listed(problem: Problem, slice_type: SliceType, data: PerformanceFile, until: Deadline
            ) -> list[SlicePattern] | None:
    """All undominated patterns of a slice type; None if they are too many to list, or not known."""
    with suppress(TooManyError):
        oracle = _oracle(problem, slice_type, data, until)
        listing = oracle.listed() if oracle is not None and oracle.complete else None
        if listing is not None:
            asked_rps = np.array([group.asked_rps for group in problem.groups])
            parts = listing.rps if problem.fills else np.minimum(listing.rps / asked_rps, 1)
            kept = undominated(np.column_stack([parts, -listing.number, -listing.replicas]), until=until)
            return list(_patterns(problem, listing.only(kept), routed=False))
    return None


def _patterns(problem: Problem, listing: Listing, routed: bool) -> Iterator[SlicePattern]:
    """Yield the patterns of a Listing; ``routed`` if their replicas carry exactly the rates that it names."""
    for row in range(len(listing.rps)):
        left_rps, kept = [math.inf if problem.fills else group.asked_rps for group in problem.groups], []
        for one, rate in sorted(zip(*listing.rated(row), strict=True), key=lambda pair: -pair[1]):
            if left_rps[one.group] > 0:  # replicas beyond the rate are left out, which slows nobody down
                left_rps[one.group] -= rate
                kept.append(PatternReplica(problem.groups[one.group].members[0], one.run.model, one.run.batch,
                                           one.run.processes, one.run.sm_share, rate if routed else rate / GENEROUS,
                                           one.run.turn))
        yield SlicePattern(tuple(kept), sum(one.capacity_rps for one in kept), routed)


def _running(instance: Instance, slice_type: SliceType, start: Plan | None) -> Iterator[SlicePattern]:
    """Yield the patterns of the shared slices of a plan, at the rates that they carry there."""
    index = {one.name: w for w, one in enumerate(instance.workloads)}
    for gpu in start.gpus if start is not None else ():
        for piece in gpu.slices:
            if (gpu.gpu == instance.fleet[slice_type.entry].gpu and piece.profile == slice_type.profile
                    and len(piece.replicas) > 1):
                yield SlicePattern(tuple(
                    PatternReplica(index[one.workload], instance.workloads[index[one.workload]].models.index(
                        instance.model_of(one)), one.batch, one.processes, one.sm_share, one.rate_rps, one.turn)
                    for one in piece.replicas), sum(one.rate_rps for one in piece.replicas), routed=True)


def _stated(instance: Instance, slice_type: SliceType, data: PerformanceFile) -> list[Open]:
    """The relaxation of a slice by its time: each request takes at least the least time of any batch; none where the
    time of a request is not stated.

    Closed networks: a batch of f requests has the slice time S(f), a replica of batch size b and p of the slice's P
    processes fills its batches to f <= b. If the slice is busy for a fraction U < 1 of the time, U is the sum of rate *
    S(f) / f over the replicas; if it is always busy, every replica's rate is below 1000 p b / (P S(b)). In both cases
    the sum with the least S(f) / f over f <= b is at most 1. The latency of a batch is at least Z + S(b), with one more
    process that launches kernels.

    Turns: on a part with the share s of a GPU, a request in a batch of b takes the time t(b, s) / b of the part or
    more. The parts' shares add up to 1, so the sum of rate * s * t(b, s) / b is at most 1.
    """
    time, most = np.full(len(instance.workloads), np.inf), np.zeros(len(instance.workloads))
    for w, least_ms, carried_rps in _least(instance, slice_type, data):
        planned = instance.planned_rps(instance.workloads[w])
        per_rps = planned if instance.objective != THROUGHPUT or planned else 1.0
        time[w] = min(time[w], per_rps * least_ms / 1000)
        most[w] = max(most[w], carried_rps / planned if planned else 1.0)
    known = isinstance(data, FittedNetworks | Gpulets)
    return [Open(time, most, clients_of(instance.fleet[slice_type.entry], slice_type.profile))] if known else []


def _by_levels(instance: Instance, slice_type: SliceType) -> list[Open]:
    """The relaxations of a slice that closed networks share, one for each level of utilisation; none where these are
    not known (see `provision.formulations.pricing.shared_mig.relaxed`).
    """
    files = [data for data in instance.performance if data.gpu == instance.fleet[slice_type.entry].gpu]
    shared = [data for data in files if isinstance(data, FittedNetworks)]
    if (len(shared) != 1 or any(not data.measured and data not in shared for data in files)
            or instance.objective == THROUGHPUT or instance.policy.rule.random_arrivals
            or any(workload.variants for workload in instance.workloads)):
        return []
    planned = np.array([instance.planned_rps(one) for one in instance.workloads])
    segments = best_segments(instance)
    table = relaxed(instance, segments)
    k = segments.slice_types.index(slice_type)
    found = []
    for at, level in enumerate(LEVELS):
        rps, busy = table.rps[:, k, at], table.busy[:, k, at]
        time = np.where(rps > 0, busy * planned / (level.use * GENEROUS), np.inf)
        most = np.divide(rps * GENEROUS, planned, out=np.ones(len(rps)), where=planned > 0)
        found.append(Open(time, most, clients(instance, slice_type, level), by_process=True))
    return [one for one in found if np.isfinite(one.time).any()]


def _least(instance: Instance, slice_type: SliceType, data: PerformanceFile
           ) -> Iterator[tuple[int, float, float]]:
    """Yield for workloads the least time of a request on the slice (ms), and the most requests/s of one replica."""
    entry = instance.fleet[slice_type.entry]
    clients, compute = clients_of(entry, slice_type.profile), entry.type.slice_compute(slice_type.profile)
    for w, workload in enumerate(instance.workloads):
        for model in (name for name in workload.models if name in data.models):
            if isinstance(data, Gpulets) and slice_type.profile == WHOLE:
                one = data.models[model]
                for share in {share for split in data.splits for share in split}:
                    for batch in data.batches:
                        each_ms = one.execution_ms(batch, share, data.scaling) / batch
                        yield w, share * each_ms, 1000 / each_ms
            elif isinstance(data, FittedNetworks):
                points, network = data.operating_points(model, slice_type.profile), data.models[model].coefficients
                for batch, processes in zip(points.batch.tolist(), points.processes.tolist(), strict=True):
                    batch_ms = (network.exposed_host_ms(batch, processes + 1, compute)
                                + network.gpu_ms(batch, compute))
                    if processes < clients and batch_ms <= instance.budget_ms(workload) * (1 + TOLERANCE):
                        least_ms = min(network.gpu_ms(filled, compute) / filled for filled in range(1, batch + 1))
                        yield w, least_ms, 1000 * processes * batch / batch_ms
