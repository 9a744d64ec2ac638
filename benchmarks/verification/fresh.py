"""Options with every data kind and latency rule, each solved in a fresh process with 2 s: does one end in an error?

Run as ``python benchmarks/verification/fresh.py [--together N] [--part K/N] [--workers W] [--only TEXT] [--seconds S]
[--results DIR]``; ``--together 2`` tries all pairs of options. With ``--results`` cases that the result file counts
already are left out. Ends with ``cases N failures M`` and exit 1 if M > 0.
"""

import argparse
import math
import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from option_grid import KINDS, cases, freshly


def main() -> int:
    """Solve all combinations and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--together", type=int, default=1, help="options at once")
    parser.add_argument("--part", default="0/1", help="every N-th combination from the K-th on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="combinations whose name has this text")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more combinations are begun after these")
    results.add_results(parser)
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    several = [one for one in cases(options.together) if options.only in one.name][first::step]
    tally = results.Tally(options.results, f"fresh-{options.together}", ("data", "cases", "failures"))
    started = perf_counter()
    left = {kind: tally.rows.get(kind, {}).get("cases", 0) for kind in KINDS}
    done = failures = 0
    waiting = [one for kind in KINDS for one in [one for one in several if one.kind == kind][left[kind]:]]
    for at in range(0, len(waiting), options.workers):
        if perf_counter() - started > options.seconds:
            break
        batch = waiting[at: at + options.workers]
        for one, fault in zip(batch, freshly(batch, options.workers), strict=True):
            tally.add(one.kind, "cases", *(["failures"] if fault else []))
            done, failures = done + 1, failures + bool(fault)
            if fault is not None:
                print(fault, flush=True)
        tally.write()
    print(f"cases {done} failures {failures}, {len(waiting) - done} are left")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
