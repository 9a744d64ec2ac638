"""What the slots of every slice type may hold, and what a slot is worth at most.

Replicas that share whole GPUs under interference are stated by rows over operating points (`points`). A replica alone
in its slot is a pattern. Closed networks, gpu-lets' turns and further kinds of data have the patterns that their oracle
of `provision.formulations.pricing` lists. Where an oracle lists none, or is asked under interference, it prices: it
finds patterns, and tells the most that any pattern is worth. This module is the only one here that asks oracles.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from provision.formulations.assignment.patterns import PatternReplica, SlicePattern, alone, parts_of
from provision.formulations.assignment.points import Base, Interfering, Points, points_of
from provision.formulations.linear.highs import Rows, solve_linear
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.mps.sets import InterferingSets
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.rate_oracles import RoleRates
from provision.formulations.pricing.rates import GENEROUS, GroupPrices, Listing, RateOracle
from provision.formulations.pricing.register import way_of
from provision.formulations.pricing.shared_mig.relaxed import LEVELS, clients, relaxed
from provision.formulations.search.problem import Problem, Shareable, groups_of
from provision.formulations.search.segments import Segments, best_segments
from provision.models.base.arrays import Floats
from provision.models.base.clock import Deadline
from provision.models.base.tolerances import FORGIVEN
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.fitted_networks import FittedNetworks
from provision.models.performance.igniter import IgniterProfiles
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry


class Open(NamedTuple):
    """A relaxation of an open slot; arrays are (workloads,).

    ``time`` is what a workload's whole planned rate takes of a slot, which is at most 1 for all together; infinite
    where the workload cannot run there. ``most`` is the largest fraction of the rate that one process carries. A slot
    has at most ``clients`` of them.
    """

    time: Floats
    most: Floats
    clients: int


class Slots:
    """What a slot of one slice type may hold.

    Attributes
    ----------
    patterns
        All patterns of one replica and of the files whose oracles list, and those that other oracles found.
    oracles
        The oracles that do not list all, each with its Problem. Those for the first of ``problems`` tell bounds, too;
        in the second each workload has one replica.
    opened
        Relaxations, of which an open slot keeps one; none if all patterns are known.
    worths
        (workloads,) worths of whole rates. Together they are at most 1 in one slot, whatever it holds.
    most_rps
        The most requests/s that a slot can carry, for the objective max_throughput.
    files, tables
        The data files under whose interference replicas share the slot, and their operating points.
    """

    def __init__(self, instance: Instance, problems: Sequence[Problem], segments: Segments, k: int, until: Deadline
                 ) -> None:
        self.instance, self.problems, self.slice_type = instance, problems, segments.slice_types[k]
        self.entry, profile = instance.fleet[self.slice_type.entry], self.slice_type.profile
        self.oracles, self.opened, self.worths = list[tuple[Problem, RateOracle]](), list[Open](), list[Floats]()
        self.most_rps, shared = np.inf, shared_files(instance, self.entry, profile)
        self.files = [data for data in shared if isinstance(data, Interfering)]
        self.patterns = [one for one in alone(segments, k) if instance.performance_of(
            self.entry.gpu, _model(instance, one.replicas[0]), profile) not in self.files]  # else points stand for it
        for data in shared:
            if data not in self.files:
                self._share(data, k, until)
        self.list_points({})

    @property
    def stated(self) -> bool:
        """Whether all that a slot may hold is known."""
        return not self.opened

    def _share(self, data: PerformanceFile, k: int, until: Deadline) -> None:
        """List the undominated patterns of a data file. Where they are too many, or not known, keep its oracles and
        relaxations.
        """
        make, problem, oracle = way_of(data.kind).rates, self.problems[0], None
        with suppress(TooManyError):
            oracle = None if make is None else make(problem, self.slice_type, data, until)
            listing = oracle.listed() if oracle is not None and oracle.complete else None
            if listing is not None:
                asked_rps = np.array([group.asked_rps for group in problem.groups])
                parts = listing.rps if problem.fills else np.minimum(listing.rps / asked_rps, 1)
                kept = undominated(np.column_stack([parts, -listing.number, -listing.replicas]), until=until)
                self.patterns += patterns_of(problem, listing.only(kept), routed=False)
                return
        oracles = [(problem, oracle)] if oracle is not None and not oracle.complete else []
        oracles += [(one, RoleRates(one, Shareable(k, data))) for one in self.problems[len(oracles) :] if one.roles]
        if oracles:
            every = np.ones(len(self.instance.workloads))
            self.oracles += oracles
            self.opened += open_slots(self.instance, k) or [Open(0 * every, every, 1)]

    def list_points(self, edges: dict[Base, list[float]]) -> None:
        """List the operating points anew. ``edges`` are ends of levels (see `points`)."""
        tables = [points_of(self.instance, self.entry, data, edges) for data in self.files]
        self.tables: list[Points] = [one for one in tables if one is not None]

    def ask(self, prices: Floats, floor: float) -> bool:
        """Ask the oracles for patterns and for what no pattern exceeds; return whether there are new patterns.

        ``prices`` (workloads,) are the worths of workloads' whole rates. Patterns worth more than ``floor`` are wanted.
        """
        bound, known = 0.0, len(self.patterns)
        for problem, oracle in self.oracles:
            owners, asked_rps = zip(*((group.members[0], group.asked_rps) for group in problem.groups), strict=True)
            worth = np.isin(np.arange(len(prices)), owners) * prices
            per_rps = np.ones(len(owners)) if problem.fills else worth[[*owners]] / asked_rps
            found = oracle.price(GroupPrices(per_rps, np.zeros(len(owners)), np.array(asked_rps)), floor, 0)
            if problem is self.problems[0]:
                bound = max(bound, found.most)
            if not problem.fills:  # else the patterns found may be invalid
                self.patterns += patterns_of(problem, found.planned or found.patterns, found.planned is not None)
        self.patterns = list(dict.fromkeys(self.patterns))
        if self.problems[0].fills:
            self.most_rps = max([bound, *(one.throughput_rps for one in self.patterns)])
        else:
            parts = [parts_of(self.instance, one) for one in self.patterns]
            bound = max([bound, *(sum(worth[w] * min(part, 1) for w, part in one.items()) for one in parts)])
            self.worths += [worth / bound] if 0 < bound < np.inf else []
        return len(self.patterns) > known


def slots_of(instance: Instance, until: Deadline) -> list[Slots]:
    """The slots of every slice type; listing ends at the deadline."""
    segments, problems = best_segments(instance), list[Problem]()
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    if any(shared_files(instance, instance.fleet[one.entry], one.profile) for one in segments.slice_types):
        problems = [Problem(instance, groups), Problem(instance, [group._replace(most=1) for group in groups])]
    return [Slots(instance, problems, segments, k, until) for k in range(len(segments.slice_types))]


def _model(instance: Instance, one: PatternReplica) -> str:
    return instance.workloads[one.workload].models[one.model]


def patterns_of(problem: Problem, listing: Listing, routed: bool) -> Iterator[SlicePattern]:
    """Yield the patterns of a Listing; ``routed`` if their replicas carry exactly the rates that it names."""
    groups = problem.groups
    for row in range(len(listing.rps)):
        left_rps, kept = [np.inf if problem.fills else group.asked_rps for group in groups], []
        for one, rate in sorted(zip(*listing.rated(row), strict=True), key=lambda pair: -pair[1]):
            if left_rps[one.group] > 0:  # replicas beyond the rate are left out, which slows nobody down
                left_rps[one.group] -= rate
                kept.append(PatternReplica(groups[one.group].members[0], one.run.model, one.run.batch,
                                           one.run.processes, one.run.sm_share, rate if routed else rate / GENEROUS,
                                           one.run.turn))
        yield SlicePattern(tuple(kept), routed)


def shared_files(instance: Instance, entry: FleetEntry, profile: str) -> list[PerformanceFile]:
    """The files by which slices of a profile are shared."""
    divided = any(data.divides_sms for data in instance.performance if data.gpu == entry.gpu)  # networks do not do that
    return [data for data in (instance.sharing_files(entry.gpu) if entry.mps else ())
            if not (divided and isinstance(data, FittedNetworks))
            and (profile == WHOLE and not entry.partitioned if isinstance(data, Interfering) else
                 data.sharing == "always" or data.helps_sharing(profile))]


def open_slots(instance: Instance, k: int) -> list[Open]:
    """The relaxations of a slot that closed networks share, one for each level of utilisation; none where these are not
    known (see `provision.formulations.pricing.shared_mig.relaxed`).
    """
    segments = best_segments(instance)
    files = [data for data in instance.performance if data.gpu == instance.fleet[segments.slice_types[k].entry].gpu]
    shared = [data for data in files if isinstance(data, FittedNetworks)]
    if (len(shared) != 1 or any(not data.measured and data not in shared for data in files)
            or instance.objective == THROUGHPUT or instance.policy.rule.random_arrivals
            or any(workload.variants for workload in instance.workloads)):
        return []
    planned, table, found = np.array([instance.planned_rps(one) for one in instance.workloads]), relaxed(
        instance, segments), list[Open]()
    for at, level in enumerate(LEVELS):
        rps, busy = table.rps[:, k, at], table.busy[:, k, at]
        time = np.where(rps > 0, busy * planned / (level.use * GENEROUS), np.inf)
        most = np.divide(rps * GENEROUS, planned, out=np.ones(len(rps)), where=planned > 0)
        found.append(Open(time, most, clients(instance, segments.slice_types[k], level)))
    return [one for one in found if np.isfinite(one.time).any()]


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
