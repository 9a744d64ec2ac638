"""Mélange's integer program and inferno's greedy against proven optima on instances made from Splitwise's table.

``python benchmarks/tokens/melange.py SPLITWISE_CSV AZURE_DIR``: Llama-2-70B on groups of 4 and 8 A100s or H100s, by
iterations fitted to Splitwise's table; prompts and answers as in Azure's traces of 2023 (``conv.csv``, ``code.csv``),
or about as long as MLPerf's (OpenOrca); the limits are MLPerf's (P99). List prices of one provider. Every method knows
the same rates, the highest that keep the P99 in replays: Mélange those for requests of one size, the others those for
all sizes mixed. A replay serves Poisson arrivals on every server of a plan; Mélange's are replayed with the router by
size that it assumes, and with sizes mixed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from provision.heuristics.rivals.inferno import Choice, choose, replicas
from provision.heuristics.rivals.melange import Allocation, Pool, Service, allocate, bin_of, buckets_of
from provision.instances.files.csv_cells import numbered_rows, whole
from provision.instances.importers.tokens.iterations import read_splitwise, timed_iterations
from provision.models.fitting.operators.costs import fit_iterations
from provision.models.hardware.prices import list_price
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.operating import EVERYBODY, highest_rate_rps, late_shares
from provision.models.performance.tokens.records import Engine, request_table
from provision.models.performance.tokens.requests import Lengths, Limits, RequestTokens
from provision.models.performance.tokens.step import TokenCosts

MODEL, PROVIDER = "llama2-70b", "lambda"
GROUPS = [(gpu, gpus) for gpu in ("a100-80gb", "h100-80gb") for gpus in (4, 8)]
KV_TOKENS = {4: 451_000, 8: 1_330_000}
"""What 90 % of a group's memory holds beside 140 GB of weights, at 80 layers of 8 heads of 128 in keys and values."""
BUDGET_TOKENS, SEQUENCES = 8192, 256
LIMITS = {"server": Limits(2000.0, 200.0), "interactive": Limits(450.0, 40.0)}
"""MLPerf Inference's of Llama-2-70B, in ms, at P99."""
OPEN_ORCA = RequestTokens.model_validate(
    {"input": {"mean": 294, "p99": 900, "max": 1024}, "output": {"mean": 294, "p99": 1000, "max": 1024}})
RATES_RPS = (10.0, 40.0)
REQUESTS = 20_000
SLICES, LIMIT_S, SOLVE_S = 8, 1e-4, 60.0


class Kind(NamedTuple):
    """A group of GPUs: what it costs per hour, how its iterations take time, and its limits."""

    pool: Pool
    costs: TokenCosts
    engine: Engine


class Plan(NamedTuple):
    """Servers of every kind; which share of each bucket's requests goes to which kind, None for all sizes mixed."""

    method: str
    servers: np.ndarray
    bound: str = ""
    shares: np.ndarray | None = None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="SPLITWISE_CSV", type=Path)
    parser.add_argument("traces", metavar="AZURE_DIR", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_RPS, metavar="RPS")
    parser.add_argument("--requests", type=int, default=REQUESTS, metavar="N", help="of a replay, per server")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N combinations of requests and limits")
    arguments = parser.parse_args()
    kinds = _kinds(arguments.table)
    conv, code = (_traced(arguments.traces / f"{name}.csv") for name in ("conv", "code"))
    print("| requests | limits | requests/s | method | A100s, H100s | cost per hour | bound | P99 TTFT, TPOT, ms | "
          "late |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    cases = [("conv", conv, "server"), ("code", code, "server"), ("OpenOrca", OPEN_ORCA, "server"),
             ("OpenOrca", OPEN_ORCA, "interactive")]
    for name, tokens, limits in cases[: arguments.first]:
        _compare(f"| {name} | {limits}", kinds, tokens, LIMITS[limits], arguments)


def _kinds(path: Path) -> list[Kind]:
    rows, found = read_splitwise(path), []
    for gpu, gpus in GROUPS:
        fit = fit_iterations(timed_iterations(rows, MODEL, gpu, gpus))
        pool = Pool(gpus * list_price(gpu, PROVIDER).per_hour, ("a100-80gb", "h100-80gb").index(gpu), gpus)
        found.append(Kind(pool, fit.costs, Engine(BUDGET_TOKENS, SEQUENCES, 16, KV_TOKENS[gpus] // 16)))
    return found


def _traced(path: Path) -> RequestTokens:
    rows = [[whole(path, line, row, name) for name in ("ContextTokens", "GeneratedTokens")]
            for line, row in numbered_rows(path, ("ContextTokens", "GeneratedTokens"))]
    percents = np.linspace(0, 100, 101)
    prompt, output = np.maximum(np.percentile(np.array(rows), percents, axis=0).T, 1)
    pairs = [list(zip(percents.tolist(), tokens.tolist(), strict=True)) for tokens in (prompt, output)]
    return RequestTokens(input=Lengths(quantiles=pairs[0]), output=Lengths(quantiles=pairs[1]))


def _compare(row: str, kinds: list[Kind], tokens: RequestTokens, limits: Limits, arguments: argparse.Namespace
             ) -> None:
    """Print what every method plans for some requests under some limits."""
    mixed_rps = np.array([_highest_rps(one, tokens, limits) for one in kinds])
    buckets = buckets_of(tokens)
    sized_rps = np.array([[_highest_rps(kind, _one_size(one.prompt, one.output), limits) for kind in kinds]
                          for one in buckets])
    for rate_rps in arguments.rates:
        for plan in _plans(kinds, mixed_rps, sized_rps, np.array([one.share for one in buckets]), rate_rps):
            gpus = [sum(many * kind.pool.gpus for many, kind in zip(plan.servers, kinds, strict=True)
                        if kind.pool.entry == entry) for entry in (0, 1)]
            cost = sum(many * kind.pool.cost for many, kind in zip(plan.servers, kinds, strict=True))
            print(f"{row} | {rate_rps:g} | {plan.method} | {gpus[0]}, {gpus[1]} | {cost:,.2f} | {plan.bound} | "
                  f"{_replayed(plan, kinds, mixed_rps, tokens, limits, rate_rps, arguments.requests)} |", flush=True)


def _one_size(prompt: float, output: float) -> RequestTokens:
    return RequestTokens(input=Lengths(mean=prompt), output=Lengths(mean=output))


def _highest_rps(kind: Kind, tokens: RequestTokens, limits: Limits) -> float:
    return highest_rate_rps(tokens.input.counts, tokens.output.counts, limits, kind.engine, kind.costs)


def _plans(kinds: list[Kind], mixed_rps: np.ndarray, sized_rps: np.ndarray, shares: np.ndarray, rate_rps: float
           ) -> Iterator[Plan]:
    with np.errstate(divide="ignore"):
        loads = rate_rps * shares[:, None] / sized_rps
    found = allocate([Service(loads)], [one.pool for one in kinds], {}, SLICES, SOLVE_S)
    if found is not None:
        yield Plan("melange, routed by size", found.servers[0], shares=_dealt(found))
        yield Plan("melange, sizes mixed", found.servers[0])
    choices = [Choice(many * kind.pool.cost, many, 0, at) for at, kind in enumerate(kinds) if mixed_rps[at] > 0
               for many in [replicas(rate_rps, mixed_rps[at])]]
    [best] = choose([choices], [0], {0: np.inf})
    assert best is not None
    yield Plan("inferno (one type)", best.units * np.eye(len(kinds), dtype=int)[best.what])
    yield _optimum(kinds, mixed_rps, rate_rps)


def _dealt(found: Allocation) -> np.ndarray:
    return found.slices[0] / found.slices[0].sum(axis=1, keepdims=True)


def _optimum(kinds: list[Kind], mixed_rps: np.ndarray, rate_rps: float) -> Plan:
    cost = np.array([one.pool.cost for one in kinds])
    found = milp(cost, integrality=np.ones(len(kinds)), bounds=Bounds(0, np.inf),
                 constraints=LinearConstraint(mixed_rps[None], lb=rate_rps), options={"mip_rel_gap": 0})
    return Plan("optimum", np.rint(found.x).astype(int), f"{found.mip_dual_bound:,.2f}")


def _replayed(plan: Plan, kinds: list[Kind], mixed_rps: np.ndarray, tokens: RequestTokens, limits: Limits,
              rate_rps: float, requests: int) -> str:
    """P99 of the times of all requests, and how many are late; every server is an engine of its own."""
    random, count = np.random.default_rng(7), requests * int(plan.servers.sum())
    sent_ms = np.cumsum(random.exponential(1000 / rate_rps, count))
    prompt, output = tokens.input.counts.sample(count, 7), tokens.output.counts.sample(count, 8)
    kind = _routed(plan, mixed_rps, prompt, output, tokens, random)
    times = []
    for at, many in enumerate(plan.servers):
        mine = np.flatnonzero(kind == at)
        server = random.integers(max(many, 1), size=len(mine))
        for one in range(many):
            part = mine[server == one]
            if len(part):
                times.append(_served(kinds[at], sent_ms[part], prompt[part], output[part]))
    times_ms = np.concatenate(times, axis=1)
    late = late_shares(times_ms, limits)
    p99 = np.percentile(times_ms, 99, axis=1)
    return f"{p99[0]:,.0f}, {p99[1]:,.0f} | {late[:2].max():.1%}"


def _routed(plan: Plan, mixed_rps: np.ndarray, prompt: np.ndarray, output: np.ndarray, tokens: RequestTokens,
            random: np.random.Generator) -> np.ndarray:
    """(requests,) the kind that each request goes to."""
    share = plan.servers * mixed_rps / (plan.servers * mixed_rps).sum()
    table = np.tile(share, (len(prompt), 1))
    if plan.shares is not None:
        means = np.array([(one.prompt, one.output) for one in buckets_of(tokens)])
        powers = [bin_of(one) for one in (prompt, output, *means.T)]
        bucket = np.argmax((powers[0][:, None] == powers[2]) & (powers[1][:, None] == powers[3]), axis=1)
        table = plan.shares[bucket]
    return np.minimum((random.random(len(prompt))[:, None] > np.cumsum(table, axis=1)).sum(axis=1), len(share) - 1)


def _served(kind: Kind, sent_ms: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> np.ndarray:
    """(3, requests) to the first token, per further token and of the whole, in ms, after a warm-up."""
    table = request_table(sent_ms, prompt, output, kind.engine)
    replay(table, kind.engine, kind.costs, EVERYBODY, np.inf)
    tpot_ms = (table["end_ms"] - table["first_ms"]) / np.maximum(output - 1, 1)
    times_ms = np.array([table["first_ms"] - table["sent_ms"], tpot_ms, table["end_ms"] - table["sent_ms"]])
    return times_ms[:, len(sent_ms) // 10 :]


if __name__ == "__main__":
    main()
