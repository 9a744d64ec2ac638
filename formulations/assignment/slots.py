"""What the slots of every slice type may hold, and what a slot is worth at most.

Replicas that share whole GPUs by iGniter's model are stated by rows over operating points (`points`). A replica alone
in its slot is a pattern. Closed networks, gpu-lets' turns and further kinds of data have the patterns that their oracle
of `provision.formulations.pricing` lists. Where an oracle lists none, it prices: it finds patterns, and tells the most
that any pattern is worth. This module is the only one here that asks oracles.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern, alone, parts_of
from provision.formulations.assignment.points import Base, Points, points_of
from provision.formulations.linear.highs import Rows, solve_linear
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.mps.sets import InterferingSets
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.rate_oracles import RoleRates, rate_oracle
from provision.formulations.pricing.rates import GENEROUS, GroupPrices, Listing, RateOracle
from provision.formulations.search.problem import Problem, Shareable, groups_of
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry


class Slots:
    """What a slot of one slice type may hold.

    Attributes
    ----------
    patterns
        All patterns of one replica and of the files whose oracles list, and those that other oracles found.
    oracles, further
        The oracles that do not list all, and such for one replica of every workload, which find further patterns.
    worths
        (workloads,) worths of whole rates. Together they are at most 1 in one slot, whatever it holds.
    most_rps
        The most requests/s that a slot can carry, for the objective max_throughput.
    files, tables
        The data files under whose interference replicas share the slot, and their operating points.
    """

    def __init__(self, problem: Problem, single: Problem, k: int, until: Deadline) -> None:
        self.instance, self.problem, self.single, self.slice_type = (
            problem.instance, problem, single, problem.segments.slice_types[k])
        instance, (entry, profile, *_) = self.instance, self.slice_type
        self.oracles, self.further, self.worths = list[RateOracle](), list[RateOracle](), list[Floats]()
        self.most_rps, self.entry = np.inf, instance.fleet[entry]
        shared = shared_files(instance, self.entry, profile)
        self.files = [data for data in shared if isinstance(data, IgniterProfiles)]
        self.patterns = [one for one in alone(problem.segments, k) if instance.performance_of(self.entry.gpu, (
            instance.workloads[one[0].workload].models[one[0].model]), profile) not in self.files]  # else points do
        for data in shared:
            if data not in self.files:
                self._share(Shareable(k, data), until)
        self.list_points({})

    @property
    def stated(self) -> bool:
        """Whether all that a slot may hold is known. If not, it may be *open*, with patterns that nobody knows."""
        return not self.oracles

    def _share(self, shared: Shareable, until: Deadline) -> None:
        """List the undominated patterns of a data file. Where they are too many, or not known, keep its oracle."""
        problem, oracle = self.problem, rate_oracle(self.problem, shared, until)
        if (listing := oracle.listed() if oracle is not None and oracle.complete else None) is not None:
            with suppress(TooManyError):
                asked_rps = np.array([group.asked_rps for group in problem.groups])
                parts = listing.rps if problem.fills else np.minimum(listing.rps / asked_rps, 1)
                kept = undominated(np.column_stack([parts, -listing.number, -listing.replicas]), until=until)
                self.patterns += patterns_of(problem, listing.only(kept), GENEROUS)
                return
            oracle = RoleRates(problem, shared)
        if oracle is not None:
            self.oracles.append(oracle)
            self.further.append(RoleRates(self.single, shared))

    def list_points(self, edges: Mapping[Base, set[float]]) -> None:
        """List the operating points anew. ``edges`` are ends of levels (see `points`)."""
        tables = [points_of(self.instance, self.entry, data, edges) for data in self.files]
        self.tables: list[Points] = [one for one in tables if one is not None]

    def ask(self, prices: Floats, floor: float) -> bool:
        """Ask the oracles for patterns and for what no pattern exceeds; return whether there are new patterns.

        ``prices`` (workloads,) are the worths of workloads' whole rates. Patterns worth more than ``floor`` are wanted.
        """
        bound, known, problem = 0.0, len(self.patterns), self.problem
        owners, asked_rps = zip(*((group.members[0], group.asked_rps) for group in problem.groups), strict=True)
        worth = np.isin(np.arange(len(prices)), owners) * prices
        per_rps = np.ones(len(owners)) if problem.fills else worth[[*owners]] / asked_rps
        for oracle in [*self.oracles, *self.further]:
            found = oracle.price(GroupPrices(per_rps, np.zeros(len(owners)), np.array(asked_rps)), floor, 0)
            bound = max(bound, found.most) if oracle in self.oracles else bound
            if not problem.fills:  # else the patterns found may be invalid
                listing = found.planned or found.patterns
                self.patterns += patterns_of(problem, listing, 1.0 if found.planned else GENEROUS)
        self.patterns = list(dict.fromkeys(self.patterns))
        if problem.fills:
            self.most_rps = max([bound, *(sum(held.capacity_rps for held in one) for one in self.patterns)])
        else:
            parts = [parts_of(self.instance, one) for one in self.patterns]
            bound = max([bound, *(sum(worth[w] * min(part, 1) for w, part in one.items()) for one in parts)])
            self.worths += [worth / bound] if 0 < bound < np.inf else []
        return len(self.patterns) > known


def slots_of(instance: Instance, until: Deadline) -> list[Slots]:
    """The slots of every slice type; listing ends at the deadline."""
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    problem, single = Problem(instance, groups), Problem(instance, [group._replace(most=1) for group in groups])
    return [Slots(problem, single, k, until) for k in range(len(problem.segments.slice_types))]


def patterns_of(problem: Problem, listing: Listing, raised: float) -> Iterator[SlicePattern]:
    """Yield the patterns of a Listing whose rates are ``raised`` by a factor."""
    groups = problem.groups
    asked_rps = [np.inf if problem.fills else group.asked_rps for group in groups]
    for row in range(len(listing.rps)):
        left_rps, kept = list(asked_rps), []
        for one, rate in sorted(zip(*listing.rated(row), strict=True), key=lambda pair: -pair[1]):
            if left_rps[one.group] > 0:  # replicas beyond the rate are left out, which slows nobody down
                left_rps[one.group] -= rate
                carried = asked_rps[one.group] if rate >= asked_rps[one.group] else rate / raised
                kept.append(PatternReplica(groups[one.group].members[0], one.run.model, one.run.batch,
                                           one.run.processes, one.run.sm_share, carried, one.run.turn))
        yield tuple(kept)


def shared_files(instance: Instance, entry: FleetEntry, profile: str) -> list[PerformanceFile]:
    """The files by which slices of a profile are shared."""
    divided = any(data.divides_sms for data in instance.performance if data.gpu == entry.gpu)  # networks do not do that
    return [data for data in (instance.sharing_files(entry.gpu) if entry.mps else ())
            if (profile == WHOLE if data.divides_sms else not divided and (
                data.sharing == "always" or data.helps_sharing(profile)))]


def worths_of(instance: Instance, slots: Sequence[Slots], until: Deadline) -> Floats | None:
    """(entries, workloads) worths, those on one GPU of an entry at most 1 together, where every workload has one
    replica and all share whole GPUs by iGniter's model; None elsewhere, if a workload is on no GPU, or in want of time.

    They are the prices of a linear program over all sets of workloads that may share a GPU (Gilmore and Gomory's, for
    bins with few items).
    """
    single = all(one.max_replicas == 1 and not one.variants and (one.min_replicas or one.rate_rps)
                 for one in instance.workloads)
    prices, sets = np.array([objective_of(instance).weight(entry) for entry in instance.fleet]), list[Floats]()
    if not single or instance.objective == THROUGHPUT or (prices <= 0).any() or any(
            len(one.files) != 1 or one.patterns or not isinstance(one.files[0], IgniterProfiles) for one in slots):
        return None
    demands = [((one.model,), instance.budget_ms(one), instance.planned_rps(one)) for one in instance.workloads]
    for one in slots:
        every = InterferingSets(tables_of(one.files[0], instance.shared_rule, demands)).every(until)
        if every is None:
            return None
        sets += [np.isin(np.arange(len(demands)), groups) / prices[one.slice_type.entry] for groups in every]
    rows = np.array(sets).reshape(-1, len(demands))
    if not rows.any(axis=0).all():
        return None
    found = solve_linear(Rows(-np.ones(len(demands)), csr_array(-rows), -np.ones(len(rows)), np.zeros(len(demands)),
                              np.full(len(demands), np.inf)))
    if found is None:
        return None
    worths = np.maximum(found.x, 0.0)
    most = max(1.0, float((rows @ worths).max())) * (1 + FORGIVEN)
    return np.asarray(worths / (most * prices[:, None]))
