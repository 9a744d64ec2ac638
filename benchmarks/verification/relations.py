"""Related instances solved with ``auto``: does a bound on one refute a plan of the other, or a plan not carry over?

Run as ``python benchmarks/verification/relations.py [--instances N] [--seed S] [--each K] [--time-limit T]
[--workers W] [--seconds S] [--results DIR]``. Instances are of all data kinds and latency rules with up to three
options; of each K relations are drawn: renamed, prices times two, a second tier, time rescaled, a workload halved, an
option loosened, longer SLOs, lower rates. Each time ``auto`` also begins with a plan of ``greedy``, and with one of a
related instance. The table counts relations; every contradiction is printed. With ``--results`` the run goes on where
the result file ends. Ends with ``instances N relations R contradictions M``; exit 1 if M > 0.
"""

import argparse
import math
import sys
from collections import Counter
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from relations import checked

from provision.draw.output import print_table

ALL = "all instances"
COLUMNS = ("relation", "instances", "contradictions", "seeds")


def main() -> int:
    """Check all instances and print what was compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=2, help="relations of an instance")
    parser.add_argument("--time-limit", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more instances are begun after these")
    results.add_results(parser)
    options = parser.parse_args()
    tally, started = results.Tally(options.results, "relations", COLUMNS), perf_counter()
    total = tally.rows.setdefault(ALL, Counter())
    with Pool(options.workers) as pool:
        each = partial(checked, time_limit_s=options.time_limit, most=options.each)
        while total["instances"] < options.instances and perf_counter() - started < options.seconds:
            first = options.seed + total["seeds"]
            for found in pool.map(each, range(first, first + options.workers)):
                tally.add(ALL, "seeds")
                if found is None:  # options that contradict each other
                    continue
                lines, names = found
                tally.add(ALL, "instances", *["contradictions"] * len(lines))
                for name in names:
                    tally.add(name, "instances")
                for line in lines:
                    print(line, flush=True)
            tally.write(range(options.seed, options.seed + total["seeds"]))
    print_table(COLUMNS, [[name, *(counts[one] for one in COLUMNS[1:])] for name, counts in sorted(tally.rows.items())])
    wrong = total["contradictions"]
    related = sum(counts["instances"] for counts in tally.rows.values()) - total["instances"]
    spent = f"{perf_counter() - started:.0f} s"
    print(f"instances {total['instances']} relations {related} contradictions {wrong} ({spent})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
