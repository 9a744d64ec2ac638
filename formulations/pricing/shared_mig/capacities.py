"""Patterns of slices that closed networks share, for the objective max_throughput under rules without random arrivals.

With all processes busy, a batch takes Z + P S, with think time Z, slice time S and P processes on the slice. So the
rate of a replica depends only on P and on its own operating point, and for each P the best pattern is a knapsack over
processes. Memory is left out: the performance models refuse patterns that need too much.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from provision.formulations.pricing.oracle import Running
from provision.formulations.pricing.rates import (
    GENEROUS,
    GroupPrices,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.schedule import SCHEDULE as PRICING
from provision.formulations.pricing.shared_mig.schedule import SCHEDULE
from provision.formulations.search.problem import Group
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.closed_network import work_ms_array
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry


class NetworkCapacities(RateOracle):
    """The patterns of at least two processes on slices of one profile.

    Parameters
    ----------
    instance, entry, profile, data
        The problem, the fleet entry of the GPUs, the slices' profile, and the networks.
    groups
        The problem's groups.

    Attributes
    ----------
    rps
        (levels, groups, processes from 1) the highest requests/s of a replica; level 0 has two processes on the slice.
    model, batch
        The model (an index into the models of the group) and the batch size with which the replica carries it.
    """

    together = False

    def __init__(self, instance: Instance, entry: FleetEntry, profile: str, data: FittedNetworks,
                 groups: Sequence[Group]) -> None:
        memory_gib = entry.type.slice_memory_gib(profile) * GENEROUS
        least_gib = min(float(one.coefficients.memory_gib(1, 1)) for one in data.models.values())
        clients = max(min(entry.type.slice_mps_clients(profile), int(memory_gib / least_gib)), 1)
        levels, processes = np.arange(2, clients + 1)[:, None, None], np.arange(1, clients + 1)[:, None]
        shape = clients - 1, len(groups), clients
        self.rps, self.model, self.batch = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, int)
        for at, group in enumerate(groups):
            budget_ms = group.slo_ms * instance.policy.part_of_slo * GENEROUS
            for model, name in enumerate(group.models):
                if name not in data.models:
                    continue
                network = data.models[name].coefficients
                batch = np.array([size for size in data.batches if size <= network.max_batch])
                think_ms, slice_ms = work_ms_array(network, batch, levels, entry.type.slice_compute(profile))
                hold_ms = think_ms + levels * slice_ms
                rps = instance.shared_rule.capacity_rps(batch, processes, hold_ms, hold_ms, budget_ms)
                fits = (network.memory_gib(batch, processes) <= memory_gib) & (processes <= network.max_processes)
                rps = np.where(fits & (processes <= levels), rps, 0.0) * GENEROUS
                better = rps.max(axis=2) > self.rps[:, at]
                self.rps[:, at] = np.maximum(self.rps[:, at], rps.max(axis=2))
                self.model[:, at][better], self.batch[:, at][better] = model, batch[rps.argmax(axis=2)][better]

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``."""
        each = prices.of(self.rps.swapaxes(0, 1))
        group, best = each.argmax(axis=0), each.max(axis=0, initial=-np.inf)
        totals, taken = _knapsacks(best)
        most = totals[np.arange(len(totals)), np.arange(2, len(totals) + 2)]
        first = np.argsort(-most, kind="stable")[:PRICING.tried].tolist()
        tried = [level for level in first if most[level] > max(floor, 0.0)]
        found = [one for level in tried for one in self._rated(level, group[level], taken[level], each[:, level],
                                                               float(most[level]) - max(floor, 0.0))]
        return PricedRates(float(most.max(initial=0.0)), listing_of(list(dict.fromkeys(found)), len(prices.per_rps)))

    def _rated(self, level: int, group: Ints, taken: Ints, values: Floats, spare: float
               ) -> Iterator[RatedPattern]:
        """Yield the best pattern of a level; then those in which one replica is of another group, one of the
        ``SCHEDULE.mixed`` best there, if they lose less than ``spare``. Plans need such patterns, too.

        ``group`` (processes,) is the best group of a replica, ``taken`` a row of ``_knapsacks``, and ``values``
        (groups, processes) are the values of replicas.
        """
        sizes, left = list[int](), level + 2
        while left:
            size = int(taken[left])
            sizes += [size] * (size > 0)
            left -= size or 1
        groups = [int(group[size - 1]) for size in sizes]
        yield self._pattern(level, groups, sizes)
        for at, size in enumerate(sizes):
            for other in np.argsort(-values[:, size - 1], kind="stable")[:SCHEDULE.mixed].tolist():
                if other != groups[at] and values[groups[at], size - 1] - values[other, size - 1] < spare:
                    yield self._pattern(level, [*groups[:at], other, *groups[at + 1:]], sizes)

    def _pattern(self, level: int, groups: Sequence[int], sizes: Sequence[int]) -> RatedPattern:
        """The pattern of replicas of some groups with these numbers of processes."""
        places = [(level, group, size - 1) for group, size in zip(groups, sizes, strict=True)]
        members = [Member(at[1], Running(int(self.model[at]), int(self.batch[at]), at[2] + 1, 1.0)) for at in places]
        return RatedPattern(tuple(members), tuple(float(self.rps[at]) for at in places))


def _knapsacks(values: Floats) -> tuple[Floats, Ints]:
    """Two arrays (levels, processes from 0): the highest value of a pattern with at most so many processes, and the
    processes of the replica that was added last (0 for none). ``values`` (levels, processes from 1) are those of
    replicas.
    """
    levels, most = values.shape
    total, taken = np.zeros((levels, most + 1)), np.zeros((levels, most + 1), int)
    for used in range(1, most + 1):
        added = total[:, used - 1::-1] + values[:, :used]
        gained = np.concatenate([total[:, [used - 1]], added], axis=1)
        taken[:, used], total[:, used] = gained.argmax(axis=1), gained.max(axis=1)
    return total, taken
