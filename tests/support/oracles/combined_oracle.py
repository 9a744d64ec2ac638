"""Brute force for tiny instances over all combinations of options, through the scalar path of the models alone.

Every way to fill every GPU is listed. What replicas carry is exact: any rate up to their capacity, but on slices that
closed networks share, where only pairs are tried and rates on a grid (or busy always, where throughput counts), so that
there the value is that of a plan and no optimum.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray
from oracle import fillings

from provision.models.hardware.gpu import WHOLE
from provision.models.performance.operating_points import Member, PerformanceData, Prediction
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry, Workload

ROUNDING = 1e-9
STEPS = (0.5, 1.0)
"""Parts of a rate that a replica on a slice shared by closed networks is tried at."""
Way = tuple[int, str, int, int, float]
"""Workload, model, batch, processes and SM share of a replica."""
States = NDArray[np.float64]
"""(states, 2 workloads + 1): parts of the rates, replicas, and requests/s that all replicas could carry."""


def best_combined(instance: Instance, most_gpus: int) -> float | None:
    """The best objective of all plans with at most so many GPUs, all on grids where slices are shared; None if none."""
    work = _Work(instance)
    gives = [work.of_gpu(entry) for entry in instance.fleet]
    if instance.objective == "max_throughput":
        reached = work.reached(gives, [entry.count or 0 for entry in instance.fleet])
        served = reached[work.serves(reached)]
        return float(served[:, -1].max()) if len(served) else None
    most = [most_gpus if one.count is None else min(one.count, most_gpus) for one in instance.fleet]
    numbers = [many for many in itertools.product(*(range(one + 1) for one in most)) if sum(many) <= most_gpus]
    value = {
        many: sum(n * objective_of(instance).weight(e) for n, e in zip(many, instance.fleet, strict=True))
        for many in numbers
    }
    for many in sorted(numbers, key=value.__getitem__):
        if work.serves(work.reached(gives, many)).any():
            return value[many]
    return None


def is_exact(instance: Instance) -> bool:
    """Whether no slice can be shared by closed networks, so that the oracle is exact."""
    return not (instance.policy.share_slices and any(data.kind == "closed-network" for data in instance.performance))


class _Work:
    """The states that slices, GPUs and fleets of an instance reach."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.workloads = instance, instance.workloads
        self.planned = np.array([instance.planned_rps(one) for one in self.workloads])
        self.width = len(self.workloads)

    def serves(self, states: States) -> NDArray[np.bool_]:
        """Which states carry all rates with replicas within their limits."""
        parts, many = states[:, : self.width], states[:, self.width : -1]
        needed = (self.planned > 0) * (1 - 4 * ROUNDING)
        least = np.array([one.min_replicas for one in self.workloads])
        most = np.array([math.inf if one.max_replicas is None else one.max_replicas for one in self.workloads])
        return (parts >= needed).all(axis=1) & (many >= least).all(axis=1) & (many <= most).all(axis=1)

    def reached(self, gives: list[States], numbers: Iterable[int]) -> States:
        """What so many GPUs of each entry reach together."""
        found = np.zeros((1, 2 * self.width + 1))
        for states, number in zip(gives, numbers, strict=True):
            for _ in range(number):
                found = self.both(found, states)
        return found

    def both(self, one: States, other: States) -> States:
        """The undominated sums of two lists of states, cut at what is asked for."""
        found = (one[:, None] + other[None]).reshape(-1, one.shape[1])
        found[:, : self.width] = np.minimum(found[:, : self.width], 1.0)
        return self._best(found)

    def _best(self, states: States) -> States:
        """States that no other is as good as: at least its parts, its throughput if that counts, as few replicas."""
        costs = -states.copy()
        for w, one in enumerate(self.workloads):
            many = states[:, self.width + w]
            if one.max_replicas is not None:
                states, costs = states[many <= one.max_replicas], costs[many <= one.max_replicas]
                many = states[:, self.width + w]
            costs[:, self.width + w] = -np.minimum(many, one.min_replicas)
            if one.max_replicas is not None:
                costs = np.column_stack([costs, many])
        if self.instance.objective != "max_throughput":
            costs[:, 2 * self.width] = 0
        costs = np.round(costs, 11)
        _, first = np.unique(costs, axis=0, return_index=True)
        left, kept = first[np.argsort(costs[first].sum(axis=1), kind="stable")], []
        while len(left):
            kept.append(left[0])
            left = left[~(costs[left[0]] <= costs[left]).all(axis=1)]
        return states[kept]

    def of_gpu(self, entry: FleetEntry) -> States:
        """What one GPU reaches; an empty one is a state too."""
        empty, found = np.zeros((1, 2 * self.width + 1)), [np.zeros((1, 2 * self.width + 1))]
        of_slice = cache(lambda profile: np.concatenate([empty, self._of_slice(entry, profile)]))
        for profiles in fillings(entry):
            reached = empty
            for profile in profiles:
                sums = (reached[:, None] + of_slice(profile)[None]).reshape(-1, empty.shape[1])
                reached = self._best(sums)
            found.append(reached)
        states = np.concatenate(found)
        share = np.array([one.max_share_per_gpu for one in self.workloads])
        states[:, : self.width] = np.minimum(states[:, : self.width], share)
        return self._best(states)

    def _of_slice(self, entry: FleetEntry, profile: str) -> States:
        listed = [*self._alone(entry, profile), *self._interfering(entry, profile), *self._networks(entry, profile)]
        return self._best(np.array(listed).reshape(-1, 2 * self.width + 1))

    def _state(self, ways: Iterable[Way], rates: Iterable[float], throughput_rps: float) -> list[float]:
        state = [0.0] * (2 * self.width) + [throughput_rps]
        for (w, *_), rate in zip(ways, rates, strict=True):
            state[w] += rate / self.planned[w] if self.planned[w] else 1.0
            state[self.width + w] += 1
        return state

    def _ways(self, entry: FleetEntry, profile: str, data: PerformanceData) -> list[Way]:
        """The operating points that data knows of all workloads on a slice that the entry allows."""
        clients, found = _clients(entry, profile), []
        for w, workload in enumerate(self.workloads):
            for model in workload.models:
                if model in data.models:
                    points = data.operating_points(model, profile)
                    shares = np.broadcast_to(points.sm_share, points.batch.shape)
                    found += [(w, model, int(b), int(p), float(s))
                              for b, p, s in zip(points.batch, points.processes, shares, strict=True)
                              if p <= clients and (entry.mps or s > 1 - data.hardware.unit_share / 2
                                                   if data.kind == "igniter" else True)]
        return found

    def _alone(self, entry: FleetEntry, profile: str) -> Iterator[list[float]]:
        for data in self.instance.performance:
            for way in self._ways(entry, profile, data) if data.gpu == entry.gpu else ():
                if self.instance.performance_of(entry.gpu, way[1]) is data:
                    [found] = data.predict(profile, [self._member(way)])
                    rate = _capacity_rps(self.instance, self.workloads[way[0]], way, found)
                    if rate > 0:
                        yield self._state([way], [rate], rate)

    def _interfering(self, entry: FleetEntry, profile: str) -> Iterator[list[float]]:
        """Sets of replicas on a whole GPU by iGniter's model; one that breaks is not enlarged."""
        for data in self.instance.performance:
            if profile == WHOLE and data.gpu == entry.gpu and data.kind == "igniter":
                ways = self._ways(entry, profile, data)
                yield from self._enlarged(entry, data, ways, (), 0)

    def _enlarged(self, entry: FleetEntry, data: PerformanceData, ways: list[Way], held: tuple[Way, ...], first: int) \
            -> Iterator[list[float]]:
        if len(held) == _clients(entry, WHOLE):
            return
        for at in range(first, len(ways)):
            chosen = (*held, ways[at])
            if sum(share for *_, share in chosen) > 1 + ROUNDING:
                continue
            found = data.predict(WHOLE, [self._member(way) for way in chosen])
            rates = [_capacity_rps(self.instance, self.workloads[way[0]], way, one)
                     for way, one in zip(chosen, found, strict=True)]
            if min(rates) > 0:
                if len(chosen) > 1 and self.instance.sharing_of(entry.gpu, [way[1] for way in chosen]) is data:
                    yield self._state(chosen, rates, sum(rates))
                yield from self._enlarged(entry, data, ways, chosen, at)

    def _networks(self, entry: FleetEntry, profile: str) -> Iterator[list[float]]:
        """Pairs of replicas on a slice shared by closed networks, at some rates."""
        files = [data for data in self.instance.performance if data.gpu == entry.gpu]
        if not self.instance.policy.share_slices or any(data.divides_sms for data in files):
            return
        for data in (one for one in files if one.kind == "closed-network"):
            for pair in itertools.combinations_with_replacement(self._ways(entry, profile, data), 2):
                if sum(way[3] for way in pair) > _clients(entry, profile):
                    continue
                if self.instance.objective == "max_throughput":
                    yield from self._saturated(entry, profile, data, pair)
                    continue
                for steps in itertools.product(STEPS, repeat=2):
                    rates = [self.planned[way[0]] * step for way, step in zip(pair, steps, strict=True)]
                    found = data.predict(profile, [self._member(way, rate)
                                                   for way, rate in zip(pair, rates, strict=True)])
                    if self._holds(entry, profile, pair, rates, found):
                        yield self._state(pair, rates, 0.0)

    def _member(self, way: Way, rate_rps: float = 0.0) -> Member:
        """A replica as the models see it."""
        policy = self.instance.policy
        return Member(*way[1:], rate_rps, fill_ms=policy.fill_ms(self.workloads[way[0]].slo_ms),
                      partly_filled=policy.rule.random_arrivals)

    def _saturated(self, entry: FleetEntry, profile: str, data: PerformanceData, pair: tuple[Way, ...]
                   ) -> Iterator[list[float]]:
        """The state of a pair that is always busy, where that holds."""
        found = data.predict(profile, [self._member(way, math.inf) for way in pair])
        rates = [_capacity_rps(self.instance, self.workloads[way[0]], way, one)
                 for way, one in zip(pair, found, strict=True)]
        held_gib = sum(one.memory_gib or 0 for one in found if one)
        if min(rates) > 0 and held_gib <= entry.type.slice_memory_gib(profile):
            yield self._state(pair, rates, sum(rates))

    def _holds(self, entry: FleetEntry, profile: str, pair: tuple[Way, ...], rates: list[float],
               found: list[Prediction | None]) -> bool:
        held_gib = sum(one.memory_gib or 0 for one in found if one)
        shares = {way[0]: self.workloads[way[0]].max_share_per_gpu for way in pair}
        carried = [_capacity_rps(self.instance, self.workloads[way[0]], way, one)
                   for way, one in zip(pair, found, strict=True)]
        return (held_gib <= entry.type.slice_memory_gib(profile) and min(carried) > 0
                and all(rate <= most for rate, most in zip(rates, carried, strict=True))
                and all(shares[way[0]] == 1 for way in pair))


def _clients(entry: FleetEntry, profile: str) -> int:
    return entry.type.slice_mps_clients(profile) if entry.mps else 1


def _capacity_rps(instance: Instance, workload: Workload, way: Way, found: Prediction | None) -> float:
    """Most that a replica may be routed, 0 where it breaks its SLO."""
    budget_ms = instance.budget_ms(workload)
    if found is None or found.latency_ms > budget_ms * (1 + ROUNDING):
        return 0.0
    return instance.policy.rule_for(workload).carried_rps(way[2], way[3], found, budget_ms * (1 + ROUNDING))
