"""Searches interrupted at random moments: does a process die, is a plan lost, is the exit code wrong, how late is it?

Run as ``python benchmarks/verification/interruptions.py [--runs N] [--first SEED] [--limit S] [--at-once K]
[--seconds S] [--tree FOLDER] [--label NAME] [--results DIR]``. Each run is ``provision solve`` in a fresh process, K of
them at a time (by default four per core), on one of twelve instances of every data kind. It is interrupted at a random
moment from 1 ms to the limit: by its time limit, by SIGINT or by SIGTERM. Counted are processes that died of another
signal, tracebacks, plans that had been reported although none came out verified, exit codes that do not fit the answer,
and answers that came later than 1 s or 10 % of the limit after the interruption. With ``--tree``
another checkout with an environment of its own is measured. With ``--results`` counts add to those of ``--label``.
Ends with ``runs N deaths D lost L wrong W tracebacks T late A``; exit 1 if any of the first four counts is above 0.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from option_grid import KINDS

import provision

SHIPPED = ("parvagpu-s5", "parvagpu-s3-shared", "igniter-testbed-12", "gpulets-equal", "inss-six")
MANY = 6
"""How many workloads with other rates each workload of a small instance becomes."""
LEAST_S, LATE_S, LATE = 0.001, 1.0, 0.1
HANGS_S = 300.0
COUNTED = ("deaths", "lost", "wrong", "tracebacks")
COLUMNS = ("tree and interruption", "runs", "plans", *COUNTED, "late", "latest_ms")
CHILD = """
import sys
from contextlib import contextmanager
from provision import cli

def with_marks(*given):
    made = parser(*given)
    module = sys.modules["provision.commands.planning.solve"]
    planning = module.planning

    @contextmanager
    def marking(*given):
        with planning(*given) as watch:
            def report(news):
                watch.report(news)
                if news.plan is not None:
                    open(marker, "a").close()
            yield watch._replace(report=report)

    module.planning = marking
    return made

parser, cli.parser = cli.parser, with_marks
marker = sys.argv.pop(1)
sys.exit(cli.main())
"""
"""``provision`` that writes a file as soon as a plan is reported."""


def main() -> int:
    """Interrupt all runs and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--limit", type=float, default=4.0, help="the longest time limit, and that of signalled runs")
    parser.add_argument("--at-once", type=int, default=4 * (os.cpu_count() or 1), metavar="K")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more runs are begun after these")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--label", default="now")
    results.add_results(parser)
    options = parser.parse_args()
    tally, started = results.Tally(options.results, "interruptions", COLUMNS), perf_counter()
    total = dict.fromkeys(("runs", *COUNTED, "late"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        files = written(Path(folder))

        def run(seed: int) -> tuple[str, dict[str, int]]:
            over = perf_counter() - started > options.seconds
            if over:
                return "", {}
            return interrupted(options.tree, files, Path(folder, f"run-{seed}"), seed, options.limit)

        for how, found in pool.map(run, range(options.first, options.first + options.runs)):
            if how:
                row = tally.rows.setdefault(f"{options.label}, {how}", {})
                for name in COLUMNS[1:-1]:
                    row[name] = row.get(name, 0) + found[name]
                row["latest_ms"] = max(row.get("latest_ms", 0), found["latest_ms"])
                for name in total:
                    total[name] += found[name]
        tally.write(range(options.first, options.first + total["runs"]))
    print(" ".join(f"{name} {count}" for name, count in total.items()))
    return 1 if any(total[name] for name in COUNTED) else 0


def written(folder: Path) -> list[str]:
    """Twelve instances: the shipped ones by name, the others as files in a folder."""
    files = list(SHIPPED)
    for kind, content in KINDS.items():
        workloads = [{**one, "name": f"{one['name']}-{at}", "rate_rps": one["rate_rps"] * (1 + 0.13 * at)}
                     for one in content["workloads"] for at in range(MANY)]
        path = folder / f"{kind}.json"
        path.write_text(json.dumps({**content, "name": kind, "workloads": workloads,
                                    "policy": {"latency_budget": "queueing"}}))
        files.append(str(path))
    return files


def interrupted(tree: Path, files: list[str], folder: Path, seed: int, limit_s: float) -> tuple[str, dict[str, int]]:
    """Interrupt one run; returns how, and what is counted."""
    draw = random.Random(seed)
    folder.mkdir()
    plan, marker, instance = folder / "plan.json", folder / "reported", files[seed % len(files)]
    how, moment_s = draw.choice(("time limit", "SIGINT", "SIGTERM")), draw.uniform(LEAST_S, limit_s)
    given_s = moment_s if how == "time limit" else limit_s
    command = [str(tree / ".venv/bin/python"), "-c", CHILD, str(marker), "solve", instance, "--time-limit",
               f"{given_s:.3f}", "--json", "--out", str(plan)]
    began = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, text=True)
    if how != "time limit":
        sleep(moment_s)
        process.send_signal(getattr(signal, how))
    try:
        out, err = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    over_s = perf_counter() - began - moment_s
    answer = json.loads(out) if out.startswith("{") else {}
    whole = plan.exists() and provision.verify(provision.read(instance), provision.read_plan(plan)).ok
    asked = {"time limit": set(), "SIGINT": {130, -signal.SIGINT}, "SIGTERM": {143, -signal.SIGTERM}}[how]
    found = {
        "runs": 1, "plans": whole, "lost": marker.exists() and not whole,
        "deaths": process.returncode < 0 and process.returncode not in asked,
        "wrong": process.returncode not in _right(answer, asked),
        "tracebacks": "Traceback" in err and process.returncode not in asked,  # Python's own, before any command
        "late": over_s > max(LATE_S, LATE * given_s), "latest_ms": max(0, round(1000 * over_s)),
    }
    if any(found[name] for name in COUNTED):
        print(f"seed {seed}: {instance} {how} after {moment_s:.3f} s: exit {process.returncode}, "
              f"{[name for name in COUNTED if found[name]]} {err[-300:]!r}", flush=True)
    return how, {name: int(value) for name, value in found.items()}


def _right(answer: Mapping[str, Any], asked: set[int]) -> set[int]:
    """The exit codes that the documents name for an answer."""
    if not answer:
        return asked
    if answer["plan_file"] is None:
        return {1 if answer["status"] == "infeasible" else 3}
    return {0 if answer["verified"] and answer["status"] != "refuted" else 1}


if __name__ == "__main__":
    sys.exit(main())
