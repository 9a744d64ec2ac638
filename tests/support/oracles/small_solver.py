"""A small provision: what the product computes, in the plainest way, for instances of a few workloads.

1. List every way to cut a GPU of each type into slices.
2. List every pattern of each slice type: replicas that keep their SLOs on one slice together, with the requests/s that
   each of them can carry.
3. List every way to fill a GPU: a cut, and a pattern or nothing in each slice.
4. Choose how many GPUs are filled in which way, by one integer program.
5. Turn the numbers into a plan: slices get their places, replicas their part of the traffic.

Since the program has every way to fill a GPU, its optimum is the least cost (or the most throughput) of all plans, and
so a bound as well. Nothing here is fast: a few workloads and operating points are enough to fill the program. What a
replica does beside others is asked of the performance models alone, as the verifier asks them.

Replicas may have a slice to themselves or share it: under interference, in turns, or as closed networks. Two things
limit what is listed, and then there is a plan but no bound: a slice has at most ``MOST_REPLICAS`` replicas; and where
batch times depend on the traffic of neighbours (closed networks under ``half_slo``), replicas carry the parts
``STEPS`` of a workload's rate. Policies about the plan as a whole (``survive``, ``even_replicas``, workflows) and
language models are refused.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.models.hardware.gpu import WHOLE
from provision.models.performance.operating_points import PerformanceData
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.prediction import carried_rps, predict_slice
from provision.models.problem.workload import FleetEntry

SURE = 1e-9
"""The relative difference between a rate and what replicas carry that rounding may cause."""
MOST_REPLICAS = 4
"""The most replicas on a slice."""
STEPS = (0.5, 1.0)
"""The parts of a workload's rate that a replica is tried at where neighbours slow each other by their traffic."""
KINDS = ("measured-segments", "igniter", "colocation", "gpulets", "closed-network")
"""The kinds of performance data that are known here."""
NAME = "small"

SliceType = tuple[int, str]
"""The fleet entry of the GPU, and the MIG profile (or ``whole``)."""


@dataclass(frozen=True)
class Pattern:
    """Replicas on one slice, and the requests/s that each can carry."""

    slice_type: SliceType
    replicas: tuple[Replica, ...]
    rps: tuple[float, ...]


@dataclass(frozen=True)
class Filling:
    """A GPU: its fleet entry, the profiles of its slices, and the pattern in each slice, if any."""

    entry: int
    cut: tuple[str, ...]
    patterns: tuple[Pattern | None, ...]


@dataclass(frozen=True)
class Answer:
    """The best value of all plans that are listed, and a plan that attains it; both None if there is none.

    ``exact`` tells whether these are all plans, so that the value is a bound, and None means that there is no plan.
    """

    value: float | None
    plan: Plan | None
    exact: bool


def solve(instance: Instance) -> Answer:
    """Plan an instance optimally.

    Raises
    ------
    ValueError
        If the instance asks for what this solver does not know.
    """
    check(instance)
    fillings, exact = list[Filling](), True
    for at, entry in enumerate(instance.fleet):
        cuts, patterns = partitions_of(entry), dict[str, list[Pattern]]()
        for profile in {profile for cut in cuts for profile in cut}:
            listed, all_of_them = patterns_of(instance, (at, profile))
            exact = exact and all_of_them
            patterns[profile] = [one for [one] in _unbeaten(instance, [(one,) for one in listed], 1.0)]
        for cut in cuts:
            fillings += [Filling(at, cut, one) for one in _filled(instance, [patterns[profile] for profile in cut])]
    numbers = _program(instance, fillings)
    if numbers is None:
        return Answer(None, None, exact)
    chosen = [one for one, many in zip(fillings, numbers.tolist(), strict=True) for _ in range(many)]
    plan = _plan(instance, chosen)
    return Answer(float(objective_of(instance).value(plan)), plan, exact)


def optimum(instance: Instance) -> float | None:
    """The best value of all plans; None if there is none. The instance must be one whose plans are all listed."""
    answer = solve(instance)
    assert answer.exact
    return answer.value


def check(instance: Instance) -> None:
    """Refuse an instance with what this solver does not know, by a ValueError."""
    policy = instance.policy
    if policy.survive or policy.even_replicas or instance.workflows or any(one.tokens for one in instance.workloads):
        raise ValueError("the small solver knows no losses, even replicas, workflows and language models")
    if any(data.kind not in KINDS for data in instance.performance):
        raise ValueError(f"the small solver knows performance data of the kinds {', '.join(KINDS)}")


# 1. Cuts


def partitions_of(entry: FleetEntry) -> list[tuple[str, ...]]:
    """Every way to cut a GPU, as the sorted profiles of its slices. Cuts to which a slice can be added are left out."""
    if not entry.partitioned:
        return [(WHOLE,)]
    cuts = {tuple(sorted(profile for profile, _ in placed)) for placed in _placements(entry, 0)}
    return sorted(cut for cut in cuts if cut and not any(_more(other, cut) for other in cuts))


def _placements(entry: FleetEntry, start: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield every placement of slices, as (profile, start), on the memory slices from ``start`` on."""
    yield ()
    for at in range(start, entry.type.mig.memory_slices):
        for profile in entry.type.profiles.values():
            if profile.variant == "plain" and at in profile.starts:
                for rest in _placements(entry, at + profile.memory):
                    yield ((profile.name, at), *rest)


def _more(larger: tuple[str, ...], cut: tuple[str, ...]) -> bool:
    """Whether a cut has all slices of another one and further ones."""
    return larger != cut and not Counter(cut) - Counter(larger)


# 2. Patterns


def patterns_of(instance: Instance, slice_type: SliceType) -> tuple[list[Pattern], bool]:
    """Every pattern of a slice type, as far as they are listed, and whether these are all.

    A neighbour never speeds a replica up. So two replicas or more are only joined by a further one if they keep their
    SLOs. A single replica may break its SLO: other data may describe it when it is alone.
    """
    entry, profile = instance.fleet[slice_type[0]], slice_type[1]
    single = [replica for data in instance.performance if data.gpu == entry.gpu
              for replica in _replicas(instance, entry, profile, data)]
    found, grown, exact = list[Pattern](), [((), 0)], True
    while grown:
        replicas, first = grown.pop()
        for at in range(first, len(single)):
            larger = (*replicas, single[at])
            if not _may_stand(instance, entry, profile, larger):
                continue
            loads, depend = _loads(instance, entry, larger)
            listed = [Pattern(slice_type, load, rps) for load in loads
                      if (rps := _carried(instance, entry, profile, load, depend))]
            found, exact = found + listed, exact and not depend
            if len(larger) > 1 and not listed:
                continue
            if len(larger) < MOST_REPLICAS:
                grown.append((larger, at))
            elif any(_may_stand(instance, entry, profile, (*larger, one)) for one in single[at:]):
                exact = False
    return found, exact


def _replicas(instance: Instance, entry: FleetEntry, profile: str, data: PerformanceData) -> Iterator[Replica]:
    """Yield a replica, without traffic, for every workload, operating point of its data, and turn."""
    for workload in instance.workloads:
        for model in workload.models:
            if model not in data.models:
                continue
            points = data.operating_points(model, profile)
            shares = np.broadcast_to(points.sm_share, points.batch.shape)
            places = {(part, share) for split in data.splits for part, share in enumerate(sorted(split))} \
                if data.turns else {(None, None)}
            for (batch, processes, share), (turn, part) in itertools.product(
                    zip(points.batch, points.processes, shares, strict=True), sorted(places)):
                yield Replica(workload=workload.name, batch=int(batch), processes=int(processes), turn=turn,
                              sm_share=float(share if part is None else part), rate_rps=0.0,
                              model=None if model == workload.model else model)


def _may_stand(instance: Instance, entry: FleetEntry, profile: str, replicas: tuple[Replica, ...]) -> bool:
    """Whether replicas may be on one slice as to their number, MPS clients, SM shares and data."""
    limits = {name: instance.workload[name].max_replicas for name in {one.workload for one in replicas}}
    number = Counter(one.workload for one in replicas)
    if any(most is not None and number[name] > most for name, most in limits.items()):
        return False
    if sum(one.processes for one in replicas) > (entry.type.slice_mps_clients(profile) if entry.mps else 1):
        return False
    models = [instance.model_of(one) for one in replicas]
    data = instance.sharing_of(entry.gpu, models)
    if len(replicas) > 1 and data is None:
        return False
    divided = any(one.divides_sms for one in instance.performance if one.gpu == entry.gpu)
    shares = sum(Slice(profile=profile, replicas=replicas).held_shares)
    return not divided or ((entry.mps or shares > 1 - SURE) and shares <= 1 + SURE)


def _loads(instance: Instance, entry: FleetEntry, replicas: tuple[Replica, ...]) \
        -> tuple[Iterable[tuple[Replica, ...]], bool]:
    """The replicas with every traffic that is tried, and whether it slows their neighbours. If it does not, they are
    tried without traffic, and carry the most they can.
    """
    data = instance.sharing_of(entry.gpu, [instance.model_of(one) for one in replicas])
    depend = len(replicas) > 1 and data.kind == "closed-network" \
        and instance.objective != THROUGHPUT and not instance.policy.rule.random_arrivals
    if not depend:
        return [replicas], False
    rates = [{step * instance.planned_rps(instance.workload[one.workload]) for step in STEPS} for one in replicas]
    return [tuple(one.model_copy(update={"rate_rps": rate}) for one, rate in zip(replicas, chosen, strict=True))
            for chosen in itertools.product(*map(sorted, rates))], True


def _carried(instance: Instance, entry: FleetEntry, profile: str, replicas: tuple[Replica, ...], depend: bool) \
        -> tuple[float, ...]:
    """The requests/s that replicas carry together on one slice: the most they can, or their traffic if it slows their
    neighbours (``depend``); empty if one of them cannot keep its SLO.
    """
    told, rps = predict_slice(instance, entry.gpu, Slice(profile=profile, replicas=replicas)), list[float]()
    for replica, prediction in zip(replicas, told, strict=True):
        budget_ms = instance.budget_ms(instance.workload[replica.workload])
        if prediction is None or prediction.latency_ms > budget_ms * (1 + SURE):
            return ()
        most = carried_rps(instance, replica, prediction)
        if most <= 0 or replica.rate_rps > most:
            return ()
        rps.append(replica.rate_rps if depend else most)
    memory_gib = sum(one.memory_gib or 0.0 for one in told if one)
    return tuple(rps) if memory_gib <= entry.type.slice_memory_gib(profile) else ()


# 3. Fillings


def _filled(instance: Instance, slices: list[list[Pattern]]) -> list[tuple[Pattern | None, ...]]:
    """Every choice of a pattern or nothing for each slice of a GPU, without those that another is as good as.

    More of a workload than ``max_share_per_gpu`` of its rate does not count.
    """
    found: list[tuple[Pattern | None, ...]] = [()]
    for at, patterns in enumerate(slices):
        larger = [(*one, pattern) for one in found for pattern in (None, *patterns)]
        found = _unbeaten(instance, larger, None if at == len(slices) - 1 else 1.0)
    return found


def _counted(instance: Instance, patterns: tuple[Pattern | None, ...], share: float | None = None) \
        -> NDArray[np.float64]:
    """(2 workloads + 1,) what patterns on one GPU do: the part of each workload's rate that they carry, at most
    ``share`` or its max_share_per_gpu; the number of its replicas; and the requests/s that all replicas can carry.
    """
    row = {one.name: at for at, one in enumerate(instance.workloads)}
    rps, replicas = np.zeros(len(row)), np.zeros(len(row))
    for pattern in patterns:
        for replica, carried in zip(pattern.replicas, pattern.rps, strict=True) if pattern else ():
            rps[row[replica.workload]] += carried
            replicas[row[replica.workload]] += 1
    planned = np.array([instance.planned_rps(one) for one in instance.workloads])
    most = [one.max_share_per_gpu if share is None else share for one in instance.workloads]
    parts = np.where(planned > 0, np.minimum(rps / np.where(planned > 0, planned, 1), most), 1)
    return np.concatenate([parts, replicas, [rps.sum()]])


def _unbeaten(instance: Instance, several: list, share: float | None) -> list:
    """Those of several tuples of patterns that no other one is as good as: it carries as much of every workload, has
    the replicas that are asked for, no more where they are limited, and as much throughput if that is the objective.
    """
    counted = np.array([_counted(instance, one, share) for one in several]).reshape(-1, 2 * len(instance.workloads) + 1)
    width = len(instance.workloads)
    parts, replicas, rps = counted[:, :width], counted[:, width:-1], counted[:, -1:]
    limited = [one.max_replicas is not None for one in instance.workloads]
    good = [parts, np.minimum(replicas, [one.min_replicas for one in instance.workloads]), -replicas[:, limited]]
    goods = np.round(np.hstack([*good, rps] if instance.objective == THROUGHPUT else good), 11)
    _, first = np.unique(goods, axis=0, return_index=True)
    left, kept = first[np.argsort(-goods[first].sum(axis=1), kind="stable")], list[int]()
    while len(left):
        kept.append(left[0])
        left = left[~(goods[left[0]] >= goods[left]).all(axis=1)]
    return [several[at] for at in kept]


# 4. The program


def _program(instance: Instance, fillings: list[Filling]) -> NDArray[np.int64] | None:
    """The best numbers of GPUs filled in each way; None if there are none.

        rates      parts of a workload's rate that GPUs carry  >=  1
        replicas   min_replicas  <=  replicas of a workload  <=  max_replicas
        fleet      GPUs of an entry  <=  its count
    """
    if not fillings:
        return None
    counted = np.array([_counted(instance, one.patterns) for one in fillings]).T
    width, entries = len(instance.workloads), np.array([one.entry for one in fillings])
    rows = [(counted[at], 1 - SURE, np.inf) for at, one in enumerate(instance.workloads) if instance.planned_rps(one)]
    rows += [(counted[width + at], one.min_replicas, np.inf if one.max_replicas is None else one.max_replicas)
             for at, one in enumerate(instance.workloads)]
    rows += [(entries == at, 0, one.count) for at, one in enumerate(instance.fleet) if one.count is not None]
    weights = np.array([objective_of(instance).weight(one) for one in instance.fleet])
    cost = -counted[-1] if instance.objective == THROUGHPUT else weights[entries]
    matrix, least, most = (np.array(one, float) for one in zip(*rows, strict=True))
    found = milp(cost, integrality=np.ones(len(cost)), bounds=Bounds(0, np.inf),
                 constraints=LinearConstraint(matrix, least, most), options={"mip_rel_gap": 0.0})
    return None if found.x is None else np.rint(found.x).astype(int)


# 5. The plan


def _plan(instance: Instance, chosen: list[Filling]) -> Plan:
    """The plan of some GPUs. A workload's rate is divided among its GPUs in proportion to what counts there, and on a
    GPU in proportion to what replicas can carry. Slices without a pattern stay empty, and GPUs without one are left
    out.
    """
    width = len(instance.workloads)
    parts = np.array([_counted(instance, one.patterns)[:width] for one in chosen]).reshape(-1, width)
    gpus = list[PlannedGpu]()
    for filling, part in zip(chosen, parts / parts.sum(axis=0, initial=0).clip(SURE), strict=True):
        carried = defaultdict[str, float](float)
        for pattern in filter(None, filling.patterns):
            for replica, rps in zip(pattern.replicas, pattern.rps, strict=True):
                carried[replica.workload] += rps
        routed = {one.name: instance.planned_rps(one) * part[at] / max(carried[one.name], SURE)
                  for at, one in enumerate(instance.workloads)}
        waiting = defaultdict[str, list[Pattern]](list)
        for profile, pattern in zip(filling.cut, filling.patterns, strict=True):
            waiting[profile] += [pattern] if pattern else []
        entry, slices = instance.fleet[filling.entry], list[Slice]()
        for profile, start in _placed(entry, filling.cut):
            if waiting[profile]:
                pattern = waiting[profile].pop()
                slices.append(Slice(profile=profile, start=start, replicas=tuple(
                    one.model_copy(update={"rate_rps": routed[one.workload] * rps})
                    for one, rps in zip(pattern.replicas, pattern.rps, strict=True))))
        if slices:
            gpus.append(PlannedGpu(gpu=entry.gpu, mig=entry.partitioned, slices=tuple(slices)))
    return instance.plan_of(NAME, gpus)


def _placed(entry: FleetEntry, cut: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """A placement of the slices of a cut, as (profile, start)."""
    if not entry.partitioned:
        return ((WHOLE, 0),)
    return next(placed for placed in _placements(entry, 0) if tuple(sorted(profile for profile, _ in placed)) == cut)
