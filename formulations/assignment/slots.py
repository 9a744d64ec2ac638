"""What the slots of every slice type may hold, what a slot is worth at most, and the plan of patterns.

A pattern is a set of replicas that keep their latency budgets together on a slice. Each replica can carry any rate up
to its capacity, so rates are continuous and need no grid.

Replicas that share whole GPUs by iGniter's model are stated by rows over operating points (`points`). A replica alone
in its slot is a pattern. Closed networks, gpu-lets' turns and further kinds of data have the patterns that their oracle
of `provision.formulations.pricing` lists.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.assignment.points import Points, points_of
from provision.formulations.linear.highs import Rows, solve_linear
from provision.formulations.pricing.mps.kernels import feasible_sets
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.oracle import Running, replica_of
from provision.formulations.pricing.rate_oracles import rate_oracle
from provision.formulations.pricing.rates import GENEROUS, Listing, TooManyError, undominated
from provision.formulations.search.assemble import routed
from provision.formulations.search.problem import Problem, Shareable, groups_of
from provision.formulations.search.segments import Segments
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.igniter import IgniterProfiles
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry

SlicePattern = tuple[Replica, ...]
"""The replicas on one slice; the rate of each is the most that it can carry."""
Held = list[tuple[str, int, SlicePattern]]
"""The slices of a GPU, each as (profile, start, pattern)."""


def alone(instance: Instance, segments: Segments, k: int) -> Iterator[SlicePattern]:
    """Yield for every workload the pattern of the one replica that carries most alone on a slice of type ``k``."""
    for w in segments.throughput_rps[:, k].nonzero()[0].tolist():
        run = Running(int(segments.model[w, k]), int(segments.batch[w, k]), int(segments.processes[w, k]), 1.0)
        yield (replica_of(instance, w, run, float(segments.throughput_rps[w, k])),)


def parts_of(instance: Instance, pattern: SlicePattern) -> tuple[Floats, Floats]:
    """(workloads,) the fractions of the planned rates that a pattern carries, and its numbers of replicas."""
    at = {name: w for w, name in enumerate(instance.workload)}
    parts, number = np.zeros((2, len(at)))
    for one in pattern:
        planned = instance.planned_rps(instance.workload[one.workload])
        parts[at[one.workload]] += one.rate_rps / planned if planned else 1.0
        number[at[one.workload]] += 1
    return parts, number


def plan_of(instance: Instance, entries: Iterable[int], held: Iterable[Held], name: str) -> Plan | None:
    """The plan of patterns at the rates of all replicas, named after a method; None if the patterns do not carry the
    planned rates.

    ``entries`` and ``held`` are the fleet entry and the slices of every GPU. GPUs without slices are left out.
    """
    return routed(instance, [PlannedGpu(gpu=instance.fleet[e].gpu, mig=instance.fleet[e].partitioned, slices=tuple(
        Slice(profile=profile, start=start, replicas=pattern)
        for profile, start, pattern in sorted(slices, key=lambda one: one[1])))
        for e, slices in zip(entries, held, strict=True) if slices], name)


class Slots:
    """What a slot of one slice type may hold.

    Attributes
    ----------
    patterns
        All patterns of one replica and of the files whose oracles list.
    worth
        (workloads,) worths of whole rates, or None. Together they are at most 1 on one GPU, whatever it holds.
    files, tables, edges
        The data files under whose interference replicas share the slot, their operating points, and ends of levels.
    """

    def __init__(self, problem: Problem, k: int, until: Deadline) -> None:
        instance, self.problem, self.slice_type = problem.instance, problem, problem.segments.slice_types[k]
        entry, profile, *_ = self.slice_type
        self.entry = instance.fleet[entry]
        self.worth: Floats | None = None
        shared = shared_files(instance, self.entry, profile)
        self.files = [data for data in shared if isinstance(data, IgniterProfiles)]
        self.patterns = [one for one in alone(instance, problem.segments, k) if instance.performance_of(
            self.entry.gpu, instance.model_of(one[0]), profile) not in self.files]  # else points do
        for data in shared:
            if data not in self.files:
                self.patterns += _listed(problem, Shareable(k, data), until)
        self.edges = defaultdict[Replica, set[float]](set)
        self.list_points()

    @property
    def refinements(self) -> int:
        """How often the levels of points have been refined."""
        return sum(map(len, self.edges.values()))

    def list_points(self) -> None:
        """List the operating points anew."""
        tables = [points_of(self.problem, self.entry, data, self.edges) for data in self.files]
        self.tables: list[Points] = [one for one in tables if one is not None]


def slots_of(instance: Instance, until: Deadline) -> list[Slots] | None:
    """The slots of every slice type; None if the patterns of some data file are too many to be listed at the deadline.
    """
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    problem = Problem(instance, groups)
    try:
        return [Slots(problem, k, until) for k in range(len(problem.segments.slice_types))]
    except TooManyError:
        return None


def _listed(problem: Problem, shared: Shareable, until: Deadline) -> list[SlicePattern]:
    """The undominated patterns of a data file, none if it cannot be shared; raises TooManyError if they are not listed.
    """
    oracle = rate_oracle(problem, shared, until)
    if oracle is None:
        return []
    listing = oracle.listing
    if listing is None:
        raise TooManyError
    asked_rps = np.array([group.asked_rps for group in problem.groups])
    parts = listing.rps if problem.fills else np.minimum(listing.rps / asked_rps, 1)
    kept = undominated(np.column_stack([parts, -listing.number, -listing.replicas]), until=until)
    return list(_patterns_of(problem, listing.only(kept)))


def _patterns_of(problem: Problem, listing: Listing) -> Iterator[SlicePattern]:
    """Yield the patterns of a Listing, whose rates are those of bounds."""
    owners = [(group.members[0], np.inf if problem.fills else group.asked_rps) for group in problem.groups]
    for row in range(len(listing.rps)):
        yield tuple(replica_of(problem.instance, w, one.run, asked_rps if rate >= asked_rps else rate / GENEROUS)
                    for one, rate in zip(*listing.rated(row), strict=True) for w, asked_rps in [owners[one.group]])


def shared_files(instance: Instance, entry: FleetEntry, profile: str) -> list[PerformanceFile]:
    """The files by which slices of a profile are shared."""
    divided = any(data.divides_sms for data in instance.performance if data.gpu == entry.gpu)  # networks do not do that
    return [data for data in (instance.sharing_files(entry.gpu) if entry.mps else ())
            if (profile == WHOLE if data.divides_sms else not divided and (
                data.sharing == "always" or data.helps_sharing(profile)))]


def add_worths(instance: Instance, slots: Sequence[Slots], until: Deadline) -> None:
    """Add worths where every workload has one replica and all share whole GPUs by iGniter's model; not if a workload is
    on no GPU, or in want of time.

    They are the prices of a linear program over all sets of workloads that may share a GPU (Gilmore and Gomory's, for
    bins with few items).
    """
    prices = [objective_of(instance).weight(one.entry) for one in slots]
    single = all(one.max_replicas == 1 and not one.variants and (one.min_replicas or one.rate_rps)
                 for one in instance.workloads)
    if not single or instance.objective == THROUGHPUT or min(prices, default=0) <= 0 or any(
            len(one.files) != 1 or one.patterns for one in slots):
        return
    demands = [((one.model,), instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    sets = [feasible_sets(tables_of(one.files[0], instance.shared_rule, demands), [1] * len(demands), until)
            for one in slots]
    rows = np.array([np.isin(np.arange(len(demands)), groups) / price for price, every in zip(prices, sets, strict=True)
                     for groups in every or ()]).reshape(-1, len(demands))
    if None in sets or not rows.any(axis=0).all():
        return
    found = solve_linear(Rows(-np.ones(len(demands)), csr_array(-rows), -np.ones(len(rows)), np.zeros(len(demands)),
                              np.full(len(demands), np.inf)))
    if found is not None:
        worths = np.maximum(found.x, 0.0)
        worths /= max(1.0, float((rows @ worths).max())) * (1 + FORGIVEN)
        for one, price in zip(slots, prices, strict=True):
            one.worth = worths / price
