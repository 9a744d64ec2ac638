"""How far to trust predictions: the errors that shipped performance data state, and what they make of percentiles.

Run as ``python benchmarks/trust.py [--results DIR]``. It computes nothing anew: the errors were seen on points left out
by the command that each file names. ``trust-bands.csv`` has, for every file and slice type, range of batch sizes or of
SM shares, quantiles of measured over predicted times at 5, 50 and 95 % for the model in the middle, and for the models
with the lowest and the highest one. ``trust-percentiles.csv`` has how much longer percentiles of latency are than
predicted if service times are longer by some part, by the queueing rule: batches of up to 8 under Poisson arrivals.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent / "papers"))
import results

from provision.draw.output import print_table
from provision.models.performance.bands import SeenErrors
from provision.models.performance.catalogue import load_performance, overall_bands, shipped_performance
from provision.models.performance.operating_points import Prediction
from provision.models.traffic.rule import Traffic
from provision.models.traffic.rules import rule_of

BANDS = ("data", "place", "kind", "gpu", "models", "points", "low", "middle", "high", "lowest", "highest")
LEVELS = (0.05, 0.5, 0.95)
PERCENTILES = ("load", "longer", "p50", "p95", "p99")
LOADS, LONGER = (0.5, 0.7, 0.8), (0.05, 0.1, 0.2)
BATCH, BATCH_MS = 8, 10.0
MOST = 10**6
"""The largest batch size of a range that has no end."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_results(parser)
    options = parser.parse_args()
    for name, columns, rows in (("trust-bands", BANDS, list(bands())),
                                ("trust-percentiles", PERCENTILES, list(percentiles()))):
        print_table(columns, [[f"{one:.3f}" if isinstance(one, float) else one for one in row] for row in rows])
        results.write(options.results, name, columns, rows)


def bands() -> Iterator[tuple[object, ...]]:
    """Yield the rows of BANDS."""
    for name in shipped_performance():
        data = load_performance(name)
        about = data.kind, data.gpu
        if data.bands is None:
            stated = [one.service for model in data.models for one in overall_bands(data, model)]
            if stated:
                error = getattr(data, "error", None)
                points = error.points if error else 0
                low, high = (sorted(column) for column in zip(*((one.low, one.high) for one in stated), strict=True))
                yield name, "all", *about, len(data.models), points, median(low), 1.0, median(high), low[0], high[-1]
            continue
        places: dict[str, list[SeenErrors]] = {}
        for seen in data.bands.models.values():
            for one in seen:
                places.setdefault(place(one), []).append(one)
        for where, several in places.items():
            low, middle, high = ([one.ratio(level) for one in several] for level in LEVELS)
            yield (name, where, *about, len(several), sum(one.points for one in several), median(low), median(middle),
                   median(high), min(low), max(high))


def place(one: SeenErrors) -> str:
    """Where a distribution of errors holds, in words."""
    words = [] if one.beside is None else ["beside others" if one.beside else "alone"]
    words += [] if one.profile is None else [one.profile]
    if one.batches is not None:
        low, high = one.batches
        to = "" if low == high else f" to {high}" if high < MOST else " and more"
        words.append(f"batch {low}{to}")
    if one.sm_shares is not None:
        words.append(f"SM share {one.sm_shares[0]:.0%} to {one.sm_shares[1]:.0%}")
    return " ".join(words) or "all"


def percentiles() -> Iterator[tuple[object, ...]]:
    """Yield the rows of PERCENTILES."""
    for load in LOADS:
        for longer in LONGER:
            factors = [_tail_ms(percentile, load, 1 + longer) / _tail_ms(percentile, load, 1.0)
                       for percentile in (50.0, 95.0, 99.0)]
            yield load, longer, *factors


def _tail_ms(percentile: float, load: float, factor: float) -> float:
    """A percentile at a load of what full batches carry, with service times multiplied by a factor, in ms."""
    full_rps = 1000 * BATCH / BATCH_MS
    found = Prediction(BATCH_MS * factor, full_rps / factor, None)
    rule = rule_of("queueing").under(Traffic(percentile=percentile))
    tail_ms = rule.tail_ms(BATCH, 1, found, load * full_rps, 0.0)
    assert tail_ms is not None
    return tail_ms


if __name__ == "__main__":
    main()
