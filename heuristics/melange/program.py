"""Mélange's integer program: slices of buckets are assigned to GPU types (Griggs et al., arXiv 2404.14527, section 5).

Every bucket of a service is cut into equal slices. The load of a slice on a GPU type is the slice's rate divided by the
highest rate of such requests that a GPU of the type carries. The GPUs of a type together carry all slices that are
assigned to it (pooled capacity). Whether the slices can be divided among single GPUs is not modelled. The cost is
minimised.

Requests are sorted into buckets by the tokens of prompt and output, as Mélange profiles them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, lil_array, vstack

from provision.formulations.linear.highs import Rows, solve_integer
from provision.models.base.arrays import Floats, Ints
from provision.models.performance.tokens.lengths import RequestTokens
from provision.models.performance.tokens.loads import TokenCounts

BASE = 4.0
"""The ratio of the ends of a bin: bins reach from one power of this number of tokens to the next."""
FEWEST = 64.0
"""Lengths below this number of tokens are in the first bin."""
LEVELS = (np.arange(10_000) + 0.5) / 10_000


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
