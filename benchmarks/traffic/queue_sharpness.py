"""How close planned loads come to the largest that long replays keep: the sharpness of the latency rule.

Run as ``python benchmarks/traffic/queue_sharpness.py``. For a grid of batch sizes, numbers of processes and patience it
prints the planned load and its part of the largest load at which a replay of four million requests, with arrivals that
the rule's tables have not seen, keeps the percentile. The last line counts the points, those more than 3 % below the
largest, and those above it. ``--cv`` takes other arrivals (renewal), ``--fixed-share`` faster small batches,
``--service-cv`` batch times that vary; ``--tabulate OUT`` writes the table that the package ships.
"""

import argparse
import itertools
import sys

import numpy as np

from provision.draw.output import print_table
from provision.models.traffic.arrivals import POISSON, Renewal
from provision.models.traffic.queue_replays import Queue, late_shares
from provision.models.traffic.queue_rule import most_load
from provision.models.traffic.queue_tables import HIGH_LOADS, MARGIN, curve, tabulated

SIZES = (1, 2, 4, 5, 8, 10, 16, 28, 32, 64, 100)
PROCESSES = (1, 2, 3, 5)
TURNS = (0.5, 0.9, 1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
SHARP = 0.97
REQUESTS = 2**22
SEED = 99
HALVINGS = 7


def main() -> None:
    """Print the grid and the summary, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cv", type=float, default=1.0)
    parser.add_argument("--fixed-share", type=float, default=1.0)
    parser.add_argument("--service-cv", type=float, default=0.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES)
    parser.add_argument("--turns", type=float, nargs="+", default=TURNS)
    parser.add_argument("--tabulate", metavar="OUT")
    options = parser.parse_args()
    if options.tabulate:
        np.savez_compressed(options.tabulate, turns=tabulated())
        return
    arrivals = POISSON if options.cv == 1 else Renewal(cv=options.cv)
    queue = Queue(arrivals, fixed_share=options.fixed_share, service_cv=options.service_cv)
    rows = []
    for batch, processes, turns in itertools.product(options.sizes, options.processes, options.turns):
        planned = float(most_load(curve(queue, batch, processes), np.array([turns / processes]))[0])
        if planned:
            part = planned / largest_load(queue, batch, processes, turns / processes, planned)
            rows.append([batch, processes, turns, round(planned, 4), round(part, 4)])
            print(*rows[-1], file=sys.stderr)
    print_table(["batch", "processes", "patience in turns", "planned load", "part of the largest"], rows)
    parts = np.array([row[-1] for row in rows])
    capped = np.array([row[3] for row in rows]) >= round(MARGIN * HIGH_LOADS[-1], 4)
    print(f"points {len(parts)} dull {((parts < SHARP) & ~capped).sum()} above {(parts > 1).sum()} "
          f"median {np.median(parts):.3f} least {parts[~capped].min():.3f} most {parts.max():.3f}")


def largest_load(queue: Queue, batch: int, processes: int, patience: float, near: float) -> float:
    """The largest load at which a long replay keeps the percentile, looked for around a load."""
    low, high = 0.97 * near, min(1.25 * near, 0.999)
    for _ in range(HALVINGS):
        middle = (low + high) / 2 if high / low < 1.05 else low * (high / low) ** 0.25
        shares = late_shares(queue, batch, processes, middle, patience, requests=REQUESTS, seed=SEED)
        kept = shares.mean() <= queue.late
        low, high = (middle, high) if kept else (low, middle)
    return (low + high) / 2


if __name__ == "__main__":
    main()
