"""Certificates: which shipped instances, and which large ones, have their plan's cost proven by the small checker.

Run as ``python benchmarks/verification/certificates.py [CASE ...] [--results DIR]``. A case is the name of an instance,
or ``around-s5-N``: N isolated workloads with distinct rates and SLOs (``benchmarks/scale.py``). Seconds are of CPU.
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results
from scale import around_s5

import provision
from provision.draw.output import print_table
from provision.instances.read import shipped_instances
from provision.models.base.errors import InputError
from provision.proofs.check import Facts, check
from provision.solving.certificate import certificate_of

COLUMNS = ("instance", "plan", "bound", "certified", "lines", "solve_s", "write_s", "check_s")
LARGE = ("igniter-120-seed0", "igniter-1000-seed0", "around-s5-1100")


def main() -> None:
    """Print one row per instance that there are certificates for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--time-limit", type=float, default=30.0)
    results.add_results(parser)
    options = parser.parse_args()
    rows = []
    for name in options.cases or (*shipped_instances(), *LARGE):
        instance = around_s5(int(name.split("-")[-1]), 0) if name.startswith("around-s5-") else provision.read(name)
        try:
            Facts(instance)
        except InputError as error:
            print(error, file=sys.stderr)
            continue
        rows.append((name, *measured(instance, options.time_limit)))
        print(f"{name} done: {rows[-1]}", file=sys.stderr, flush=True)
    print_table(COLUMNS, rows)
    results.write(options.results, "certificates", COLUMNS, rows, [0])


def measured(instance, limit_s) -> tuple[object, ...]:
    """Objective, bound, certified bound, lines, and seconds of CPU for solving, writing and checking."""
    moments = [time.process_time()]
    found = provision.solve(instance, time_limit_s=limit_s, replay=False)
    moments.append(time.process_time())
    certificate = certificate_of(instance, limit_s, found.objective)
    moments.append(time.process_time())
    proven = check(instance, certificate.lines)
    moments.append(time.process_time())
    assert float(proven) == certificate.bound
    seconds = [round(after - before, 2) for before, after in pairwise(moments)]
    return found.objective, found.bound, certificate.bound, len(certificate.lines), *seconds


if __name__ == "__main__":
    main()
