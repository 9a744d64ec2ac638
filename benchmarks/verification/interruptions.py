"""Searches interrupted at random moments: does a process die, is a plan lost, is the exit code wrong, how late is it?

Run as ``python benchmarks/verification/interruptions.py [--runs N] [--first SEED] [--limit S] [--at-once K]
[--seconds S] [--tree FOLDER] [--label NAME] [--results DIR]``. Each run is ``provision solve`` in a fresh process, K of
them at a time (by default four per core), on one of twelve instances of every data kind. It is interrupted by its time
limit, by SIGINT or by SIGTERM; half of the signals come to the whole process group, as from a terminal. Nine of ten
runs are interrupted in the search, 1 ms to the limit after it began (half of the moments are uniform, half of their
logarithms); the others at a uniform moment from the first line that Python runs for us on. What comes before that line
is Python's own start, in which a signal ends Python as Python pleases.

Counted are interruptions that met a search, processes that died of another signal, tracebacks, plans that had been
reported although none came out verified, exit codes that do not fit the answer, and answers that came later than 1 s or
10 % of the limit after the interruption. With ``--limits S ...`` nothing is drawn: each instance runs at each of these
time limits, which count from its first line. With ``--tree`` another checkout with an environment of its own is
measured. With ``--results`` counts add to those of ``--label``. Ends with ``runs N searching S deaths D lost L wrong W
tracebacks T late A``; exit 1 if there is a death, a lost plan, a wrong code or a traceback.
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
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from option_grid import KINDS

import provision

SHIPPED = ("parvagpu-s5", "parvagpu-s3-shared", "igniter-testbed-12", "gpulets-equal", "inss-six")
MANY = 6
"""How many workloads with other rates each workload of a small instance becomes."""
MORE = ("parvagpu-s1", "parvagpu-s6", "parvagpu-s1-shared", "parvagpu-s5-shared", "igniter-motivation",
        "igniter-variants-12", "gpulets-game", "inss")
"""Further instances for ``--limits``."""
LEAST_S, LATE_S, LATE = 0.001, 1.0, 0.1
IN_SEARCH, EARLY, TO_GROUP = 0.9, 0.5, 0.5
"""What part of the runs is interrupted in the search; of these, soon after it began; of signals, for the whole group.
"""
WHERE = {"search": "in the search", "anywhere": "anywhere"}
HANGS_S = 300.0
COUNTED = ("deaths", "lost", "wrong", "tracebacks")
COLUMNS = ("tree and interruption", "runs", "searching", "plans", *COUNTED, "late", "latest_ms")
CHILD = """
import os, sys
marks, in_search = int(sys.argv.pop(1)), sys.argv.pop(1) == "search"
os.write(marks, b"p")
from contextlib import contextmanager
from time import perf_counter
from provision import cli

def with_marks(*given):
    made = parser(*given)
    module = sys.modules["provision.commands.planning.solve"]
    planning, solve = module.planning, module.solve

    @contextmanager
    def marking(*given):
        with planning(*given) as watch:
            def report(news):
                watch.report(news)
                if news.plan is not None:
                    os.write(marks, b"r")
            yield watch._replace(report=report)

    def begun(*given, **more):
        os.write(marks, b"s")
        return solve(*given, **more | ({"started": perf_counter()} if in_search else {}))

    module.planning, module.solve = marking, begun
    return made

parser, cli.parser = cli.parser, with_marks
sys.exit(cli.main())
"""
"""``provision`` that writes a byte into a pipe: p at its first line, s when the search begins, r for each plan that is
reported. A time limit that is to come in the search counts from s.
"""


class Drawn(NamedTuple):
    """How a run is interrupted, where (in the search, or anywhere), how long after it began there, the time limit that
    it is given, whether a signal comes to the whole group, and the number by which its instance is chosen.
    """

    how: str
    where: str
    moment_s: float
    limit_s: float
    group: bool
    seed: int


def main() -> int:
    """Interrupt all runs and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--limit", type=float, default=4.0, help="the longest time limit, and that of signalled runs")
    parser.add_argument("--limits", type=float, nargs="+", default=(), metavar="S", help="only these time limits")
    parser.add_argument("--at-once", type=int, default=4 * (os.cpu_count() or 1), metavar="K")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more runs are begun after these")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--label", default="now")
    results.add_results(parser)
    options = parser.parse_args()
    tally, started = results.Tally(options.results, "interruptions", COLUMNS), perf_counter()
    total = dict.fromkeys(("runs", "searching", *COUNTED, "late"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        files = [*written(Path(folder)), *(MORE if options.limits else ())]
        every = [_limited(limit_s, at) for at in range(len(files)) for limit_s in options.limits]
        seeds = range(options.first, options.first + (len(every) or options.runs))

        def run(seed: int) -> tuple[str, dict[str, int]]:
            if perf_counter() - started > options.seconds:
                return "", {}
            drawn = every[seed - options.first] if every else _drawn(seed, options.limit)
            return interrupted(options.tree, files[drawn.seed % len(files)], Path(folder, f"run-{seed}"), drawn)

        for how, found in pool.map(run, seeds):
            if how:
                row = tally.rows.setdefault(f"{options.label}, {how}", {})
                for name in COLUMNS[1:-1]:
                    row[name] = row.get(name, 0) + found[name]
                row["latest_ms"] = max(row.get("latest_ms", 0), found["latest_ms"])
                for name in total:
                    total[name] += found[name]
        tally.write(seeds[:total["runs"]])
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


def interrupted(tree: Path, instance: str, folder: Path, drawn: Drawn) -> tuple[str, dict[str, int]]:
    """Interrupt one run; returns how and where, and what is counted."""
    folder.mkdir()
    plan, (reader, writer) = folder / "plan.json", os.pipe()
    command = [str(tree / ".venv/bin/python"), "-c", CHILD, str(writer), drawn.where, "solve", instance, "--time-limit",
               f"{drawn.limit_s:.3f}", "--json", "--out", str(plan)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, text=True,
                               pass_fds=[writer], start_new_session=True)
    os.close(writer)
    seen, wanted = os.read(reader, 1), b"s" if drawn.where == "search" else b"p"
    while not seen.endswith(wanted) and (more := os.read(reader, 1)):
        seen += more
    began, met = perf_counter(), process.poll() is None
    if drawn.how != "time limit":
        sleep(drawn.moment_s)
        met = process.poll() is None
        with suppress(ProcessLookupError):
            (os.killpg if drawn.group else os.kill)(process.pid, getattr(signal, drawn.how))
    try:
        out, err = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    over_s = perf_counter() - began - drawn.moment_s
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        while more := os.read(reader, 4096):
            seen += more
    os.close(reader)
    answer = json.loads(out) if out.startswith("{") else {}
    whole = plan.exists() and provision.verify(provision.read(instance), provision.read_plan(plan)).ok
    asked = {"time limit": set(), "SIGINT": {130, -signal.SIGINT}, "SIGTERM": {143, -signal.SIGTERM}}[drawn.how]
    found = {
        "runs": 1, "plans": whole, "lost": b"r" in seen and not whole,
        "searching": met and b"s" in seen and answer.get("termination", "stopped") not in ("proved", "completed"),
        "deaths": process.returncode < 0 and process.returncode not in asked,
        "wrong": process.returncode not in _right(answer, asked), "tracebacks": "Traceback" in err,
        "late": over_s > max(LATE_S, LATE * drawn.limit_s), "latest_ms": max(0, round(1000 * over_s)),
    }
    if any(found[name] for name in (*COUNTED, "late")):
        print(f"{drawn}: {instance} exit {process.returncode}, over {over_s:.2f} s, "
              f"{[name for name in (*COUNTED, 'late') if found[name]]} {err[-300:]!r}", flush=True)
    return f"{drawn.how}, {WHERE.get(drawn.where, drawn.where)}", {name: int(value) for name, value in found.items()}


def _right(answer: Mapping[str, Any], asked: set[int]) -> set[int]:
    """The exit codes that the documents name for an answer."""
    if "plan_file" not in answer:
        return asked
    if answer["plan_file"] is None:
        return {1 if answer["status"] == "infeasible" else 3}
    return {0 if answer["verified"] and answer["status"] != "refuted" else 1}


def _drawn(seed: int, limit_s: float) -> Drawn:
    """How, where and when a run is interrupted."""
    draw = random.Random(seed)
    how, where = draw.choice(("time limit", "SIGINT", "SIGTERM")), "search" if draw.random() < IN_SEARCH else "anywhere"
    early = LEAST_S * (limit_s / LEAST_S) ** draw.random()
    moment_s = early if where == "search" and draw.random() < EARLY else draw.uniform(LEAST_S, limit_s)
    return Drawn(how, where, moment_s, moment_s if how == "time limit" else limit_s, draw.random() < TO_GROUP, seed)


def _limited(limit_s: float, at: int) -> Drawn:
    """A run that only its time limit may end."""
    return Drawn("time limit", f"{limit_s:g} s", limit_s, limit_s, False, at)


if __name__ == "__main__":
    sys.exit(main())
