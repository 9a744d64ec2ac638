"""A relaxation of plans with slices that closed networks describe: an integer program over partition counts.

The master program credits a role with the upper end of its interval of rates. That is loose where a workload needs
little of a GPU. This relaxation divides rates freely. Beside ``x`` and ``y`` of ``partition_counts`` there are integers
``m[k, l]`` (slices of type k that are shared at level l), fractions ``n[w, k, l]`` (processes of workload w on these
slices) and ``share[w, k, l]`` (the part of the workload's rate that they carry). A level is an interval of utilisation.
It is credited with the slowdown at its lower end and the capacity at its upper end. Memory is ignored, and slices of a
type at a level are not distinguished.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pulp

from provision.formulations.isolated.partition_counts import PartitionCounts
from provision.formulations.pricing.rates import GENEROUS
from provision.formulations.pricing.shared_mig.relaxed import LEVELS, clients, relaxed
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, best_segments
from provision.models.base.clock import Deadline
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Outcome

Use = tuple[int, int, int]
"""A workload on a shared slice: the indices of the workload, the slice type and the level."""


class Relaxation(PartitionCounts):
    """Partition counts with shared slices. Its bound is valid for all plans.

    Parameters
    ----------
    instance, segments
        As for PartitionCounts, but a workload need not have a segment.
    """

    def __init__(self, instance: Instance, segments: Segments) -> None:
        super().__init__(instance, segments)
        self.shared = relaxed(instance, segments)
        uses: list[Use] = [(w, k, level) for w, k, level in np.argwhere(self.shared.rps).tolist()]
        self.of_workload: dict[int, list[Use]] = defaultdict(list)
        self.on: dict[tuple[int, int], list[Use]] = defaultdict(list)
        for at in uses:
            self.of_workload[at[0]].append(at)
            self.on[at[1:]].append(at)
        self.m = {at: self._count("m_{}_{}".format(*at)) for at in sorted(self.on)}
        self.share = {at: self._part("share", at, int(self.rate_rps[at[0]] > 0)) for at in uses}
        self.n = {at: self._part("n", at, None) for at in uses}

    def _part(self, name: str, at: Use, most: int | None) -> pulp.LpVariable:
        return self.problem.add_variable("_".join(map(str, (name, *at))), 0, most)

    def carry_rates(self, share: float | pulp.LpVariable = 1) -> None:
        """Add rows: segments and shared slices together carry at least ``share`` of every planned rate."""
        for w, rate in enumerate(self.rate_rps):
            if rate > 0:
                terms = [min(self.useful_rps[w, k] / rate, 1) * self.x[w, k] for k in self.slice_types_of[w]]
                terms += [self.share[at] for at in self.of_workload[w]]
                self.problem += pulp.lpSum(terms) >= share / GENEROUS

    def keep_replicas(self) -> None:
        """Add rows: a workload has at least its min_replicas replicas. On a shared slice, each process counts as one.
        """
        for w, workload in enumerate(self.instance.workloads):
            replicas = [self.x[w, k] for k in self.slice_types_of[w]]
            replicas += [self.n[at] for at in self.of_workload[w]]
            self.problem += pulp.lpSum(replicas) >= workload.min_replicas

    def standing(self) -> dict[int, list[pulp.LpVariable]]:
        """For each slice type, the variables that count what occupies its slices, shared slices included."""
        found = super().standing()
        for (k, _), slices in self.m.items():
            found[k].append(slices)
        return found

    def keep_levels(self) -> None:
        """Add rows: the utilisation of shared slices is within their level."""
        for (k, level), slices in self.m.items():
            busy = [float(self.shared.busy[at] * self.rate_rps[at[0]]) * self.share[at] for at in self.on[k, level]]
            self.problem += pulp.lpSum(busy) <= GENEROUS * LEVELS[level].use * slices

    def run_processes(self) -> None:
        """Add rows: the processes carry the rates, and their number is within what the level allows."""
        for at, part in self.share.items():
            carried = self.shared.rps[at] / max(self.rate_rps[at[0]], 1e-9)
            self.problem += part <= min(GENEROUS * float(carried), 1) * self.n[at]
        for (k, level), slices in self.m.items():
            most = clients(self.instance, self.segments.slice_types[k], LEVELS[level])
            self.problem += pulp.lpSum(self.n[at] for at in self.on[k, level]) <= most * slices

    def state(self) -> None:
        """Add the objective and all rows."""
        self.aim()
        self.carry_rates()
        self.keep_replicas()
        self.fit_slots()
        self.respect_fleet()
        self.keep_levels()
        self.run_processes()


def most_alone_or_shared(instance: Instance) -> Segments:
    """The segments, each with the larger of two throughputs: its own, and a bound for the workload on shared slices.

    The bound counts as many replicas of the workload on the slice as MPS allows clients.
    """
    segments = best_segments(instance)
    clients = [
        instance.fleet[slice_type.entry].type.slice_mps_clients(slice_type.profile)
        for slice_type in segments.slice_types
    ]
    most_rps = relaxed(instance, segments).rps.max(axis=2, initial=0) * np.array(clients)
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
    relaxation = Relaxation(instance, best_segments(instance))
    relaxation.state()
    return float(relaxation.proven_bound(Deadline(limit_s)))


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
