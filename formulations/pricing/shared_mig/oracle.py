"""The way in which closed networks share slices: what greedy fills slices with (``settings``), and the patterns that
carry rates.

Under rules for random arrivals, where batch times are taken with all processes busy beside given neighbours, and for
the objective max_throughput, patterns are priced by a search (``rate_search``). Under other rules, the rates that a
slice carries depend on what is routed. Then, and for many workloads, there are only bounds, from the levels at which
slices are shared.
"""

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.linear.highs import Rows, solve_linear
from provision.formulations.pricing.oracle import Running, WayOfSharing
from provision.formulations.pricing.rates import (
    GENEROUS,
    GroupPrices,
    Listing,
    Member,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.formulations.pricing.schedule import NETWORKS
from provision.formulations.pricing.shared_mig.levels import BOUNDED, NOBODY, bounded_rates
from provision.formulations.pricing.shared_mig.rate_options import rate_options
from provision.formulations.pricing.shared_mig.rate_search import search
from provision.formulations.pricing.shared_mig.settings import network_settings
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType
from provision.models.base.arrays import Ints
from provision.models.base.clock import Deadline
from provision.models.performance.closed_network import network_hold_ms
from provision.models.performance.fitted_networks import FittedNetworks


def network_rates(problem: Problem, slice_type: SliceType, data: FittedNetworks, until: Deadline
                  ) -> RateOracle | None:
    """The RateOracle of a slice type, which is made quickly, so that the deadline is not read; None if the slice cannot
    be shared, or if the data knows no model of any workload.
    """
    entry, random_arrivals = problem.instance.fleet[slice_type.entry], problem.instance.shared_rule.random_arrivals
    known = any(name in data.models for group in problem.groups for name in group.models)
    if (not known or slice_type.profile not in data.profiles or not entry.mps
            or entry.type.slice_mps_clients(slice_type.profile) < 2):
        return None
    searched = problem.fills or (random_arrivals and len(problem.groups) <= NETWORKS.searched)
    return (NetworkPatterns if searched else NetworkBounds)(problem, slice_type, data)


class NetworkPatterns(RateOracle):
    """The patterns of at least two replicas on slices of one profile.

    Parameters
    ----------
    problem, slice_type, data
        The Problem, the slice type and the networks.
    """

    hardest = NETWORKS.hardest

    def __init__(self, problem: Problem, slice_type: SliceType, data: FittedNetworks) -> None:
        self.problem, self.rule = problem, problem.instance.shared_rule
        self.options = rate_options(problem.instance, data, slice_type.profile, problem.groups, problem.fills)
        self.budget_ms = np.array([group.slo_ms * problem.instance.policy.part_of_slo for group in problem.groups])

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. For least cost, the operating points have the limits of rates."""
        options = self.options
        if self.problem.fills:
            options = options._replace(most_rps=prices.cap_rps, total_rps=prices.cap_rps)
        prices = prices._replace(cap_rps=options.total_rps)
        members, most = search(options, prices, max(floor, 0.0), NETWORKS.nodes * NETWORKS.more**effort)
        rated = self._rated(members) if len(members) else None
        found = [] if rated is None or min(rated.rps) <= 0 else [rated]
        return PricedRates(most * GENEROUS, listing_of(found, len(prices.per_rps)))

    def _rated(self, members: Ints) -> RatedPattern:
        """A pattern with the highest rates of its replicas."""
        options = self.options
        processes, group = options.processes[members], options.group[members]
        think_ms = options.think_ms[members, processes.sum() - 1]
        hold_ms = network_hold_ms(think_ms, options.slice_ms[members], options.cycle_ms[members], processes)
        rps = self.rule.capacity_rps(options.batch[members], processes, hold_ms, hold_ms,
                                     self.budget_ms[group] * GENEROUS)
        counted = np.minimum(rps * GENEROUS, options.most_rps[group])
        return RatedPattern(tuple(
            Member(int(options.group[one]), Running(int(options.model[one]), int(options.batch[one]),
                                                    int(options.processes[one]), 1.0))
            for one in members.tolist()), tuple(counted.tolist()))


class NetworkBounds(RateOracle):
    """Bounds on the values of slices of one profile, as of ``shared_relaxation``: at every level, workloads divide the
    time and the processes of a slice freely. Its patterns only steer linear programs to better duals; no plan has them.

    The value of a level is that of a linear program. Its duals are prices of the slice's time and of a process, and any
    such prices bound the value.

    Parameters
    ----------
    problem, slice_type, data
        The Problem, the slice type and the networks.

    Attributes
    ----------
    level, group, widest
        (rows,) A row is a group of workloads with one of its models, at a level at which some batch is in time: the
        indices of its level and its group, and the most processes of a replica.
    needs
        (2, rows) the slice's time and the processes that a request/s takes.
    room
        (levels, 2) the time and the processes that a slice has.
    """

    coarse = True

    def __init__(self, problem: Problem, slice_type: SliceType, data: FittedNetworks) -> None:
        instance, groups, profile = problem.instance, problem.groups, slice_type.profile
        entry, levels = instance.fleet[slice_type.entry], NOBODY if instance.shared_rule.random_arrivals else BOUNDED
        clients = entry.type.slice_mps_clients(profile)
        rows = [(at, name) for at, group in enumerate(groups) for name in group.models if name in data.models]
        told = [bounded_rates(instance, instance.workloads[groups[at].members[0]], name, data, entry, profile,
                              levels) for at, name in rows]
        rps, busy = np.array(told).reshape(len(rows), 2, len(levels)).swapaxes(0, 1)
        self.asked_rps = np.array([len(one.members) * min(one.asked_rps, one.cap_rps) for one in groups]) * GENEROUS
        self.room = np.array([[one.use * GENEROUS, min(one.processes, clients)] for one in levels], float)
        row, self.level = (rps > 0).nonzero()
        self.needs = np.stack([busy[row, self.level], 1 / (rps[row, self.level] * GENEROUS)])
        self.group = np.array([at for at, _ in rows], int)[row]
        self.widest = np.array([min(data.models[name].coefficients.max_processes, clients) for _, name in rows])[row]

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. A negative bonus is paid once per replica, so each process bears 1 / ``widest``."""
        replicas = np.where(prices.bonus[self.group] > 0, 1.0, 1 / self.widest) * self.needs[1]
        gain, levels = prices.per_rps[self.group] + prices.bonus[self.group] * replicas, len(self.room)
        rows = np.concatenate([self.level, levels + self.level])
        taken = csr_array((-self.needs.ravel(), (rows, np.tile(np.arange(len(gain)), 2))), (2 * levels, len(gain)))
        found = solve_linear(Rows(-gain, taken, -self.room.T.ravel(), np.zeros(len(gain)), self.asked_rps[self.group]))
        x, duals = (np.zeros(len(gain)), np.zeros(2 * levels)) if found is None else (found.x, found.duals)
        time, process = duals.reshape(2, levels)
        process = np.maximum(process, prices.bonus.max(initial=0.0))  # else idle replicas were worth more
        over, rps, number = np.zeros((3, levels, len(prices.per_rps)))
        at = self.level, self.group
        np.maximum.at(over, at, gain - time[self.level] * self.needs[0] - process[self.level] * self.needs[1])
        most = (self.room * np.stack([time, process], axis=1)).sum(axis=1) + over @ self.asked_rps
        np.add.at(rps, at, x)
        np.add.at(number, at, x * replicas)
        patterns = Listing(rps, number, number.sum(axis=1), lambda at: RatedPattern((), ()))
        return PricedRates(float(most.max()) * GENEROUS, patterns)


oracle = WayOfSharing(rates=network_rates, settings=network_settings)
"""The way of sharing: MIG slices and whole GPUs at routed rates."""
