"""The search model of an instance: pools of GPUs, groups of equal workloads, roles, and slice types that can be shared.

It is built once from an instance. Prices are whole multiples of a common ``unit``, so that sums are exact.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provision.formulations.search.segments import Partitions, Pool, Segments, best_segments, pools_of, prices_of
from provision.models.base.tolerances import DUST, FORGIVEN
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

FULL = 1 - DUST
"""Plans use a replica up to this fraction of its highest rate; the rest leaves room for rounding."""
ENDLESS = 10**6
"""A number of replicas that stands for no limit."""
IDLE_RPS = 1e-6
"""Requests/s that a workload without requests is planned for, so that it keeps a replica."""
STEP = 1.08
"""The ratio between successive rates."""


class Role(NamedTuple):
    """The task of a replica on a shared slice: to serve a workload with these models and this SLO, at a rate.

    A replica may have the role if it can carry ``rate_rps`` requests/s. It has the role in bounds if its rate is at
    least ``rate_rps`` and below ``upto_rps``. A plan credits the role with ``rate_rps``, a bound with ``upto_rps``.
    """

    models: tuple[str, ...]
    slo_ms: float
    rate_rps: float
    upto_rps: float

    @property
    def workload_class(self) -> tuple[tuple[str, ...], float]:
        """Models and SLO (ms). Workloads of one class can take each other's places at equal rates."""
        return self.models, self.slo_ms


class Group(NamedTuple):
    """Workloads that are equal in everything that matters to planning; ``members`` are their indices.

    Each has the rate ``rate_rps``, between ``least`` and ``most`` replicas, and at most ``cap_rps`` of its rate
    on one GPU.
    """

    models: tuple[str, ...]
    slo_ms: float
    rate_rps: float
    least: int
    most: float
    cap_rps: float
    members: tuple[int, ...]

    @property
    def workload_class(self) -> tuple[tuple[str, ...], float]:
        """The models and the SLO (ms)."""
        return self.models, self.slo_ms

    @property
    def asked_rps(self) -> float:
        """Requests/s that each workload is planned for: above 0 also when it has none."""
        return max(self.rate_rps, IDLE_RPS)


@dataclass(frozen=True)
class Shareable:
    """A slice type that replicas may share (by index), and the performance data that describes how."""

    slice_type: int
    data: PerformanceFile


class Problem:
    """An instance in the form that methods use.

    Parameters
    ----------
    instance
        The problem. Each workload must be served by some slice of the fleet.
    groups
        The groups of its workloads; by default those of `groups_of`.
    relaxed_problem
        Whether a group of different workloads is treated as its easiest workload (for bounds), not as its hardest.

    Attributes
    ----------
    segments
        Each workload's best operating point alone on every slice type.
    single_rps
        (groups, slice types) requests/s of a replica that is alone on a slice.
    """

    def __init__(self, instance: Instance, groups: Sequence[Group] | None = None, relaxed_problem: bool = False
                 ) -> None:
        self.instance = instance
        self.segments: Segments = best_segments(instance)
        self.groups = tuple(groups if groups is not None else groups_of(instance))
        choose = np.max if relaxed_problem else np.min
        self.single_rps = np.array([choose(self.segments.throughput_rps[list(group.members)], axis=0)
                                    for group in self.groups]).reshape(len(self.groups), len(self.segments.slice_types))
        self.unit, prices = prices_of(instance)
        self.pools = pools_of(instance, self.segments, prices, self.most_gpus)
        self.dearest = max(prices) or 1
        self.shareable = tuple(_shareable(instance, self.segments, self.pools))

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of all pools, pool after pool. Each partition has the first fleet entry of its pool."""
        entries = np.repeat([pool.entry for pool in self.pools], [len(pool.partitions) for pool in self.pools])
        return Partitions(entries.astype(int), np.concatenate([pool.partitions for pool in self.pools]))

    @cached_property
    def most_gpus(self) -> int:
        """An upper bound on the number of GPUs of every plan that has no idle GPUs."""
        return sum(len(group.members) * (group.least + least_replicas(group.rate_rps, float(least_rps)))
                   for group, least_rps in zip(self.groups, self._carried(_least), strict=True))

    @property
    def spread_over(self) -> int:
        """The least number of GPUs that a plan needs because workloads limit their share per GPU."""
        return max((math.ceil(group.rate_rps / group.cap_rps - FORGIVEN) for group in self.groups), default=0)

    def _carried(self, choose: Callable[[NDArray[np.float64]], float]) -> list[float]:
        """(groups,) the requests/s of a replica that has a slice to itself, at most ``cap_rps``.

        ``choose`` takes one of the values of all slice types: the least or the most.
        """
        return [min(choose(row), group.cap_rps) for row, group in zip(self.single_rps, self.groups, strict=True)]

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """All roles of replicas on shared slices, `hardest_first`."""
        found = []
        for (models, slo_ms), groups in self.classes.items():
            least_rps, most_rps = self._shared_range(groups[0])
            if most_rps > 0:
                found += _roles_of(models, slo_ms, groups, least_rps, most_rps, self.fills)
        return tuple(sorted(found, key=hardest_first))

    @cached_property
    def position(self) -> dict[Group, int]:
        """The index of every group."""
        return {group: at for at, group in enumerate(self.groups)}

    @cached_property
    def classes(self) -> dict[tuple[tuple[str, ...], float], list[Group]]:
        """The groups of each workload class. Workloads of one class can take each other's places at equal rates."""
        found: dict[tuple[tuple[str, ...], float], list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.workload_class, []).append(group)
        return found

    @property
    def fills(self) -> bool:
        """Whether the objective counts what replicas could carry (max_throughput) rather than what GPUs cost."""
        return objective_of(self.instance).counts_capacity

    @property
    def single(self) -> bool:
        """Whether every workload has one replica."""
        return all(group.most == 1 for group in self.groups)

    def planned_rps(self, workload: int) -> float:
        """The rate to provide for a workload (by index), in requests/s, headroom included."""
        return self.instance.planned_rps(self.instance.workloads[workload])

    def objective(self, units: float) -> float:
        """The value of the objective for a number of price units."""
        return float(int(units) * self.unit) if math.isfinite(units) else units

    def cost(self, partitions: Sequence[NDArray[np.int64]]) -> int:
        """The price of GPUs in units; ``partitions`` are for each pool (partitions,) their numbers."""
        return sum(pool.cost(int(many.sum())) for pool, many in zip(self.pools, partitions, strict=True))

    def _shared_range(self, group: Group) -> tuple[float, float]:
        """The least and the most requests/s that a replica of a group's class carries on slices that can be shared.

        The least is the rate on the smallest share of a slice that keeps the SLO. Both are 0 if no slice can run the
        class.
        """
        at, smallest, most = self.position[group], math.inf, 0.0
        budget_ms = group.slo_ms * self.instance.policy.part_of_slo
        for one in self.shareable:
            slice_type = self.segments.slice_types[one.slice_type]
            for model in set(group.models) & set(one.data.models):
                points = self.instance.points_of(one.data, model, slice_type.profile)
                smallest = min(smallest, points.least_rps(budget_ms))
                most = max(most, float(self.single_rps[at, one.slice_type]))
        return (min(smallest, most) * FULL, most * FULL)

    @cached_property
    def copies(self) -> NDArray[np.int64]:
        """(roles,) the most replicas of each role on one slice."""
        if self.fills:
            return np.full(len(self.roles), ENDLESS)
        return np.array([_copies(role, self.classes[role.workload_class]) for role in self.roles], int)


def _least(rps: NDArray[np.float64]) -> float:
    """The least rate above 0; infinite if there is none."""
    return float(rps[rps > 0].min(initial=math.inf))


def _copies(role: Role, groups: Sequence[Group]) -> int:
    """The most replicas on one slice that may have a role, for the workloads of the given groups.

    The number is limited by the workloads' rates, and by what one GPU may carry of each workload.
    """
    if all(group.most == 1 for group in groups):
        return sum(len(group.members) for group in groups if group.rate_rps == role.rate_rps)
    if role.rate_rps == 0:
        return ENDLESS
    return sum(len(group.members) * math.floor(min(group.rate_rps, group.cap_rps) / role.rate_rps * (1 + FORGIVEN))
               for group in groups)


def groups_of(instance: Instance) -> list[Group]:
    """The groups of equal workloads of an instance, in the order of each group's first workload.

    Workloads that need no replica are in no group, unless the objective is max_throughput.
    """
    found: dict[tuple[Group, tuple[object, ...]], list[int]] = {}
    for index, one in enumerate(instance.workloads):
        planned = instance.planned_rps(one)
        share = one.max_share_per_gpu if planned > 0 else 1.0
        spread = math.ceil(1 / share - FORGIVEN) if share < 1 else int(planned > 0)
        least = max(one.min_replicas, spread)
        cap_rps = share * planned if share < 1 else math.inf
        alike = Group(one.models, one.slo_ms, planned, least, one.max_replicas or math.inf, cap_rps, members=())
        traffic = (*instance.policy.traffic_of(one), one.tokens, one.limits if one.tokens else None)
        found.setdefault((alike, traffic), []).append(index)
    kept = (
        (alike, members)
        for (alike, _), members in found.items()
        if alike.least > 0 or objective_of(instance).counts_capacity
    )
    return [alike._replace(members=tuple(members)) for alike, members in kept]


def _roles_of(models: tuple[str, ...], slo_ms: float, groups: Sequence[Group], least_rps: float, most_rps: float,
              fills: bool) -> list[Role]:
    """The roles of one workload class: one for each rate into which its workloads may be split.

    If workloads may not be split, only their whole rates have roles. If ``fills``, the objective counts the throughput
    of replicas, and rates go up to ``most_rps``.
    """
    rates = {group.rate_rps for group in groups} | ({most_rps} if fills else set())
    if all(group.most == 1 for group in groups) and not fills:
        return [Role(models, slo_ms, rate, rate) for rate in sorted(rates)]
    parts = [0.0, *split_rates(rates, least_rps, most_rps)]
    parts += [group.rate_rps / max(group.least, least_replicas(group.rate_rps, most_rps)) for group in groups]
    parts += [group.cap_rps for group in groups if group.cap_rps < most_rps]
    parts = sorted(set(parts))
    return [Role(models, slo_ms, rate, upto) for rate, upto in zip(parts, [*parts[1:], max(most_rps, parts[-1])],
                                                                   strict=True)]


def _shareable(instance: Instance, segments: Segments, pools: Sequence[Pool]) -> list[Shareable]:
    """The slice types that replicas may share, each with the performance data that describes how."""
    found = []
    for pool in pools:
        entry = instance.fleet[pool.entry]
        files = instance.sharing_files(entry.gpu) if entry.mps else ()
        found += [Shareable(slice_type, data) for slice_type in pool.slice_types for data in files]
    return found


def hardest_first(role: Role) -> tuple[tuple[str, ...], float, float]:
    """Sort key for roles: harder ones come first, so that a role can never serve a role before it."""
    return role.models, role.slo_ms, -role.rate_rps


def split_rates(rates_rps: Iterable[float], least_rps: float, most_rps: float) -> list[float]:
    """The rates, in requests/s and ascending, for which roles are made if workloads may be split.

    Every planned rate is among them, so that a workload can be served whole by one replica. The rate that the smallest
    replica carries is among them too, so that small replicas are not credited with more than that.

    Parameters
    ----------
    rates_rps
        The planned rates of the workloads of one class, in requests/s.
    least_rps, most_rps
        What one replica of the class carries on the smallest part of a slice, and the most it carries on any slice, in
        requests/s.
    """
    whole = sorted({rate for rate in rates_rps if rate > 0})
    if not whole:
        return []
    parts = {min(rate, most_rps) for rate in whole} | {rate / least_replicas(rate, most_rps) for rate in whole}
    parts |= {part / many for part in list(parts) for many in (2, 3, 4)}
    low, top = min(least_rps, whole[0]), max(parts)
    parts |= {low * STEP**at for at in range(math.floor(math.log(top / low) / math.log(STEP)) + 1)}
    return sorted(part for part in parts if part <= most_rps)


def least_replicas(rate_rps: float, most_rps: float) -> int:
    """The least number of replicas that carry a rate if each carries at most ``most_rps``."""
    return max(1, math.ceil(rate_rps / most_rps * (1 - DUST)))


def in_parts(problem: Problem) -> list[Group]:
    """Divide the workloads of groups into parts, and return groups of parts with one replica each.

    A workload that is divided into n parts is n members of its group. Workloads of which a GPU may carry only a part
    stay as they are: nothing would keep their parts on different GPUs.
    """
    most_rps, found = _part_rps(problem), list[Group]()
    for group in problem.groups:
        if group.cap_rps < group.rate_rps:
            found.append(group)
            continue
        for member in group.members:
            needed = math.ceil(group.rate_rps / most_rps[member] * (1 - DUST)) if most_rps[member] > 0 else 1
            pieces = int(min(max(needed, group.least, 1), group.most))
            found.append(group._replace(rate_rps=group.rate_rps / pieces, least=1, most=1, members=(member,) * pieces))
    alike: dict[Group, list[int]] = {}
    for group in found:
        alike.setdefault(group._replace(members=()), []).extend(group.members)
    return [group._replace(members=tuple(members)) for group, members in alike.items()]


def _part_rps(problem: Problem) -> NDArray[np.float64]:
    """(workloads,), the rate (requests/s) up to which one replica alone on a slice carries a workload; 0 if none does.

    If max_replicas is set, it is the rate on the fastest slice type. Otherwise it is the rate on the slice type with
    the least price per request/s, if possible among GPUs without a limited count.
    """
    instance, segments = problem.instance, problem.segments
    if not segments.slice_types:
        return np.zeros(len(instance.workloads))
    rps, entries = segments.throughput_rps, [instance.fleet[slice_type.entry] for slice_type in segments.slice_types]
    price = np.array([objective_of(instance).weight(entry) for entry in entries])
    cost = np.divide(price, rps, out=np.full_like(rps, np.inf), where=rps > 0)
    endless = np.where([entry.count is None for entry in entries], cost, np.inf)
    chosen = np.where(np.isfinite(endless).any(axis=1), endless.argmin(axis=1), cost.argmin(axis=1))
    free = [one.max_replicas is None for one in instance.workloads]
    return np.where(free, rps[np.arange(len(rps)), chosen], rps.max(axis=1))
