"""Where the time of a search goes: CPU seconds by part of the search, and what each step of the gap took.

Run as ``python benchmarks/size/parts.py [CASE ...] [--seed N] [--limit S] [--results DIR]``. Cases are those of
``anytime.py``. A timer looks every 10 ms at what runs. The CPU seconds since its last look go to the part (``PARTS``)
of the innermost function that belongs to one; seconds inside a solver or a compiled kernel go to the function that
called it. Functions are not instrumented, so that the search takes as long as without the timer. A row tells the
seconds of each part until the gap between plan and bound first fell from one value to the next (``GAPS``, in percent),
and how many seconds that was for each percent; the last row of a case is its whole search.
"""

import argparse
import signal
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from time import process_time
from types import FrameType

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("verification", "papers")]
import results
from anytime import case

import provision
from provision.draw.output import print_table
from provision.models.base import clock
from provision.models.problem.search import Incumbent

CASES = ("free-120", "own-120", "single-1000", "free-1000", "free-10000")
GAPS = (100.0, 10.0, 5.0, 3.0, 2.0, 1.0, 0.5, 0.0)
PARTS = {
    "formulations.pricing.": "exact pricing",
    "formulations.values.bound.": "exact pricing",
    "formulations.linear.": "linear programs",
    "formulations.values.program.": "linear programs",
    "formulations.values.plan.": "rounding",
    "formulations.master.plans.": "rounding",
    "heuristics.": "greedy, ruin and recreate",
    "verification.": "verification",
}
"""The parts of the search by the beginnings of the names of modules and functions, the first that fits."""
OTHER = "other"
EVERY_S = 0.01
SHOWN = (*dict.fromkeys(PARTS.values()), OTHER)
COLUMNS = ("case", "from_percent", "to_percent", "cpu_s", "s_per_percent", *SHOWN)


def part_of(frame: FrameType | None) -> str:
    """The part of the innermost function that belongs to one."""
    while frame is not None:
        name = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}".removeprefix("provision.")
        for beginning, part in PARTS.items():
            if name.startswith(beginning):
                return part
        frame = frame.f_back
    return OTHER


class Watch:
    """Seconds by part so far, and as they were when the gap first reached each of GAPS."""

    def __init__(self) -> None:
        self.looked_s, self.seconds = process_time(), Counter[str]()
        self.reached: dict[float, Counter[str]] = {GAPS[0]: Counter()}

    def look(self, _: int, frame: FrameType | None) -> None:
        """Count the seconds since the last look; the timer calls this."""
        now_s = process_time()
        self.seconds[part_of(frame)] += now_s - self.looked_s
        self.looked_s = now_s

    def report(self, news: Incumbent) -> None:
        """Keep the seconds where a plan and bound bring the gap to a new value."""
        if news.objective is not None and news.bound is not None:
            percent = 100 * abs(1 - news.bound / news.objective)
            for gap in GAPS:
                if percent <= gap + 1e-7:
                    self.reached.setdefault(gap, self.seconds.copy())

    def rows(self, name: str, last_percent: float) -> list[list[object]]:
        """The rows of a case."""
        marks = [gap for gap in GAPS if gap in self.reached]
        found = [self._row(name, one, other, self.reached[other], self.reached[one]) for one, other in pairwise(marks)
                 if self.reached[other].total() > self.reached[one].total()]
        return [*found, self._row(name, GAPS[0], round(last_percent, 2), self.seconds, Counter())]

    @staticmethod
    def _row(name: str, one: float, other: float, until: Counter[str], before: Counter[str]) -> list[object]:
        spent = {part: round(until[part] - before[part], 2) for part in SHOWN}
        total = until.total() - before.total()
        return [name, one, other, round(total, 2), round(total / (one - other), 2), *spent.values()]


def main() -> None:
    """Print the rows of every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0)
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time
    rows: list[list[object]] = []
    for name in options.cases:
        instance = case(name, options.seed)
        provision.solve(instance.replace(workloads=instance.workloads[:12]), time_limit_s=2, replay=False)  # compiles
        watch = Watch()
        signal.signal(signal.SIGALRM, watch.look)
        signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
        found = provision.solve(instance, "auto", options.limit, options.seed, watch.report, replay=False)
        signal.setitimer(signal.ITIMER_REAL, 0)
        rows += watch.rows(name, 100 * (found.gap or 0.0))
        print(*(" | ".join(map(str, row)) for row in rows if row[0] == name), sep="\n", flush=True)
        results.write(options.results, "parts", COLUMNS, rows, [options.seed])
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
