"""Mélange as a method: profiles of request sizes, its integer program, and whole GPUs of the types that it chooses.

The integer program assigns slices of buckets to GPU types (Griggs et al., arXiv 2404.14527, section 5). Every bucket of
a service is cut into equal slices. The load of a slice on a GPU type is the slice's rate divided by the highest rate of
such requests that a GPU of the type carries. The GPUs of a type together carry all slices that are assigned to it
(pooled capacity). Whether the slices can be divided among single GPUs is not modelled. The cost is minimised.

Requests are sorted into buckets by the tokens of prompt and output, as Mélange profiles them.

Mélange pools the capacity of a GPU type. To reach that capacity, a router by request size would have to fill every GPU
completely. Plans here route without regard to size, in proportion to what each GPU carries of the whole mix. If that is
less than the rate, the outcome says so, and the verifier and a replay tell which limits are violated.

The plans of whole GPUs with one workload each serve all methods that choose only how many GPUs of which type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, lil_array, vstack

from provision.formulations.linear.highs import Rows, solve_integer
from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import Segments, SliceType, best_segments, token_point
from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.requests import Lengths, RequestTokens
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.models.problem.workload import Workload

FEATURES = frozenset({
    "tokens", "several_gpu_types", "limited_counts", "with_mig", "without_mig", "without_mps", "min_replicas",
    "variants", "isolated_data",
})
"""The features of instances that these methods can plan."""


Chosen = tuple[Ints | None, str]
"""The GPUs that a method chooses, (workloads, whole-GPU slice types), or None if it found none; and why they do not
suffice, empty if they do.
"""


def plan_whole_gpus(instance: Instance, search: Search, method: str, choose: Callable[[Segments, list[int]], Chosen]
                    ) -> Outcome:
    """Plan an instance with the GPUs that a method chooses.

    Parameters
    ----------
    instance, search, method
        The problem, the search, and the method's name.
    choose
        Called with the segments and the indices of the slice types that take a whole GPU.
    """
    segments = best_segments(instance)
    refused = proved_infeasible(instance, segments)
    if refused is not None:
        return refused
    whole = _whole_gpus(instance, segments)
    if not whole:
        return Outcome("unknown", "completed", reason=f"{method} plans whole GPUs, and no data describes one of them")
    gpus, reason = choose(segments, whole)
    if gpus is None:
        return Outcome("unknown", "completed", reason=reason)
    layouts = [
        Layout(segments.slice_types[whole[slice_type]].entry, ((whole[slice_type], at),))
        for at, slice_type in np.argwhere(gpus)
        for _ in range(gpus[at, slice_type])
    ]
    made = assemble(instance, segments, layouts, method)
    return Outcome("unknown" if reason else "feasible", "completed", made, reason=reason)


def _whole_gpus(instance: Instance, segments: Segments) -> list[int]:
    """The indices of the slice types that take a whole GPU."""
    return [at for at, slice_type in enumerate(segments.slice_types) if _fills_gpu(instance, slice_type)]


def _fills_gpu(instance: Instance, slice_type: SliceType) -> bool:
    """Whether a slice takes a whole GPU."""
    entry = instance.fleet[slice_type.entry]
    return not entry.partitioned or slice_type.compute == max(entry.type.slice_compute(one) for one in entry.profiles)


BASE = 4.0
"""The ratio of the ends of a bin: bins reach from one power of this number of tokens to the next."""
FEWEST = 64.0
"""Lengths below this number of tokens are in the first bin."""
LEVELS = (np.arange(10_000) + 0.5) / 10_000
SLICE_FACTOR = 8


class Bucket(NamedTuple):
    """A bucket: the mean prompt and output tokens of its requests, and the fraction of all requests that are in it."""

    prompt: float
    output: float
    share: float


def buckets_of(tokens: RequestTokens) -> list[Bucket]:
    """The buckets that have requests. Prompt and output lengths are independent, so the share of a bucket is the
    product of the shares of its two bins.
    """
    prompts, outputs = (_bins(one.counts) for one in (tokens.input, tokens.output))
    return [Bucket(prompt, output, before * after) for (prompt, before), (output, after) in product(prompts, outputs)]


def _bins(counts: TokenCounts) -> list[tuple[float, float]]:
    """Pairs (mean tokens, fraction of the requests) for all bins that have requests."""
    tokens = np.maximum(np.interp(LEVELS, counts.levels, counts.tokens), 1.0)
    bins = bin_of(tokens)
    return [(float(tokens[bins == one].mean()), float((bins == one).mean())) for one in np.unique(bins)]


def bin_of(tokens: Floats) -> Ints:
    """The index of the bin of each number of tokens, in the shape of ``tokens``."""
    return np.floor(np.log(np.maximum(tokens, FEWEST)) / np.log(BASE) + 1e-9).astype(int)


class Pool(NamedTuple):
    """One kind of server: its cost, the fleet entry whose GPUs it takes, and how many of them."""

    cost: float
    entry: int
    gpus: int = 1


class Service(NamedTuple):
    """A service, and the least number of its servers.

    ``loads`` (buckets, pools) is the number of servers of a pool that a whole bucket keeps busy; infinite where it does
    not fit.
    """

    loads: Floats
    least: int = 0


class Allocation(NamedTuple):
    """``servers`` is (services, pools). ``slices`` has for every service (buckets, pools) the number of slices
    assigned.
    """

    servers: Ints
    slices: list[Ints]


def allocate(services: Sequence[Service], pools: Sequence[Pool], counts: Mapping[int, int], slices: int,
             limit_s: float) -> Allocation | None:
    """The cheapest servers; None if the GPUs do not suffice or no solution was found in time.

    Parameters
    ----------
    services, pools
        The services, and the kinds of servers that can serve them.
    counts
        The number of GPUs of each fleet entry that is limited.
    slices
        The number of slices into which every bucket is cut (Mélange's slice factor).
    limit_s
        Time limit of the solver in seconds.
    """
    cells = np.array([(at, bucket, pool) for at, one in enumerate(services)
                      for bucket, pool in np.argwhere(np.isfinite(one.loads))], int).reshape(-1, 3)
    dealt, number = len(cells), len(pools)
    columns = dealt + len(services) * number
    cost = np.zeros(columns)
    cost[dealt:] = np.tile([one.cost for one in pools], len(services))
    usable = np.concatenate([np.isfinite(one.loads).any(axis=0) for one in services])
    most = np.concatenate([np.full(dealt, float(slices)), np.where(usable, np.inf, 0.0)])
    matrix, right = zip(*[_everything_dealt(services, cells, columns, slices),
                          _loads_carried(services, cells, number, slices), _limited(services, pools, counts, dealt)],
                        strict=True)
    rows = Rows(cost, vstack(matrix, "csr"), np.concatenate(right), np.zeros(columns), most)
    found = solve_integer(rows, np.ones(columns, bool), limit_s)
    if found.x is None:
        return None
    chosen = np.rint(found.x).astype(int)
    parts = [np.zeros(one.loads.shape, int) for one in services]
    for (at, bucket, pool), many in zip(cells, chosen[:dealt], strict=True):
        parts[at][bucket, pool] = many
    return Allocation(chosen[dealt:].reshape(len(services), number), parts)


def _everything_dealt(services: Sequence[Service], cells: Ints, columns: int, slices: int) -> tuple[csr_array, Floats]:
    """The rows, and what each is at least: all slices of every bucket are assigned. (More of them would cost more.)"""
    offsets = np.cumsum([0, *(len(one.loads) for one in services)])
    table = lil_array((offsets[-1], columns))
    for column, (at, bucket, _) in enumerate(cells):
        table[offsets[at] + bucket, column] = 1.0
    return table.tocsr(), np.full(offsets[-1], float(slices))


def _loads_carried(services: Sequence[Service], cells: Ints, number: int, slices: int) -> tuple[csr_array, Floats]:
    """The rows, and what each is at least: the servers of a service in a pool carry the loads assigned to them."""
    table = lil_array((len(services) * number, len(cells) + len(services) * number))
    for column, (at, bucket, pool) in enumerate(cells):
        table[at * number + pool, column] = -services[at].loads[bucket, pool] / slices
    for row in range(len(services) * number):
        table[row, len(cells) + row] = 1.0
    return table.tocsr(), np.zeros(len(services) * number)


def _limited(services: Sequence[Service], pools: Sequence[Pool], counts: Mapping[int, int], dealt: int
             ) -> tuple[csr_array, Floats]:
    """The rows, and what each is at least: no more GPUs are used than there are, and every service has at least its
    least number of servers.
    """
    number = len(pools)
    table = lil_array((len(services) + len(counts), dealt + len(services) * number))
    for at in range(len(services)):
        for pool, one in enumerate(pools):
            table[at, dealt + at * number + pool] = 1.0
            if one.entry in counts:
                table[len(services) + list(counts).index(one.entry), dealt + at * number + pool] = -one.gpus
    least = [*(one.least for one in services), *(-many for many in counts.values())]
    return table.tocsr(), np.array(least, float)


def plan(instance: Instance, search: Search) -> Outcome:
    """Plan an instance with whole GPUs of the types that the integer program chooses for every workload."""
    def choose(segments: Segments, whole: list[int]) -> Chosen:
        entries = [segments.slice_types[at].entry for at in whole]
        pools = [Pool(objective_of(instance).weight(instance.fleet[entry]), entry) for entry in entries]
        services = [Service(_loads(instance, segments, at, whole), one.min_replicas)
                    for at, one in enumerate(instance.workloads)]
        counts = {at: entry.count for at, entry in enumerate(instance.fleet) if entry.count is not None}
        found = allocate(services, pools, counts, search.positive("slice_factor", int), search.left_s)
        if found is None:
            return None, "melange found no whole GPUs for all request sizes"
        carried_rps = (found.servers * segments.throughput_rps[:, whole]).sum(axis=1)
        return found.servers, _lacking(instance, carried_rps)

    return plan_whole_gpus(instance, search, "melange", choose)


def _lacking(instance: Instance, carried_rps: Floats) -> str:
    """A sentence that names the workloads whose GPUs carry less of all sizes mixed than the rate; ``""`` if there are
    none.

    ``carried_rps`` (workloads,) is what the GPUs carry of all sizes mixed, in requests/s.
    """
    short = [f"{one.name} ({carried:.4g} of {instance.planned_rps(one):.4g} requests/s)"
             for one, carried in zip(instance.workloads, carried_rps, strict=True)
             if carried < instance.planned_rps(one) * (1 - TOLERANCE)]
    return ("melange's GPUs would need a router by request size, and carry less of all sizes mixed: "
            f"{', '.join(short)}") if short else ""


def _loads(instance: Instance, segments: Segments, at: int, whole: list[int]) -> Floats:
    """(buckets, pools) the GPUs that each bucket of a workload keeps busy; infinite on types that cannot run all sizes.
    """
    workload = instance.workloads[at]
    planned_rps, mixed_rps = instance.planned_rps(workload), segments.throughput_rps[at, whole]
    if workload.tokens is None:
        shares, rates = np.ones(1), mixed_rps[None]
    else:
        buckets = buckets_of(workload.tokens)
        shares = np.array([one.share for one in buckets])
        rates = np.array([[
            _bucket_rps(instance, workload, segments, at, slice_type, workload.tokens.model_copy(update={
                "input": Lengths(mean=one.prompt), "output": Lengths(mean=one.output)}))
            for slice_type in whole] for one in buckets])
    usable = (rates > 0) & (mixed_rps > 0)
    return np.where(usable, planned_rps * shares[:, None] / np.where(usable, rates, 1.0), math.inf)


def _bucket_rps(
    instance: Instance, workload: Workload, segments: Segments, at: int, slice_type: int, tokens: RequestTokens
) -> float:
    """Mélange's profile: the highest rate of requests of one size on a slice type, in requests/s."""
    model = workload.models[segments.model[at, slice_type]]
    entry = instance.fleet[segments.slice_types[slice_type].entry]
    data = instance.performance_of(entry.gpu, model)
    sized = workload.model_copy(update={"tokens": tokens})
    return token_point(instance, data, segments.slice_types[slice_type].profile, sized, model)[0]


METHODS = (
    Method(
        name="melange",
        summary="Mélange's integer program: request sizes dealt to pools of GPU types (language models)",
        run=plan,
        source="Mélange (Griggs et al., arXiv 2404.14527)",
        features=FEATURES,
        parameters={"slice_factor": SLICE_FACTOR},
    ),
)
