"""Options with every data kind and latency rule, each solved in a fresh process with 2 s: does one end in an error?

Run as ``python benchmarks/fresh.py [--together N] [--part K/N] [--workers W] [--only TEXT]``; ``--together 2`` tries
all pairs of options. Ends with ``cases N failures M`` and exit 1 if M > 0.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
from option_grid import cases, freshly


def main():
    """Solve all combinations and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--together", type=int, default=1, help="options at once")
    parser.add_argument("--part", default="0/1", help="every N-th combination from the K-th on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="combinations whose name has this text")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    several = [one for one in cases(options.together) if options.only in one.name][first::step]
    failures = 0
    for fault in freshly(several, options.workers):
        if fault is not None:
            failures += 1
            print(fault, flush=True)
    print(f"cases {len(several)} failures {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
