"""The gate of a change to the search: values and bounds of ``auto`` before and after it.

Run as ``python benchmarks/verification/gate.py [--cases CASE ...] [--time-limit S] [--method NAME] [--out F]`` on both
trees, with a time limit in seconds of CPU, then as ``python benchmarks/verification/gate.py --compare BEFORE AFTER``. A
line of F holds a case, the status, the value, the bound and the seconds of CPU. Cases, each with the numbers from A up
to B by C:

shipped
    Every instance that ships.
combination:A:B:C
    Combinations of options by their position (``combinations.py``).
throughput:A:B:C
    The same among those of most throughput only.
half_slo:A:B:C, queueing:A:B:C
    Random small instances by seed (``verification/small.py``).
scale:CASE:SEED
    A case of ``scale.py``.
mixed:WORKLOADS:SEED
    V100s and T4s, an SLO of its own for each workload (``size/large.py``).

`provision warm-up` compiles kernels before; what is left to compile counts as CPU. Exit 1 if a comparison finds a worse
value or bound.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / room) for room in ("", "papers", "size"))
import large
import scale
import small
from combinations import combinations

import provision
from provision.models.base import clock
from provision.models.problem.instance import Instance

CASES = ["shipped", "combination:0:144:3", "throughput:0:48:4", "half_slo:0:20:1", "queueing:0:10:1",
         "scale:testbed-free:0", "scale:free-120:0", "scale:queueing-testbed:0", "scale:queueing-s1:0",
         "scale:queueing-s3:0", "scale:queueing-s6:0"]
ROUNDING = 1e-6


def drawn_from(case: str, folder: Path) -> Iterator[tuple[str, Instance]]:
    """The names and instances of a case."""
    kind, *parts = case.split(":")
    if kind == "shipped":
        yield from ((name, provision.read(name)) for name in provision.shipped_instances())
    elif kind == "scale":
        found = scale.instance_of(parts[0], int(parts[1]), folder)
        yield case, found if isinstance(found, Instance) else provision.read(found)
    elif kind == "mixed":
        yield case, large.instance_of(int(parts[0]), "v100-t4", int(parts[1]))
    else:
        chosen = range(*map(int, parts))
        if kind in ("half_slo", "queueing"):
            yield from ((f"{kind} {seed}", small.drawn(seed, kind)) for seed in chosen)
        else:
            wanted = "max_throughput" if kind == "throughput" else ""
            among = [(name, content) for name, content in combinations() if wanted in name]
            yield from ((name, Instance.model_validate(content)) for name, content in (among[at] for at in chosen))


def run(cases: list[str], method: str, limit_s: float, out: Path) -> None:
    """Solve the cases and write a line for each."""
    clock.perf_counter = time.process_time
    with tempfile.TemporaryDirectory() as folder, out.open("w") as file:
        for name, instance in (one for case in cases for one in drawn_from(case, Path(folder))):
            began_s = time.process_time()
            found = provision.solve(instance, method, limit_s, 0, replay=False)
            row = [name, found.status, found.objective, found.bound, round(time.process_time() - began_s, 2)]
            for where in (file, sys.stdout):
                print(json.dumps(row), file=where, flush=True)


def compare(before: Path, after: Path) -> bool:
    """Print every case that differs and the sums of both; returns whether no value and no bound is worse."""
    old, new = ({row[0]: row[1:] for row in map(json.loads, path.read_text().splitlines())} for path in (before, after))
    common, worse = [name for name in old if name in new], 0
    for name in common:
        most = "max_throughput" in name
        (_, value, bound, _), (_, its_value, its_bound, _) = old[name], new[name]
        better = [_change(value, its_value, most), _change(bound, its_bound, not most)]
        worse += min(better) < 0
        if any(better):
            print(f"{'WORSE ' if min(better) < 0 else 'better'} {name}: {old[name]} -> {new[name]}")
    for label, rows in (("before", old), ("after", new)):
        chosen = [rows[name] for name in common]
        gaps = [abs(1 - bound / value) for _, value, bound, _ in chosen if value and bound is not None]
        proven = sum(status in ("optimal", "infeasible") for status, *_ in chosen)
        print(f"{label}: {len(chosen)} cases, {proven} proven, mean gap {100 * sum(gaps) / max(1, len(gaps)):.3f} %, "
              f"{sum(row[-1] for row in chosen):.0f} s of CPU")
    return not worse


def _change(old: float | None, new: float | None, higher: bool) -> int:
    """1 if the new number is better, -1 if it is worse, 0 if they are alike; ``higher`` tells which way is better."""
    if old is None or new is None:
        return (new is not None) - (old is not None)
    if abs(old - new) <= ROUNDING * max(1.0, abs(old)):
        return 0
    return 1 if (new > old) == higher else -1


def main() -> int:
    """Run cases, or compare two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", metavar="CASE", default=CASES)
    parser.add_argument("--time-limit", type=float, default=5.0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--out", type=Path, default=Path("gate.jsonl"))
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare is not None:
        return 0 if compare(*options.compare) else 1
    run(options.cases, options.method, options.time_limit, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
