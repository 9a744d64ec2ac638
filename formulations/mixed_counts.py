"""Mixed counts: partition counts in which slices may also be shared by different workloads.

A shared slice runs at a *level*, which bounds how much slower its work gets: P when P processes share it, 1/(1 - U)
when it is used up to U. Then a batch of workload w takes Z + slowdown S at most, its largest batch under the latency
budget, the slice time of a request and the rate of one process are constants, and utilisation is linear in the
rates. Beside ``x`` and ``y`` of `partition_counts` there are integers ``m[k, l]`` (slices of kind k shared at level
l) and ``n[w, k, l]`` (processes of workload w on them), and ``share[w, k, l]``, parts of the workload's rate.

Slices of one kind and level are alike, so the model counts them; which process goes to which slice is a small
packing afterwards. The bound comes from a relaxation: no memory, no packing, processes in fractions, and in each
interval of utilisation the slowdown of its lower and the capacity of its upper end.
"""

import math
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pulp

from provision.formulations.partition_counts import DEFAULT_SOLVER, PartitionCounts, pulp_solver
from provision.models.assemble import assemble
from provision.models.closed_network import work_ms_array
from provision.models.deal import deal
from provision.models.errors import UnsupportedError
from provision.models.feasibility import refusal
from provision.models.method import FEATURES, Incumbent, Method, Outcome
from provision.models.plan import Replica
from provision.models.segments import best_segments

NAME = "mixed-counts"
MOST_PROCESSES = 12
"""Processes on one shared slice, at most: launching slows with their number."""
UTILISATIONS = (0.0, 0.3, 0.45, 0.55, 0.65, 0.72, 0.78, 0.83, 0.87, 0.9, 1 - 1 / (MOST_PROCESSES + 1))
"""Ends of intervals; the last is where more processes than the most are no slower than utilisation alone."""


class _Level(NamedTuple):
    """How a shared slice is run: work slows by ``slowdown`` while it is used to ``capacity`` by ``processes``.

    ``launching`` is the number of processes whose launching is reckoned with.
    """

    slowdown: float
    capacity: float
    processes: float
    launching: int


def _by_use(utilisations):
    """Levels of slices that are used up to these utilisations."""
    return [_Level(1 / (1 - u), u, MOST_PROCESSES, MOST_PROCESSES) for u in utilisations]


def _by_number(most):
    """Levels of slices shared by 2 up to ``most`` processes."""
    return [_Level(p, 1.0, p, p) for p in range(2, most + 1)]


def _relaxed():
    """Levels of the relaxation: they cover every way to run a shared slice."""
    ends = zip(UTILISATIONS, (*UTILISATIONS[1:], 1.0), strict=True)
    return _by_number(MOST_PROCESSES) + [_Level(1 / (1 - low), high, math.inf, 2) for low, high in ends]


QUICK = _by_use(UTILISATIONS[1:])
"""Levels of the first attempts."""
THOROUGH = _by_number(6) + _by_use((0.55, 0.65, 0.75, 0.83, 0.9))
"""Levels of the attempt to save a GPU more."""


@dataclass(frozen=True)
class _Shared:
    """What a process does on a shared slice, arrays (workloads, kinds, levels); a batch of 0 for cannot.

    ``part`` is the part of the workload's planned rate that one process carries (``most_part`` at any batch),
    ``busy`` the utilisation that the whole planned rate causes, ``memory_gib`` that of one process.
    """

    batch: np.ndarray
    part: np.ndarray
    most_part: np.ndarray
    busy: np.ndarray
    memory_gib: np.ndarray


def _shared(instance, segments, levels):
    """The best batch of every workload on every kind of slice at every level.

    It is the one that needs least slice time per request within the latency budget; ``most_part`` is the largest
    part of the rate that a process carries at any batch.
    """
    _one_file_per_gpu(instance)
    launching, slowdown = (np.array([[getattr(one, what)] for one in levels]) for what in ("launching", "slowdown"))
    shape = (len(instance.workloads), len(segments.kinds), len(levels))
    table = _Shared(*(np.zeros(shape) for _ in range(5)))
    for w, workload in enumerate(instance.workloads):
        rate = max(instance.planned_rps(workload), 1e-9)
        for k, kind in enumerate(segments.kinds):
            gpu = instance.fleet[kind.entry].type
            data = instance.sharing_of(gpu.name, [workload.model])
            if data is None or kind.profile not in data.profiles or not instance.fleet[kind.entry].mps:
                continue
            network = data.models[workload.model].coefficients
            batch = np.array([b for b in data.batches if b <= network.max_batch])
            memory = network.memory_gib(batch, 1)
            think_ms, slice_ms = work_ms_array(network, batch, launching, gpu.slice_compute(kind.profile))
            latency_ms = think_ms + slice_ms * slowdown
            fits = (latency_ms <= instance.budget_ms(workload)) & (memory <= gpu.slice_memory_gib(kind.profile))
            best = np.argmin(np.where(fits, slice_ms / batch, np.inf), axis=1)
            able = np.flatnonzero(fits.any(axis=1))
            at = best[able]
            table.batch[w, k, able] = batch[at]
            per_process = np.where(fits, 1000 * batch / latency_ms, 0) / rate
            table.part[w, k, able] = per_process[able, at]
            table.most_part[w, k, able] = per_process.max(axis=1)[able]
            table.busy[w, k, able] = rate * slice_ms[at] / (1000 * batch[at])
            table.memory_gib[w, k, able] = memory[at]
    return table


def _one_file_per_gpu(instance):
    """Refuse sharing data in several files: which pairs share a slice would depend on the file."""
    for gpu in {entry.gpu for entry in instance.fleet}:
        models = {one.model for one in instance.workloads if instance.sharing_of(gpu, [one.model])}
        if models and instance.sharing_of(gpu, models) is None:
            raise UnsupportedError(f"method {NAME} needs the closed networks of {gpu} in one file; merge the files")


class MixedCounts(PartitionCounts):
    """Partition counts with shared slices.

    Parameters
    ----------
    instance, segments
        As for PartitionCounts.
    levels
        How shared slices may be run.
    filling
        Part of a level, of memory and of a process's rate that shared slices are planned for; None builds the
        relaxation that bounds all plans.
    """

    def __init__(self, instance, segments, levels, filling=None):
        super().__init__(instance, segments)
        self.levels, self.filling, self.relaxed = levels, filling or 1.0, filling is None
        self.shared = _shared(instance, segments, levels)
        pairs = sorted({(int(k), int(level)) for _, k, level in zip(*np.nonzero(self.shared.batch), strict=True)})
        self.m = {at: self._count(f"m_{at[0]}_{at[1]}") for at in pairs}
        triples = [tuple(map(int, at)) for at in zip(*np.nonzero(self.shared.batch), strict=True)]
        names = {at: "_".join(map(str, at)) for at in triples}
        self.share = {at: self.problem.add_variable(f"share_{names[at]}", 0, 1) for at in triples}
        kind = "Continuous" if self.relaxed else "Integer"
        self.n = {at: self.problem.add_variable(f"n_{names[at]}", 0, None, cat=kind) for at in triples}

    def carry_rates(self):
        """Segments and shared slices together carry every workload's planned rate."""
        for w, rate in enumerate(self.rate_rps):
            if rate > 0:
                terms = [min(self.useful_rps[w, k] / rate, 1) * self.x[w, k] for k in self.kinds_of[w]]
                terms += [part for (one, _, _), part in self.share.items() if one == w]
                self.problem += pulp.lpSum(terms) >= 1

    def keep_replicas(self):
        """An idle workload has its segments; whoever carries a rate has a replica anyway."""
        for w, workload in enumerate(self.instance.workloads):
            if self.rate_rps[w] == 0:
                self.problem += pulp.lpSum(self.x[w, k] for k in self.kinds_of[w]) >= workload.min_replicas

    def fit_slots(self):
        """Segments and shared slices of a kind are no more than its slots."""
        for k in range(len(self.segments.kinds)):
            taken = [self.x[w, k] for w in range(len(self.rate_rps)) if (w, k) in self.x]
            taken += [slices for (kind, _), slices in self.m.items() if kind == k]
            self.problem += pulp.lpSum(taken) <= pulp.lpDot(self.partitions.slots[:, k].tolist(), self.y)

    def keep_levels(self):
        """Shared slices are not used beyond their level."""
        for (k, level), slices in self.m.items():
            busy = [float(self.shared.busy[at]) * part for at, part in self.share.items() if at[1:] == (k, level)]
            self.problem += pulp.lpSum(busy) <= self.filling * self.levels[level].capacity * slices

    def run_processes(self):
        """Processes carry the rates, as many as a level allows."""
        carried = self.shared.most_part if self.relaxed else self.shared.part
        for at, part in self.share.items():
            self.problem += part <= float(carried[at]) * self.filling * self.n[at]
        for (k, level), slices in self.m.items():
            mine = [count for at, count in self.n.items() if at[1:] == (k, level)]
            if self.levels[level].processes < math.inf:
                self.problem += pulp.lpSum(mine) <= self.clients(k, level) * slices

    def fit_memory(self):
        """Processes fit the memory of the shared slices."""
        for (k, level), slices in self.m.items():
            held = [float(self.shared.memory_gib[at]) * n for at, n in self.n.items() if at[1:] == (k, level)]
            self.problem += pulp.lpSum(held) <= self.filling * self.memory_gib(k) * slices

    def improve_on(self, value):
        """The objective is at least one GPU's weight below a value; only large slices are shared, to search less."""
        least = min(self.instance.weight(entry) for entry in self.instance.fleet)
        self.problem += pulp.lpDot(self._weights(), self.y) <= value - least * MARGIN
        for (k, _), slices in self.m.items():
            kind = self.segments.kinds[k]
            if kind.compute < LARGE * self.instance.fleet[kind.entry].type.compute_slices:
                self.problem += slices == 0

    def memory_gib(self, kind):
        """Memory of a slice of a kind, in GiB."""
        entry, profile = self.segments.kinds[kind][:2]
        return self.instance.fleet[entry].type.slice_memory_gib(profile)

    def clients(self, kind, level):
        """Processes that may share a slice of a kind at a level."""
        entry, profile = self.segments.kinds[kind][:2]
        return min(self.levels[level].processes, self.instance.fleet[entry].type.slice_mps_clients(profile))

    def pieces(self):
        """What to put on shared slices: (kind, level) to a list of (workload, part of its rate) per process.

        Parts are cut to what the segments leave over, so that a workload's rate is carried exactly.
        """
        isolated = (self.chosen() * self.useful_rps).sum(axis=1) / np.maximum(self.rate_rps, 1e-9)
        given = {at: part.value() or 0.0 for at, part in self.share.items()}
        total = np.zeros(len(self.rate_rps))
        for (w, _, _), part in given.items():
            total[w] += part
        scale = np.clip(1 - isolated, 0, None) / np.maximum(total, 1e-12)
        found = {at: [] for at in self.m}
        for (w, k, level), part in given.items():
            count = math.ceil(part * scale[w] / self.shared.part[w, k, level])
            found[k, level] += [(w, part * scale[w] / count)] * count if part * scale[w] > 1e-9 else []
        return found


MARGIN = 1 - 1e-6
"""Shared slices and processes are planned for this part of what they can do: solvers keep rows within 1e-7."""
ATTEMPTS = ((QUICK, 1.0), (QUICK, 0.9), (QUICK, 0.8), (THOROUGH, 1.0), (THOROUGH, 0.95), (THOROUGH, 0.9))
"""Levels and how full slices are planned: the first until the packing succeeds, the last for a GPU less."""
LARGE = 1 / 3
"""Part of a GPU's compute slices from which on a slice is large."""
BOUND_PART = 0.4
"""Part of the time limit that the bound may take."""


def solve(instance, control):
    """Plan an instance whose policy lets workloads share slices."""
    started = perf_counter()
    segments = best_segments(instance)
    refused = refusal(instance, segments, started)
    if refused:
        return refused
    built = perf_counter()
    bound = _bound(instance, segments, control)
    if math.isinf(bound):
        reason = "the fleet has too few GPUs, even with slices shared; allow more"
        return Outcome("infeasible", "proved", reason=reason, build_seconds=perf_counter() - started)
    control.report(Incumbent(None, bound))
    plan = None
    for levels, filling in ATTEMPTS:
        left_s = control.time_limit_s - (perf_counter() - started)
        done = plan is not None and (levels is QUICK or instance.value(plan) <= bound * (1 + 1e-9))
        if left_s > 0 and not done:
            plan = _plan(instance, segments, control, levels, filling, left_s, plan) or plan
    times = {"build_seconds": built - started, "solve_seconds": perf_counter() - built}
    if plan is None:
        reason = "no plan found in time; more time, or greedy, may find one"
        return Outcome("unknown", "time_limit", bound=bound, reason=reason, **times)
    if instance.value(plan) <= bound * (1 + 1e-9):
        return Outcome("optimal", "proved", plan, bound, **times)
    in_time = perf_counter() - started < control.time_limit_s
    return Outcome("feasible", "completed" if in_time else "time_limit", plan, bound, **times)


def _bound(instance, segments, control):
    """Lower bound on every plan, from the relaxation."""
    model = MixedCounts(instance, segments, _relaxed())
    _state(model)
    return model.lower_bound(perf_counter() + BOUND_PART * control.time_limit_s)


def _plan(instance, segments, control, levels, filling, left_s, known):
    """A plan at these levels, better than the known one if there is one, or None."""
    model = MixedCounts(instance, segments, levels, filling * MARGIN)
    _state(model)
    if known is not None:
        model.improve_on(instance.value(known))
    model.fit_memory()
    model.problem.solve(pulp_solver(control, left_s))
    if model.problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    slices = _packed(model)
    if slices is None:
        return None
    rows = np.zeros((len(slices), len(segments.kinds)), int)
    for index, (kind, _) in enumerate(slices):
        rows[index, kind] = 1
    layouts = deal(instance, segments, model.partitions, model.gpus(), np.vstack([model.chosen(), rows]))
    return layouts and assemble(instance, segments, layouts, NAME, [replicas for _, replicas in slices])


def _state(model):
    """The rows that both models have."""
    model.minimise_weight()
    model.carry_rates()
    model.keep_replicas()
    model.fit_slots()
    model.respect_fleet()
    model.keep_levels()
    model.run_processes()


def _packed(model):
    """Shared slices as (kind, replicas), or None when the processes do not pack into as many as counted."""
    slices = []
    for (kind, level), pieces in model.pieces().items():
        bins = _bins(model, kind, level, pieces, round(model.m[kind, level].value() or 0))
        if bins is None:
            return None
        slices += [(kind, _replicas(model, kind, level, held)) for held in bins if held]
    if any(len(replicas) == 1 and not _runs_alone(model, kind, replicas[0]) for kind, replicas in slices):
        return None
    return [(kind, _alone(model, kind, replicas)) for kind, replicas in slices]


def _runs_alone(model, kind, replica):
    """Whether the workload's best segment carries what a slice that it has to itself is to carry."""
    w = list(model.instance.workload).index(replica.workload)
    return model.segments.throughput_rps[w, kind] >= replica.rate_rps


def _alone(model, kind, replicas):
    """A replica that ended up without neighbours runs as the workload's best segment."""
    if len(replicas) > 1:
        return replicas
    w = list(model.instance.workload).index(replicas[0].workload)
    best = {"batch": int(model.segments.batch[w, kind]), "processes": int(model.segments.processes[w, kind])}
    return (replicas[0].model_copy(update=best),)


def _bins(model, kind, level, pieces, number):
    """Processes packed first-fit decreasing into a number of slices: utilisation, memory, MPS clients."""
    most = np.array([model.levels[level].capacity, model.memory_gib(kind), model.clients(kind, level)])
    sizes = [
        np.array([model.shared.busy[w, kind, level] * part, model.shared.memory_gib[w, kind, level], 1.0])
        for w, part in pieces
    ]
    used, held = np.zeros((number, 3)), [[] for _ in range(number)]
    for at in sorted(range(len(pieces)), key=lambda at: -(sizes[at] / most).max()):
        fits = np.flatnonzero((used + sizes[at] <= most).all(axis=1))
        if not len(fits):
            return None
        fullest = fits[np.argmax((used[fits] / most).sum(axis=1))]
        used[fullest] += sizes[at]
        held[fullest].append(pieces[at])
    return held


def _replicas(model, kind, level, held):
    """Replicas of one shared slice: a workload's processes together, in groups no larger than were measured."""
    replicas = []
    for w in sorted({w for w, _ in held}):
        workload = model.instance.workloads[w]
        gpu = model.instance.fleet[model.segments.kinds[kind].entry].gpu
        network = model.instance.sharing_of(gpu, [workload.model]).models[workload.model].coefficients
        parts = [part for one, part in held if one == w]
        for at in range(0, len(parts), network.max_processes):
            group = parts[at : at + network.max_processes]
            replicas.append(
                Replica(
                    workload=workload.name,
                    batch=int(model.shared.batch[w, kind, level]),
                    processes=len(group),
                    rate_rps=float(sum(group) * model.rate_rps[w]),
                )
            )
    return tuple(replicas)


METHODS = (
    Method(
        name=NAME,
        summary="partition counts with slices shared by different workloads (closed-network data, PuLP)",
        run=solve,
        exact=True,
        source="this package",
        features=frozenset(FEATURES) - {"interference", "min_replicas", "max_replicas", "max_share_per_gpu"},
        parameters={"solver": DEFAULT_SOLVER},
    ),
)
