"""Mixed counts: partition counts in which slices may also be shared by different workloads.

Shared slices run at levels (`mixed_levels`). Beside ``x`` and ``y`` of `partition_counts` there are integers
``m[k, l]`` (slices of kind k shared at level l) and ``n[w, k, l]`` (processes of workload w on them), and
``share[w, k, l]``, parts of the workload's rate; at a level utilisation is linear in them.

Slices of one kind and level are alike, so the model counts them; which process goes to which slice is a small
packing afterwards (`mixed_packing`). The bound comes from a relaxation: no memory, no packing, processes in fractions,
and in each interval of utilisation the slowdown of its lower and the capacity of its upper end.
"""

import math
from dataclasses import replace
from time import perf_counter

import numpy as np
import pulp

from provision.formulations.mixed_levels import FINE, QUICK, RELAXED, THOROUGH, shared
from provision.formulations.mixed_packing import packed
from provision.formulations.partition_counts import DEFAULT_SOLVER, TOLERANCE, PartitionCounts, pulp_solver
from provision.models.assemble import assemble
from provision.models.deal import deal
from provision.models.feasibility import unservable
from provision.models.method import FEATURES, Incumbent, Method, Outcome
from provision.models.segments import best_segments

NAME = "mixed-counts"
MARGIN = 1 - 1e-6
"""Shared slices and processes are planned for this part of what they can do: solvers keep rows within 1e-7."""
GENEROUS = 1 + 1e-8
"""What the relaxation grants instead: more than the verifier's tolerances add up to."""
NOTHING = 1e-7
"""Shares up to this are a solver's rounding."""
ATTEMPTS = ((QUICK, 1.0), (QUICK, 0.9), (QUICK, 0.8), (THOROUGH, 1.0), (THOROUGH, 0.95), (THOROUGH, 0.9), (FINE, 1.0))
"""Levels and how full slices are planned: the first until the packing succeeds, the last for a GPU less."""
LARGE = 1 / 3
"""Part of a GPU's compute slices from which on a slice is large."""
BOUND_PART = 0.4
"""Part of the time limit that the bound may take."""


class MixedCounts(PartitionCounts):
    """Partition counts with shared slices.

    Parameters
    ----------
    instance, segments
        As for PartitionCounts, but a workload need not have a segment.
    levels
        How shared slices may be run.
    filling
        Part of a level, of memory and of a process's rate that shared slices are planned for; above 1 for the
        relaxation that bounds all plans.
    """

    def __init__(self, instance, segments, levels, filling):
        super().__init__(instance, segments)
        self.levels, self.filling, self.relaxed = levels, filling, filling > 1
        self.shared = shared(instance, segments, levels)
        triples = [tuple(map(int, at)) for at in zip(*np.nonzero(self.shared.batch), strict=True)]
        names = {at: "_".join(map(str, at)) for at in triples}
        self.m = {at: self._count("m_{}_{}".format(*at)) for at in sorted({at[1:] for at in triples})}
        self.share = {at: self.problem.add_variable(f"share_{names[at]}", 0, int(self.rate_rps[at[0]] > 0))
                      for at in triples}
        kind = "Continuous" if self.relaxed else "Integer"
        self.n = {at: self.problem.add_variable(f"n_{names[at]}", 0, None, cat=kind) for at in triples}

    def carry_rates(self):
        """Segments and shared slices together carry every workload's planned rate."""
        for w, rate in enumerate(self.rate_rps):
            if rate > 0:
                terms = [min(self.useful_rps[w, k] / rate, 1) * self.x[w, k] for k in self.kinds_of[w]]
                terms += [part for (one, _, _), part in self.share.items() if one == w]
                self.problem += pulp.lpSum(terms) >= min(1, 1 / self.filling)

    def keep_replicas(self):
        """A workload has at least its least number of replicas; on a shared slice a process may be one."""
        for w, workload in enumerate(self.instance.workloads):
            replicas = [self.x[w, k] for k in self.kinds_of[w]]
            replicas += [count for (one, _, _), count in self.n.items() if one == w]
            self.problem += pulp.lpSum(replicas) >= workload.min_replicas

    def fit_slots(self):
        """Segments and shared slices of a kind are no more than its slots."""
        for k in range(len(self.segments.kinds)):
            taken = [self.x[w, k] for w in range(len(self.rate_rps)) if (w, k) in self.x]
            taken += [slices for (kind, _), slices in self.m.items() if kind == k]
            self.problem += pulp.lpSum(taken) <= pulp.lpDot(self.partitions.slots[:, k].tolist(), self.y)

    def keep_levels(self):
        """Shared slices are not used beyond their level."""
        for (k, level), slices in self.m.items():
            busy = [float(self.shared.busy[at] * self.rate_rps[at[0]]) * part
                    for at, part in self.share.items() if at[1:] == (k, level)]
            self.problem += pulp.lpSum(busy) <= self.filling * self.levels[level].capacity * slices

    def run_processes(self):
        """Processes carry the rates, as many as a level allows."""
        for at, part in self.share.items():
            self.problem += part <= min(self.filling * self.part(*at), 1) * self.n[at]
        for (k, level), slices in self.m.items():
            mine = [count for at, count in self.n.items() if at[1:] == (k, level)]
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
            gpu, profile = self._gpu(k), self.segments.kinds[k].profile
            if gpu.slice_compute(profile) < LARGE * gpu.compute_slices:
                self.problem += slices == 0

    def alone_or_shared(self):
        """The segments, with the most that a process carries on a shared slice where that is more."""
        most_rps = self.shared.most_rps.max(axis=2, initial=0)
        return replace(self.segments, throughput_rps=np.maximum(self.segments.throughput_rps, most_rps))

    def part(self, w, kind, level):
        """Part of a workload's planned rate that one process carries, not cut at 1; in the relaxation the most."""
        carried = self.shared.most_rps if self.relaxed else self.shared.rps
        return float(carried[w, kind, level] / max(self.rate_rps[w], 1e-9))

    def memory_gib(self, kind):
        """Memory of a slice of a kind, in GiB."""
        return self._gpu(kind).slice_memory_gib(self.segments.kinds[kind].profile)

    def clients(self, kind, level):
        """Processes that may share a slice of a kind at a level."""
        return min(self.levels[level].processes, self._gpu(kind).slice_mps_clients(self.segments.kinds[kind].profile))

    def _gpu(self, kind):
        return self.instance.fleet[self.segments.kinds[kind].entry].type

    def pieces(self):
        """What to put on shared slices: (kind, level) to a list of (workload, part of its rate) per process.

        Parts are cut to what the segments leave over, so that a workload's rate is carried exactly; processes to what
        these parts and ``min_replicas`` take. None when segments are to carry a rate that they carry but nearly.
        """
        shares = {at: value for at, part in self.share.items() if (value := part.value() or 0.0) > NOTHING}
        chosen, total = self.chosen(), np.zeros(len(self.rate_rps))
        for (w, _, _), value in shares.items():
            total[w] += value
        isolated = (chosen * self.useful_rps).sum(axis=1) / np.maximum(self.rate_rps, 1e-9)
        if ((total == 0) & (self.rate_rps > 0) & (isolated < 1 - TOLERANCE)).any():
            return None
        scale = np.clip(1 - isolated, 0, None) / np.maximum(total, NOTHING)
        return self._processes({at: value * scale[at[0]] for at, value in shares.items()}, chosen.sum(axis=1))

    def _processes(self, parts, segments):
        """Processes that carry these parts of the rates beside so many segments of each workload."""
        lacking = [one.min_replicas for one in self.instance.workloads] - segments
        found = {at: [] for at in self.m}
        for (w, k, level), number in self.n.items():
            part = parts.get((w, k, level), 0.0)
            wanted = max(math.ceil(part / self.part(w, k, level)), min(round(number.value() or 0), lacking[w]))
            lacking[w] -= wanted
            found[k, level] += [(w, part / wanted)] * wanted if wanted > 0 else []
        return found


def solve(instance, control):
    """Plan an instance whose policy lets workloads share slices."""
    started = perf_counter()
    segments = best_segments(instance)
    relaxed = MixedCounts(instance, segments, RELAXED, GENEROUS)
    refused = "; ".join(unservable(instance, relaxed.alone_or_shared()))
    if refused:
        return Outcome("infeasible", "proved", reason=refused, build_seconds=perf_counter() - started)
    _state(relaxed)
    built = perf_counter()
    bound = relaxed.proven_bound(built + BOUND_PART * control.time_limit_s)
    control.report(Incumbent(None, bound))
    plan = None if math.isinf(bound) else _best_plan(instance, segments, control, bound, started)
    times = {"build_seconds": built - started, "solve_seconds": perf_counter() - built}
    if math.isinf(bound):
        reason = "the fleet has too few GPUs, even with slices shared; allow more"
        return Outcome("infeasible", "proved", reason=reason, **times)
    in_time = perf_counter() - started < control.time_limit_s
    if plan is None:
        reason = "no plan found; more time, or greedy, may find one"
        return Outcome("unknown", "completed" if in_time else "time_limit", bound=bound, reason=reason, **times)
    if _reaches(instance, plan, bound):
        return Outcome("optimal", "proved", plan, bound, **times)
    return Outcome("feasible", "completed" if in_time else "time_limit", plan, bound, **times)


def _reaches(instance, plan, bound):
    return instance.value(plan) <= bound * (1 + TOLERANCE)


def _best_plan(instance, segments, control, bound, started):
    """The best plan of all attempts, or None."""
    plan = None
    for levels, filling in ATTEMPTS:
        left_s = control.time_limit_s - (perf_counter() - started)
        done = plan is not None and (levels is QUICK or _reaches(instance, plan, bound))
        if left_s > 0 and not done:
            plan = _plan(instance, segments, control, levels, filling, left_s, plan) or plan
    return plan


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
    slices = packed(model)
    if slices is None:
        return None
    rows = np.zeros((len(slices), len(segments.kinds)), int)
    for index, (kind, _) in enumerate(slices):
        rows[index, kind] = 1
    layouts = deal(instance, segments, model.partitions, model.gpus(), np.vstack([model.chosen(), rows]))
    return layouts and assemble(instance, segments, layouts, NAME, [replicas for _, replicas in slices])


def _state(model):
    """The rows that both models have."""
    model.aim()
    model.carry_rates()
    model.keep_replicas()
    model.fit_slots()
    model.respect_fleet()
    model.keep_levels()
    model.run_processes()


METHODS = (
    Method(
        name=NAME,
        summary="partition counts with slices shared by different workloads (closed-network data, PuLP)",
        run=solve,
        exact=True,
        source="this package",
        features=frozenset(FEATURES)
        - {"interference", "gpulets", "max_replicas", "max_share_per_gpu", "max_throughput"},
        parameters={"solver": DEFAULT_SOLVER},
    ),
)
