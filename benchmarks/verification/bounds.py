"""Which proof gives the final bound? A bound that never does so on any instance can be deleted.

Run as ``python benchmarks/verification/bounds.py [--limit S] [--every K] [--only TEXT] [--results DIR]``. ``auto``
plans the shipped instances, those that share GPUs or slices also under the rule ``queueing``, every K-th combination of
options (``combinations.py``), and small draws on three GPU types (``small.py``). Time is that of the CPU. A row tells
for how many instances a function was the first to prove the final bound, how many of these are solved to the optimum,
and how often it raised a bound at all.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import combinations
import results
import small

import provision
from provision.draw.output import print_table
from provision.instances.read import shipped_instances
from provision.models.base import clock
from provision.models.problem.instance import Instance
from provision.models.problem.search import Progress

COLUMNS = ("proven by", "final bounds", "of them optimal", "raised a bound")
DRAWS = {"half_slo": range(8), "queueing": range(6)}
ROOMS = ("/formulations/", "/heuristics/", "/provision/solving/")
"""The rooms of the search, in the paths of their files."""


def instances(every: int) -> Iterator[tuple[str, Instance]]:
    """Yield the names of the instances, and the instances."""
    for name in shipped_instances():
        instance = provision.read(name)
        yield name, instance
        if instance.policy.share_slices or "gpulets" in name:
            yield f"{name}, queueing", instance.with_policy(latency_budget="queueing")
    for name, content in islice(combinations.combinations(), 0, None, every):
        yield name, Instance.model_validate(content)
    for rule, seeds in DRAWS.items():
        for seed in seeds:
            yield f"draw {seed}, {rule}", small.drawn(seed, rule)


def source(frame: FrameType | None) -> str:
    """The innermost function of the search that called: its module and name. A step of ``auto`` is named itself."""
    while frame is not None:
        if any(room in frame.f_code.co_filename for room in ROOMS):
            given = frame.f_locals.get("method") or frame.f_locals.get("step")
            name = getattr(given, "name", "") or getattr(given, "__module__", "").removeprefix("provision.")
            place = f"{frame.f_globals['__name__'].removeprefix('provision.')}.{frame.f_code.co_name}"
            return f"{place} of {name}" if name else place
        frame = frame.f_back
    return "outside of the search"


def main() -> None:
    """Plan all instances, and print a row for each source of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=8.0)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--only", default="", help="instances whose name has this text")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = time.process_time
    prove, raised, counts = Progress.prove, list[tuple[str, float]](), dict[str, list[int]]()

    def proving(progress: Progress, bound: float | None) -> bool:
        if not prove(progress, bound):
            return False
        assert bound is not None
        raised.append((source(sys._getframe(1)), bound))
        return True

    Progress.prove = proving  # type: ignore[method-assign]
    for name, instance in instances(options.every):
        if options.only not in name:
            continue
        raised.clear()
        found = provision.solve(instance, time_limit_s=options.limit, replay=False)
        other = "no bound" if found.bound is None else "a report to the caller"
        first = next((one for one, bound in raised if bound == found.bound), other)
        for one, _ in raised:
            counts.setdefault(one, [0, 0, 0])[2] += 1
        final = counts.setdefault(first, [0, 0, 0])
        final[0] += 1
        final[1] += found.status == "optimal"
        print(f"{name}: {found.status}, {first}", flush=True)
    rows = sorted(([one, *many] for one, many in counts.items()), key=lambda row: [-row[1], -row[3]])
    print_table(COLUMNS, rows)
    results.write(options.results, "bounds", COLUMNS, rows, sorted({*DRAWS["half_slo"], *DRAWS["queueing"]}))


if __name__ == "__main__":
    main()
