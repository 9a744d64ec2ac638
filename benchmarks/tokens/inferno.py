"""inferno's own greedy against proven optima, on its instances, by its own model of servers; every plan replayed.

``python benchmarks/tokens/inferno.py DIR ...``; a DIR holds accelerator-data.json and so on (llm-inferno's sample
data). Costs are cents per hour. The optima are those of an integer program (HiGHS) over the same rates: one type of
accelerator per service, as the greedy has it, and several. The analyzer runs as in the solutions that come with the
instances (ten batches may wait), and without a queue and without a request's own work on top of the iterations.

A replay serves each service's requests on its replicas by continuous batching with inferno's coefficients, Poisson
arrivals and tokens that vary by a half around their mean: late are the services whose mean TTFT or time per token is
over the target that the analyzer says it keeps. As in inferno's model a prompt costs beta and gamma per token.
"""

import argparse
import math
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.heuristics.rivals.inferno import (
    SHIPPED,
    Choice,
    Coefficients,
    Demand,
    Setting,
    choose,
    means,
    per_ms,
    replicas,
)
from provision.instances.importers.tokens.inferno import Inferno, Server, read_inferno
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.operating import answers_ms
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.step import TokenCosts
from provision.models.traffic.arrivals import POISSON

SETTINGS = {"ten batches": (SHIPPED, 1e-3), "none, no own work": (Setting(queue=0, own=False), 1e-6)}
"""By name the analyzer's settings, and its edge: rates are searched from this part of the rate of a batch of one
request up to this part below the saturated rate.
"""
BISECTIONS = 40
SPARE = 0.1
"""The fraction of the saturated rate that is kept in reserve if tokens per second are promised."""
LIMIT_S = 60
MS_PER_S = 1000
COST_STEP = 0.25
"""All costs are multiples of it, in cents per hour."""


class Option(NamedTuple):
    """A service on an accelerator: the rate of a replica, its cost, accelerators of a pool, and what it runs with."""

    service: int
    rate_rps: float
    cost: float
    units: int
    pool: str
    costs: Coefficients
    most: int


class Limits(NamedTuple):
    """Limits on the mean time per token and to the first token (ms), and on tokens/s; 0 means no limit."""

    itl_ms: float = 0.0
    ttft_ms: float = 0.0
    tokens_per_s: float = 0.0


class Row(NamedTuple):
    """What a service asks: requests/s, tokens and limits, and its priority."""

    name: str
    rate_rps: float
    demand: Demand
    limits: Limits
    priority: int


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    print("| instance | services | queue | method | cost | bound | late in a replay |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for folder, (queue, (setting, edge)) in product(parser.parse_args().folders, SETTINGS.items()):
        given = read_inferno(folder)
        rows = [_row(given, server) for server in given.servers]
        options = [option for at in range(len(rows)) for option in _options(given, rows, at, setting, edge)]
        for name, cost, bound, chosen in _plans(given, rows, options):
            print(f"| {folder.name} | {len(rows)} | {queue} | {name} | {cost:,.2f} | {bound} | "
                  f"{_late(rows, options, chosen)} |", flush=True)
        if setting == SHIPPED and given.solution:
            print(f"| {folder.name} | {len(rows)} | {queue} | its shipped solution | "
                  f"{sum(one.cost for one in given.solution.values()):,.2f} | | |")


def highest_rate_rps(costs: Coefficients, demand: Demand, limits: Limits, most: int, setting: Setting = SHIPPED,
                     edge: float = 1e-3) -> float:
    """The requests/s answered at the highest arrival rate that keeps both mean times within their limits, in batches of
    at most ``most`` requests; 0 if no rate does.
    """
    least_rps, full_rps = 1000 * per_ms(costs, demand, np.array([1, most]), setting)
    low = edge * least_rps
    high = (1 - edge) * full_rps * (1 - SPARE if limits.tokens_per_s else 1)

    def kept(rate_rps: float) -> bool:
        found = means(costs, demand, most, rate_rps, setting)
        return found.itl_ms <= (limits.itl_ms or math.inf) and found.ttft_ms <= (limits.ttft_ms or math.inf)

    if not kept(low):
        return 0.0
    if kept(high):
        low = high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return means(costs, demand, most, low, setting).answered_rps


def _row(given: Inferno, server: Server) -> Row:
    target = given.target(server)
    rate_rps = target.tokens_per_s / server.output_tokens or server.rate_rps
    [priority] = {one.priority for one in given.service_classes if one.name == server.service_class}
    limits = Limits(target.itl_ms, target.ttft_ms, target.tokens_per_s)
    return Row(server.name, rate_rps, Demand(server.input_tokens, server.output_tokens), limits, priority)


def _options(given: Inferno, rows: list[Row], at: int, setting: Setting, edge: float) -> list[Option]:
    demand, model = rows[at].demand, given.servers[at].model
    kinds, found = {one.name: one for one in given.accelerators}, []
    for profile in given.profiles:
        if profile.name == model:
            kind, costs = kinds[profile.accelerator], Coefficients(**profile.parameters.model_dump())
            most = max(profile.max_batch * profile.at_tokens // demand.output_tokens, 1)
            rate_rps = highest_rate_rps(costs, demand, rows[at].limits, most, setting, edge)
            if rate_rps:
                units = profile.accelerators * kind.multiplicity
                found.append(Option(at, rate_rps, profile.accelerators * kind.cost, units, kind.type, costs, most))
    return found


def _plans(given: Inferno, rows: list[Row], options: list[Option]):
    """Name, cost, bound and (option, replicas) of the greedy's plan and of the optima."""
    many = [replicas(rows[one.service].rate_rps, one.rate_rps) for one in options]
    choices = [[Choice(one.cost * count, one.units * count, one.pool, number)
                for number, (one, count) in enumerate(zip(options, many, strict=True)) if one.service == at]
               for at in range(len(rows))]
    greedy = choose(choices, [row.priority for row in rows], given.capacity)
    yield "inferno", sum(one.cost for one in greedy), "", [(one.what, many[one.what]) for one in greedy]
    yield "optimum, one type per service", *_optimum(given, len(rows), options, many, [1.0] * len(options))
    parts = [one.rate_rps / rows[one.service].rate_rps for one in options]
    yield "optimum, several types", *_optimum(given, len(rows), options, [1] * len(options), parts)


def _optimum(given: Inferno, services: int, options: list[Option], lots: list[int], parts: list[float]):
    """Cheapest lots (so many replicas of an option, which carry a part of its service's rate) that carry all rates."""
    pools = list(given.capacity)
    table = np.zeros((services + len(pools), len(options)))
    for at, (one, lot, part) in enumerate(zip(options, lots, parts, strict=True)):
        table[one.service, at], table[services + pools.index(one.pool), at] = part, one.units * lot
    low = [1.0] * services + [-np.inf] * len(pools)
    high = [np.inf] * services + [given.capacity[pool] for pool in pools]
    cost = np.array([one.cost * lot for one, lot in zip(options, lots, strict=True)])
    found = milp(cost, constraints=LinearConstraint(table, low, high), integrality=np.ones(len(options)),
                 bounds=Bounds(0, np.inf), options={"time_limit": LIMIT_S, "mip_rel_gap": 0})
    counts = np.rint(found.x).astype(int)
    bound = math.ceil(found.mip_dual_bound / COST_STEP - 1e-6) * COST_STEP
    return float(cost @ counts), f"{bound:,.2f}", [(at, int(counts[at]) * lots[at]) for at in np.flatnonzero(counts)]


def _late(rows: list[Row], options: list[Option], chosen: list[tuple[int, int]]) -> str:
    """Services of a plan whose means in a replay are over their targets; rates are dealt in proportion."""
    late = set()
    for at, row in enumerate(rows):
        mine = [(options[number], many) for number, many in chosen if options[number].service == at]
        total = sum(one.rate_rps * many for one, many in mine)
        for one, _ in mine:
            ttft_ms, tpot_ms = _replayed(one, row.demand, row.rate_rps * one.rate_rps / total)
            if ttft_ms > (row.limits.ttft_ms or math.inf) or tpot_ms > (row.limits.itl_ms or math.inf):
                late.add(row.name)
    return f"{len(late)} of {len(rows)}"


def _replayed(one: Option, demand: Demand, rate_rps: float) -> tuple[float, float]:
    """Mean TTFT and time per token of a replica at a rate, in ms."""
    alpha, beta, gamma = one.costs
    prompt, output = (TokenCounts.uniform(count / 2, 3 * count / 2)
                      for count in (demand.input_tokens, demand.output_tokens))
    attended = gamma * prompt.mean / ((prompt.mean_square + prompt.mean) / 2)
    costs = TokenCosts(*([0.0] * len(TokenCosts._fields)))._replace(step=alpha, token=beta, context=gamma,
                                                                   attended=attended)
    times_ms = answers_ms(rate_rps, prompt, output, Engine(most_sequences=one.most), costs, POISSON, 0)
    ttft_ms, tpot_ms, _ = times_ms[:, times_ms.shape[1] // 10 :].mean(axis=1)
    return float(ttft_ms), float(tpot_ms)


if __name__ == "__main__":
    main()
