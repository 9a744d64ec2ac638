"""Bursts of mixed sizes at one replica that gets the highest rate by the latency rule: how many requests are late?

Run as ``python benchmarks/traffic/bursts.py [--cases N] [--seed S] [--results DIR]``. A case is a replica (batch size,
processes, hold time over the budget) and the largest burst of its workload, of which it gets all, or a part as random
routing deals it. It is replayed with bursts of one size, of two, of any up to the largest, and of few large ones among
single requests, at Poisson moments. A case counts as late when more than 1 % of the requests are, by three standard
errors. ``below`` is how far the rate is below that of single requests, in percent, on average.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from provision.draw.output import print_table
from provision.models.traffic.bursts import steps
from provision.models.traffic.queue_replays import late_by_part
from provision.models.traffic.queueing import Queueing
from provision.models.traffic.rule import Traffic

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BURSTS = (2, 3, 4, 5, 8, 12, 16, 24, 32)
HOLDS_MS = (3.0, 8.0, 15.0, 25.0, 33.0, 36.0, 38.0, 40.0, 43.0, 45.0, 49.0, 51.0, 55.0, 60.0, 70.0, 80.0)
BUDGET_MS, LATE, REQUESTS, PARTS = 100.0, 0.01, 60_000, 16
LEAST_PART = 0.02
COLUMNS = ("bursts", "replays", "late", "worst", "below")


def mixtures(burst: int, many: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Sizes of ``many`` bursts of at most ``burst`` requests, by several laws."""
    few, more = sorted(rng.integers(1, burst + 1, 2))
    yield np.full(many, burst)
    yield np.full(many, rng.integers(1, burst + 1))
    yield rng.integers(1, burst + 1, many)
    yield np.where(rng.random(many) < rng.uniform(0.05, 0.95), few, more)
    yield np.where(rng.random(many) < rng.uniform(0.2, 0.98), 1, burst)
    yield rng.integers(max(1, burst - max(1, burst // 4)), burst + 1, many)


def late(sizes: np.ndarray, batch: int, processes: int, hold_ms: float, rate_rps: float, rng: np.random.Generator
         ) -> np.ndarray:
    """The fraction of late requests in each part of a replay, (PARTS,)."""
    moments_ms = rng.exponential(1000 * sizes.mean() / rate_rps, len(sizes)).cumsum()
    patience = BUDGET_MS / hold_ms - 1
    found: np.ndarray = late_by_part(np.repeat(moments_ms, sizes) / hold_ms, batch, processes, patience, 1 + patience,
                                     1.0, np.ones(1), PARTS)
    return found


def case(rng: np.random.Generator, parted: bool) -> tuple[list[np.ndarray], float] | None:
    """The late requests of each mixture at one replica, and its rate over that of single requests; None without one."""
    batch, processes = int(rng.choice(BATCHES)), int(rng.choice([1, 1, 2, 3, 4]))
    burst, hold_ms = int(rng.choice(BURSTS)), float(rng.choice(HOLDS_MS))
    part = 1.0
    if parted:  # at the rates where the size that a replica is judged by changes, it is judged least
        part = float(rng.choice([one for _, one in steps(burst, 1.0, LATE) if LEAST_PART < one < 1] or [1.0]))
    alone = float(Queueing().capacity_rps(batch, processes, hold_ms, hold_ms, BUDGET_MS))
    rate_rps = float(Queueing(Traffic(burst=burst)).capacity_rps(batch, processes, hold_ms, hold_ms, BUDGET_MS))
    if parted:  # a workload of which this replica gets the part, and carries it just so
        low, high = 0.0, alone / part
        for _ in range(30):
            whole_rps = (low + high) / 2
            rule = Queueing(Traffic(burst=burst, whole_rps=whole_rps))
            enough = rule.capacity_rps(batch, processes, hold_ms, hold_ms, BUDGET_MS) >= part * whole_rps * (1 - 1e-5)
            low, high = (whole_rps, high) if enough else (low, whole_rps)
        rate_rps = part * low
    if rate_rps <= alone * 1e-3:
        return None
    found = []
    for sizes in mixtures(burst, max(int(REQUESTS / (part * burst)), 100), rng):
        here = rng.binomial(sizes, part)
        found.append(late(here, batch, processes, hold_ms, rate_rps, rng))
    return found, rate_rps / alone


def main() -> int:
    """Replay all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="replicas, of which each half gets all or parts")
    parser.add_argument("--seed", type=int, default=0)
    results.add_results(parser)
    options = parser.parse_args()
    rng, rows = np.random.default_rng(options.seed), []
    for name, parted in (("whole", False), ("parts by random routing", True)):
        known = [found for _ in range(options.cases // 2) if (found := case(rng, parted)) is not None]
        means = np.array([one.mean() for several, _ in known for one in several])
        errors = np.array([one.std(ddof=1) / PARTS**0.5 for several, _ in known for one in several])
        below = 100 * (1 - float(np.mean([ratio for _, ratio in known])))
        rows.append([name, len(means), int((means > LATE + 3 * errors).sum()), float(means.max()), below])
    print_table(COLUMNS, rows)
    results.write(options.results, "bursts", COLUMNS, rows, [options.seed])
    return 1 if any(row[2] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
