"""Anytime: is what a search knows at second t the same under different time limits?

Run as ``python benchmarks/verification/anytime.py [CASE ...] [--limits 8 30 120] [--seed N] [--pictures DIR]``. Each is
solved once per limit, from the same seed. A row tells when the first plan came, and plan and bound at some seconds that
all limits reach. Seconds count from the beginning of the search, without what was compiled.
"""

import argparse
from pathlib import Path

import provision
from provision.commands.common import print_table
from provision.draw.convergence import Trace, convergence_figure
from provision.draw.figures import write_figure

CASES = ("parvagpu-s6", "igniter-testbed-12", "igniter-120-seed0", "igniter-variants-12")
AT_S = (1.0, 3.0, 8.0)


def main():
    """Print a row for every case and limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--limits", nargs="+", type=float, default=[8.0, 30.0, 120.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", metavar="DIR", help="draw every trace into this folder")
    options = parser.parse_args()
    known = [f"{what} at {second:g} s" for second in AT_S for what in ("plan", "bound")]
    rows = []
    for name in options.cases:
        instance = provision.read(name)
        provision.solve(instance, time_limit_s=1.0, seed=options.seed, replay=False)  # compiles
        for limit_s in options.limits:
            trace = Trace()
            found = provision.solve(instance, time_limit_s=limit_s, seed=options.seed, report=trace, replay=False)
            if options.pictures:
                figure = convergence_figure(instance, found, trace)
                write_figure(figure, Path(options.pictures) / f"{name}-{limit_s:g}.png", force=True)
            first_s = next((one.seconds for one in trace.moments if one.objective is not None), None)
            rows.append([name, limit_s, None if first_s is None else round(first_s, 2), *at_seconds(instance, trace),
                         found.objective, found.bound])
    print_table(("case", "limit", "first plan s", *known, "plan", "bound"), rows)


def at_seconds(instance, trace):
    """Plan and bound at each of AT_S."""
    cells = []
    for second in AT_S:
        before = [one for one in trace.best(instance) if one.seconds <= second]
        cells += [before[-1].objective, before[-1].bound] if before else [None, None]
    return cells


if __name__ == "__main__":
    main()
