"""Speed-up by processes: a sweep with one and two workers, and a schedule for more, simulated from measured times.

Run as ``python benchmarks/size/workers.py [--points N] [--workers N ...] [--simulated N ...]``. The tasks are those of
a sweep over the rates of parvagpu-s5: eight neighbouring points each. First they run one after the other here,
and each is timed. Then the same tasks run in processes; starting these counts. At last a schedule is simulated: every
free worker takes the next task, with the measured times, without start and transfers. It is computed for the numbers
of workers that were measured as well, so that one can see how far simulation and measurement are apart.
"""

import argparse
import heapq
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

import provision
from provision.draw.output import print_table
from provision.models.problem.executor import IN_PROCESS, Processes
from provision.sweeps.run import CHUNK, chunk_rows

SETTINGS = {"method": "auto", "time_limit_s": 60.0, "seed": 0}
COLUMNS = ("how", "workers", "tasks", "seconds", "speedup")


def timed(number: int, given: object, points: object, settings: object) -> float:
    """The seconds of one task of a sweep."""
    begun = perf_counter()
    chunk_rows(number, given, points, settings)
    return perf_counter() - begun


def scheduled_s(seconds: Sequence[float], workers: int) -> float:
    """When the last task ends, if every free worker takes the next one."""
    free = [0.0] * workers
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def main() -> None:
    """Print a row per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=96)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--simulated", type=int, nargs="+", default=[1, 2, 64])
    results.add_results(parser)
    options = parser.parse_args()
    instance = provision.read("parvagpu-s5")
    points = [{"rate": 0.5 + at / options.points} for at in range(options.points)]
    tasks = [(at, points[at * CHUNK : (at + 1) * CHUNK], SETTINGS) for at in range(-(-len(points) // CHUNK))]
    seconds = [one for _, one in IN_PROCESS.results(timed, [(at, instance, *rest) for at, *rest in tasks])]
    alone_s = sum(seconds)
    rows = [["in the process", 1, len(tasks), alone_s, 1.0]]
    for workers in options.workers:
        begun = perf_counter()
        with Processes(workers) as executor:
            given = executor.share(instance)
            executor.map(chunk_rows, [(at, given, *rest) for at, *rest in tasks])
        took_s = perf_counter() - begun
        rows.append(["processes", workers, len(tasks), took_s, alone_s / took_s])
    for workers in options.simulated:
        took_s = scheduled_s(seconds, workers)
        rows.append(["simulated", workers, len(tasks), took_s, alone_s / took_s])
    print_table(COLUMNS, rows)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    results.write(options.results, "workers", COLUMNS, rows, [0])


if __name__ == "__main__":
    main()
