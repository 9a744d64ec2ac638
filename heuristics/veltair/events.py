"""Simulates queries on a shared CPU, event by event, under VELTAIR's scheduler and its rivals (ASPLOS 2022, Algorithm
3).

From the paper: a query runs its layers in units (Algorithm 3, inner loop). Before every unit, the interference is
estimated (line ``i``) from the tenants that are not about to finish (section 4.3), the threshold is set from the cores
that the averages of all queries leave idle (line ``thres``), and the next unit is formed (line ``pivot``). A unit that
needs more cores than are idle starts with the idle cores and takes more when they become free, at the cost of the
overhead of spawning threads (section 3.2). Three points are guessed: cores are given to queries in order of arrival;
the overhead is paid once per unit; a query that finds no idle core waits. Model-wise first come, first served (section
3.2) waits until all cores that a query needs are idle.

The machine is the model of `provision.models.cpu`: whenever a layer or the cores of a tenant change, the shares of L3
and DRAM of all tenants are computed anew; a running layer keeps the fraction of its work that is left.
"""

from typing import Any, NamedTuple

import numpy as np

from provision.heuristics.veltair.profile import Catalogue
from provision.heuristics.veltair.versions import block_end, first_pivot, least_cores, threshold
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.cpu.cpu import Cpu, accesses, alone_s, busy_s, dram_s, misses, stays, stretch, took_s

ADAPTIVE, PRINTED = 0, -1
"""The values of ``grain`` that are not numbers of layers: blocks by ``block_end``, and blocks by ``first_pivot``."""
ENDING = 0.1
"""A tenant is about to finish if no more than this part of its unit is left."""

TENANT = np.dtype(
    [(name, np.int64) for name in ("query", "network", "layer", "begin", "end", "cores", "demand", "plane", "grown")]
    + [(name, np.float64) for name in ("left", "delay_s", "took_s", "access_bps", "miss_bps")]
)
"""The record of a query in the system: of the current ``layer`` the fraction ``left`` remains, which begins after
``delay_s``; the unit is the layers from ``begin`` to ``end``.
"""


class Rules(NamedTuple):
    """The rules of a scheduler.

    Attributes
    ----------
    grain
        The number of layers in a unit, or ADAPTIVE or PRINTED.
    whole
        Whether a unit waits until all its cores are idle.
    compiled
        Whether code versions are chosen by the interference; otherwise the versions that are fastest alone are used.
    """

    grain: int
    whole: bool
    compiled: bool


class Log(NamedTuple):
    """The log of a simulation: by query, the time at which it finished (s; infinite if it did not) and its core
    seconds; and three counts: units, units that found too few idle cores, most cores in use.
    """

    finish_s: Floats
    core_s: Floats
    counts: Ints


def play(
    arrival_s: Floats, networks: Ints, catalogue: Catalogue, rules: Rules, cpu: Cpu, proxy: Floats, most_late: int,
    log: Log,
) -> None:
    """Simulate all queries, or stop when more than ``most_late`` of them have missed their QoS; the results are written
    to ``log``.
    """
    _play(np.zeros(len(arrival_s), TENANT), arrival_s, networks, catalogue, rules, cpu, proxy, most_late, log)


@compiled
def _play(
    tenants: Any, arrival_s: Floats, networks: Ints, catalogue: Catalogue, rules: Rules, cpu: Cpu, proxy: Floats,
    most_late: int, log: Log,
) -> None:
    """The kernel of ``play``; ``tenants`` has the records of the queries, which are zeros at the start."""
    line = np.empty(len(arrival_s), np.int64)
    present = upcoming = late = 0
    now_s = 0.0
    while upcoming < len(arrival_s) or present > 0:
        at, wait_s = soonest(tenants, line[:present])
        arrives = upcoming < len(arrival_s) and arrival_s[upcoming] - now_s <= wait_s
        next_s = arrival_s[upcoming] if arrives else now_s + wait_s
        pass_time(tenants, line[:present], next_s - now_s, log)
        now_s = next_s
        if arrives:
            at, line[present] = present, upcoming
            enter(tenants[upcoming], upcoming, networks[upcoming], catalogue)
            present, upcoming = present + 1, upcoming + 1
        else:
            tenants[line[at]].layer += 1
            tenants[line[at]].left = 1.0
        tenant = tenants[line[at]]
        if tenant.layer == catalogue.first[tenant.network + 1]:
            log.finish_s[tenant.query] = now_s
            late += now_s - arrival_s[tenant.query] > catalogue.qos_s[tenant.network]
            line[at : present - 1] = line[at + 1 : present].copy()
            present -= 1
        elif tenant.layer == tenant.end:
            tenant.cores = 0
            form(tenants, line[:present], at, catalogue, rules, cpu, proxy, log)
        if late > most_late:
            return
        deal(tenants, line[:present], rules, cpu, log)
        run(tenants, line[:present], catalogue, cpu)


@inner
def enter(tenant: Any, query: int, network: int, catalogue: Catalogue) -> None:
    """Initialise the record of a query that arrives, before its first unit is formed."""
    tenant.query, tenant.network = query, network
    tenant.layer = tenant.end = catalogue.first[network]


@inner
def soonest(tenants: Any, line: Ints) -> tuple[int, float]:
    """(position in the line of the next tenant to finish its layer, the seconds until then)."""
    first, least_s = -1, np.inf
    for at in range(len(line)):
        tenant = tenants[line[at]]
        if tenant.cores > 0 and tenant.delay_s + tenant.left * tenant.took_s < least_s:
            first, least_s = at, tenant.delay_s + tenant.left * tenant.took_s
    return first, least_s


@inner
def pass_time(tenants: Any, line: Ints, seconds: float, log: Log) -> None:
    """Advance all tenants in the line by ``seconds``."""
    for at in line:
        tenant = tenants[at]
        if tenant.cores > 0:
            worked_s = max(seconds - tenant.delay_s, 0.0)
            tenant.delay_s = max(tenant.delay_s - seconds, 0.0)
            tenant.left = max(tenant.left - worked_s / tenant.took_s, 0.0)
            log.core_s[tenant.query] += tenant.cores * seconds


@inner
def form(
    tenants: Any, line: Ints, at: int, catalogue: Catalogue, rules: Rules, cpu: Cpu, proxy: Floats, log: Log
) -> None:
    """Form the next unit of the tenant at a position in the line, and count the unit."""
    tenant = tenants[line[at]]
    tenant.plane = catalogue.average.shape[0] - 1
    if rules.compiled:
        tenant.plane = level(tenants, line, catalogue, proxy)
    until_s, last = catalogue.until_s[tenant.plane], catalogue.first[tenant.network + 1]
    tenant.begin = tenant.layer
    if rules.grain > 0:
        tenant.end = min(tenant.begin + rules.grain, last)
    else:
        most = most_cores(tenants, line, tenant, catalogue, cpu)
        if rules.grain == ADAPTIVE:
            tenant.end = block_end(until_s, catalogue.target_s, tenant.begin, last, most)
        else:
            tenant.end = first_pivot(until_s, catalogue.target_s, tenant.begin, last, most)
    tenant.demand = least_cores(until_s, catalogue.target_s, tenant.begin, tenant.end)
    tenant.left, tenant.delay_s, tenant.grown = 1.0, 0.0, 0
    log.counts[0] += 1
    log.counts[1] += tenant.demand > idle(tenants, line, cpu)


@inner
def level(tenants: Any, line: Ints, catalogue: Catalogue, proxy: Floats) -> int:
    """The index of the interference level that the proxy predicts from the counters of all tenants that are not about
    to finish.
    """
    access_bps = miss_bps = 0.0
    for at in line:
        tenant = tenants[at]
        if tenant.cores > 0 and unfinished(tenant, catalogue) > ENDING:
            access_bps += tenant.access_bps
            miss_bps += tenant.miss_bps
    slowdown = 1.0 if access_bps == 0 else proxy @ counters(access_bps, miss_bps)
    return int(max(np.searchsorted(catalogue.slowdown, slowdown, side="right") - 1, 0))


@compiled
def counters(access_bps: float, miss_bps: float) -> Floats:
    """The inputs of the linear proxy: 1, the miss rate of L3, its accesses in TB/s."""
    return np.array([1.0, miss_bps / access_bps, access_bps / 1e12])


@inner
def unfinished(tenant: Any, catalogue: Catalogue) -> float:
    """The part of a tenant's unit that is left, by the planned times."""
    until_s = catalogue.until_s[tenant.plane, tenant.cores - 1]
    layer_s = until_s[tenant.layer + 1] - until_s[tenant.layer]
    left_s = until_s[tenant.end] - until_s[tenant.layer + 1] + tenant.left * layer_s
    return left_s / (until_s[tenant.end] - until_s[tenant.begin])


@inner
def most_cores(tenants: Any, line: Ints, tenant: Any, catalogue: Catalogue, cpu: Cpu) -> float:
    """The average cores of a tenant plus its threshold."""
    total = 0.0
    for at in line:
        total += catalogue.average[tenants[at].plane, tenants[at].network]
    own = catalogue.average[tenant.plane, tenant.network]
    return own + threshold(cpu.cores, own, total)


@inner
def idle(tenants: Any, line: Ints, cpu: Cpu) -> int:
    """The number of cores that no tenant has."""
    cores = cpu.cores
    for at in line:
        cores -= tenants[at].cores
    return cores


@inner
def deal(tenants: Any, line: Ints, rules: Rules, cpu: Cpu, log: Log) -> None:
    """Give idle cores to the tenants that need more, in order of arrival."""
    free = idle(tenants, line, cpu)
    for at in line:
        tenant = tenants[at]
        if free == 0 or (rules.whole and tenant.cores == 0 and tenant.demand > free):
            break
        more = min(tenant.demand - tenant.cores, free)
        if more > 0 and tenant.cores > 0 and not tenant.grown:
            tenant.delay_s, tenant.grown = tenant.delay_s + cpu.growth_s, 1
        tenant.cores += more
        free -= more
    log.counts[2] = max(log.counts[2], cpu.cores - free)


@inner
def run(tenants: Any, line: Ints, catalogue: Catalogue, cpu: Cpu) -> None:
    """Compute, for each tenant, the time of its layer beside the others and its bandwidth from L3 and DRAM."""
    running = np.array([at for at in line if tenants[at].cores > 0])
    wanted_bps = np.empty(len(running))
    for number, at in enumerate(running):
        tenant = tenants[at]
        version = catalogue.versions[tenant.plane, tenant.layer]
        wanted_bps[number] = accesses(version, 1.0) / alone_s(version, tenant.cores, cpu)
    share = wanted_bps / wanted_bps.sum()
    busy, dram, miss_bytes, access_bytes = np.empty((4, len(running)))
    for number, at in enumerate(running):
        tenant = tenants[at]
        version = catalogue.versions[tenant.plane, tenant.layer]
        stay = stays(version, tenant.cores, share[number], cpu)
        busy[number] = busy_s(version, tenant.cores, stay, cpu)
        dram[number] = dram_s(version, tenant.cores, stay, cpu)
        miss_bytes[number], access_bytes[number] = misses(version, stay), accesses(version, stay)
    factor = stretch(busy, dram, miss_bytes, cpu)
    for number, at in enumerate(running):
        tenant = tenants[at]
        tenant.took_s = took_s(busy[number], factor * dram[number], tenant.cores, cpu)
        tenant.access_bps = access_bytes[number] / tenant.took_s
        tenant.miss_bps = miss_bytes[number] / tenant.took_s
