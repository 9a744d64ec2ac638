"""Jobs interrupted at random moments: is a plan lost, does a worker die, does a job end as it should, how late?

Run as ``python benchmarks/service/interrupted.py [--runs N] [--first SEED] [--limit S] [--at-once K] [--seconds S]
[--results DIR]``. A server has K workers (by default four per core). Each run is a job ``solve`` on one of the twelve
instances of ``benchmarks/verification/interruptions.py``, whose limits, moments and ways are drawn likewise: its time
limit ends it; a client cancels it, which is SIGINT to its worker; or a worker, any of them, is ended by SIGTERM, after
which its job begins again. Moments count from when the job runs.

Counted are jobs that were running when they were interrupted, plans that had been reported although the job ended
without a verified one, workers that died although nothing ended them, jobs that ended in another way than the documents
say, failures in the server's log, and jobs that ended later than 1 s or 10 % of the limit after they were interrupted,
if they did not begin again (a cancelled job without a plan may make one for 5 s). A job whose worker was ended three
times fails, as documented. With ``--results`` counts add to those that are there. Exit 1 if there is a lost plan, a
death, a wrong end or a failure.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "verification"))
import results
from interruptions import LATE, LATE_S, LEAST_S, written
from served import Client, ended, process

import provision
from provision.service.jobs import MOST_RESTARTS

EARLY = 0.5
"""The part of the moments whose logarithms are uniform; the others are uniform."""
ENDS_S = 600.0
QUICK = {"verb": "solve", "instance": "parvagpu-s1", "method": "greedy"}
WAYS = ("time limit", "cancelled", "worker ended by SIGTERM")
COUNTED = ("lost", "deaths", "wrong", "failures")
COLUMNS = ("interruption", "runs", "running", "plans", *COUNTED, "late", "latest_ms")


def main() -> int:
    """Interrupt all jobs and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--limit", type=float, default=2.0, help="the longest time limit")
    parser.add_argument("--at-once", type=int, default=4 * (os.cpu_count() or 1), metavar="K")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more runs are begun after these")
    results.add_results(parser)
    options, started = parser.parse_args(), perf_counter()
    tally, total = results.Tally(options.results, "interrupted-jobs", COLUMNS), Counter()
    seeds = range(options.first, options.first + options.runs)
    with (tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool,
          process(folder, "--workers", str(options.at_once)) as (running, url, log)):
        instances = [provision.read(one).model_dump(mode="json", exclude_none=True) for one in written(Path(folder))]
        client = Client(url)
        for id in [client.submit(QUICK) for _ in range(options.at_once)]:  # until all workers have loaded
            ended(client, id)

        def run(seed: int) -> tuple[str, dict[str, int]]:
            if perf_counter() - started > options.seconds:
                return "", {}
            return interrupted(client, running.pid, instances, seed, options.limit)

        for way, found in pool.map(run, seeds):
            if way:
                row = tally.rows.setdefault(way, Counter())
                row.update({name: found[name] for name in COLUMNS[1:-1] if name in found})
                row["latest_ms"] = max(row["latest_ms"], found["latest_ms"])
                total.update(found)
        deaths = max(0, total.pop("begun") - total.pop("ended"))
        tally.rows[WAYS[0]]["deaths"] += deaths
        total["deaths"] += deaths
        failed = [line for line in log if '"failure"' in line or "Traceback" in line]
        print("".join(failed), end="")
        tally.rows[WAYS[0]]["failures"] += len(failed)
        total["failures"] += len(failed)
        tally.write(seeds[: total["runs"]])
    print(" ".join(f"{name} {total[name]}" for name in COLUMNS[1:-1]))
    return 1 if any(total[name] for name in COUNTED) else 0


def interrupted(client: Client, server: int, instances: list[Any], seed: int, most_s: float
                ) -> tuple[str, dict[str, int]]:
    """Interrupt one job; returns how, and what is counted."""
    draw = random.Random(seed)
    way, instance, early = draw.choice(WAYS), instances[seed % len(instances)], draw.random() < EARLY
    moment_s = LEAST_S * (most_s / LEAST_S) ** draw.random() if early else draw.uniform(LEAST_S, most_s)
    limit_s = moment_s if way == WAYS[0] else most_s
    id = client.submit({"verb": "solve", "instance": instance, "time_limit_s": limit_s})
    while client.job(id)["status"] == "queued":
        sleep(LEAST_S)
    began = perf_counter()
    sleep(moment_s)
    before, hit = client.job(id), False
    if way == WAYS[1]:
        with suppress(provision.InputError):  # it has ended
            client.cancel(id)
    elif way == WAYS[2]:
        with suppress(psutil.NoSuchProcess, ProcessLookupError, IndexError):
            os.kill(draw.choice(list(_workers(server))), signal.SIGTERM)
            hit = True
    job = ended(client, id, ENDS_S)
    late_s = perf_counter() - began - moment_s
    result, told = job.get("result") or {}, any(one["objective"] is not None for one in job["incumbents"])
    again = way == WAYS[2] or job["restarts"] > 0
    thrice = job["status"] == "failed" and job["restarts"] == MOST_RESTARTS
    whole = bool(result.get("plan")) and provision.verify(
        provision.Instance(**instance), provision.Plan(**result["plan"])).ok
    found = {
        "runs": 1, "running": before["status"] == "running", "plans": whole, "lost": told and not whole and not thrice,
        "begun": job["restarts"] + thrice, "ended": hit,
        "wrong": not thrice and job["status"] not in ({"done", "cancelled"} if way == WAYS[1] else {"done"}),
        "late": not again and late_s > max(LATE_S, LATE * limit_s),
        "latest_ms": 0 if again else max(0, round(1000 * late_s)),
    }
    if what := [name for name in ("lost", "wrong", "late") if found[name]]:
        print(f"{seed}: {' '.join(what)}: {way} after {moment_s:.3f} s: {instance['name']} {job['status']}, restarts "
              f"{job['restarts']}, {late_s:.2f} s later; {job.get('problem')}", flush=True)
    return way, {name: int(value) for name, value in found.items()}


def _workers(server: int) -> Iterator[int]:
    """The processes of a server that are workers: the others have no session of their own."""
    for one in psutil.Process(server).children(recursive=True):
        if os.getsid(one.pid) == one.pid:
            yield one.pid


if __name__ == "__main__":
    sys.exit(main())
