"""Searches interrupted at random moments: does a process die, is a plan lost, is the exit code wrong, how late is it?

Run as ``python benchmarks/verification/interruptions.py [--runs N] [--first SEED] [--limit S] [--at-once K]
[--seconds S] [--loaded] [--limits S ...] [--tree FOLDER] [--label NAME] [--results DIR]``. Each run is ``provision
solve`` in a fresh process, K of them at a time (by default four per core), on one of twelve instances of every data
kind. It is interrupted by its time limit, by SIGINT or by SIGTERM; half of the signals come to the whole process group,
as from a terminal. Nine of ten runs are interrupted in the search, 1 ms to the limit after it began (half of the
moments are uniform, half of their logarithms); the others at a uniform moment from the first line that Python runs for
us on. What comes before that line is Python's own start, in which a signal ends Python as Python pleases. With
``--loaded`` runs that are interrupted in the search are copies of a process that has loaded all modules and run
nothing, which takes less time. With ``--limits S ...`` nothing is drawn: each instance, and eight more, runs at each of
these time limits, which count from its first line.

Counted are interruptions that met a search, processes that died of another signal, tracebacks (but for those of
processes that ended by the signal as Python does), plans that had been reported although none came out verified, exit
codes that do not fit the answer, and answers that came later than 1 s or 10 % of the limit after the interruption. With
``--tree`` another checkout with an environment of its own is measured. With ``--results`` counts add to those of
``--label``. Ends with ``runs N searching S deaths D lost L wrong W tracebacks T late A``; exit 1 if there is a death, a
lost plan, a wrong code or a traceback.
"""

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
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
WHERE = {"search": "in the search", "loaded": "in the search, modules loaded before", "anywhere": "anywhere"}
HANGS_S, LOOK_S = 1800.0, 0.05
COUNTED = ("deaths", "lost", "wrong", "tracebacks")
COLUMNS = ("tree and interruption", "runs", "searching", "plans", *COUNTED, "late", "latest_ms")
CHILD = """
import os, sys
marks, in_search = int(sys.argv.pop(1)), sys.argv.pop(1) in ("search", "loaded")
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
LOADED = """
import json, os, sys
import provision.commands.planning.solve
from provision.solving.methods import method
method("auto")
for line in sys.stdin:
    child, folder, arguments = json.loads(line)
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(folder)
        for number, name in enumerate(("/dev/null", "out", "err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        sys.argv = ["provision", str(os.open("marks", os.O_WRONLY)), *arguments]
        try:
            exec(child)
        finally:
            os._exit(70)  # it has not ended by itself
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A process that has loaded all modules and run nothing, of which each run is a copy."""


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
    parser.add_argument("--loaded", action="store_true", help="runs in the search are copies of a loaded process")
    parser.add_argument("--limits", type=float, nargs="+", default=(), metavar="S", help="only these time limits")
    parser.add_argument("--at-once", type=int, default=4 * (os.cpu_count() or 1), metavar="K")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more runs are begun after these")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--label", default="now")
    results.add_results(parser)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background shells ignore it, and so would all runs
    tally, started = results.Tally(options.results, "interruptions", COLUMNS), perf_counter()
    total = dict.fromkeys(("runs", "searching", *COUNTED, "late"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        files = [*written(Path(folder)), *(MORE if options.limits else ())]
        every = [_limited(limit_s, at) for at in range(len(files)) for limit_s in options.limits]
        seeds = range(options.first, options.first + (len(every) or options.runs))

        def run(seed: int) -> tuple[str, dict[str, int]]:
            if perf_counter() - started > options.seconds:
                return "", {}
            drawn = every[seed - options.first] if every else _drawn(seed, options.limit, options.loaded)
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


class Fresh:
    """A run in a process of its own that begins with nothing loaded."""

    def __init__(self, tree: Path, folder: Path, drawn: Drawn, arguments: list[str]) -> None:
        command = [str(tree / ".venv/bin/python"), "-c", CHILD, "3", drawn.where, *arguments]
        command = ["bash", "-c", 'exec "$@" 3> marks > out 2> err', "bash", *command]
        self.process = subprocess.Popen(command, cwd=folder, start_new_session=True)
        self.pid = self.process.pid

    def ended(self) -> int:
        """The exit code, once it has ended."""
        try:
            return self.process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            return self.process.wait()


class Copied:
    """A run in a copy of a process that has loaded all modules; each thread that runs has such a process."""

    mine = threading.local()

    def __init__(self, tree: Path, folder: Path, drawn: Drawn, arguments: list[str]) -> None:
        if not hasattr(self.mine, "loaded"):
            self.mine.loaded = subprocess.Popen([str(tree / ".venv/bin/python"), "-c", LOADED], stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, text=True, bufsize=1)
        self.loaded = self.mine.loaded
        self.loaded.stdin.write(json.dumps([CHILD, str(folder), [drawn.where, *arguments]]) + "\n")
        self.pid = int(self.loaded.stdout.readline())

    def ended(self) -> int:
        """The exit code, once it has ended."""
        late = threading.Timer(HANGS_S, lambda: os.killpg(self.pid, signal.SIGKILL))
        late.start()
        code = int(self.loaded.stdout.readline())
        late.cancel()
        return code


def interrupted(tree: Path, instance: str, folder: Path, drawn: Drawn) -> tuple[str, dict[str, int]]:
    """Interrupt one run; returns how and where, and what is counted."""
    folder.mkdir()
    os.mkfifo(folder / "marks")
    plan, reader = folder / "plan.json", os.open(folder / "marks", os.O_RDONLY | os.O_NONBLOCK)
    arguments = ["solve", instance, "--time-limit", f"{drawn.limit_s:.3f}", "--json", "--out", str(plan)]
    run = (Copied if drawn.where == "loaded" else Fresh)(tree, folder, drawn, arguments)
    seen, wanted = b"", b"s" if drawn.where in ("search", "loaded") else b"p"
    while wanted not in seen and _alive(run.pid):
        select.select([reader], [], [], LOOK_S)
        with suppress(BlockingIOError):
            seen += os.read(reader, 1)
    began, met = perf_counter(), _alive(run.pid)
    if drawn.how != "time limit":
        sleep(drawn.moment_s)
        met = _alive(run.pid)
        with suppress(ProcessLookupError):
            (os.killpg if drawn.group else os.kill)(run.pid, getattr(signal, drawn.how))
    code = run.ended()
    over_s = perf_counter() - began - drawn.moment_s
    with suppress(BlockingIOError):
        while more := os.read(reader, 4096):
            seen += more
    os.close(reader)
    out, err = (folder / "out").read_text(), (folder / "err").read_text()
    answer = json.loads(out) if out.startswith("{") else {}
    whole = plan.exists() and provision.verify(provision.read(instance), provision.read_plan(plan)).ok
    asked = {"time limit": set(), "SIGINT": {130, -signal.SIGINT}, "SIGTERM": {143, -signal.SIGTERM}}[drawn.how]
    found = {
        "runs": 1, "plans": whole, "lost": b"r" in seen and not whole,
        "searching": met and b"s" in seen and answer.get("termination", "stopped") not in ("proved", "completed"),
        "deaths": code < 0 and code not in asked,
        "wrong": code not in _right(answer, asked), "tracebacks": "Traceback" in err and code not in asked,
        "late": over_s > max(LATE_S, LATE * drawn.limit_s), "latest_ms": max(0, round(1000 * over_s)),
    }
    if any(found[name] for name in (*COUNTED, "late")):
        print(f"{drawn}: {instance} exit {code}, over {over_s:.2f} s, "
              f"{[name for name in (*COUNTED, 'late') if found[name]]} {err[-300:]!r}", flush=True)
    return f"{drawn.how}, {WHERE.get(drawn.where, drawn.where)}", {name: int(value) for name, value in found.items()}


def _right(answer: Mapping[str, Any], asked: set[int]) -> set[int]:
    """The exit codes that the documents name for an answer."""
    if "plan_file" not in answer:
        return asked
    if answer["plan_file"] is None:
        return {1 if answer["status"] == "infeasible" else 3}
    return {0 if answer["verified"] and answer["status"] != "refuted" else 1}


def _alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _drawn(seed: int, limit_s: float, loaded: bool) -> Drawn:
    """How, where and when a run is interrupted."""
    draw = random.Random(seed)
    how, where = draw.choice(("time limit", "SIGINT", "SIGTERM")), "search" if draw.random() < IN_SEARCH else "anywhere"
    early = LEAST_S * (limit_s / LEAST_S) ** draw.random()
    moment_s = early if where == "search" and draw.random() < EARLY else draw.uniform(LEAST_S, limit_s)
    where = "loaded" if loaded and where == "search" else where
    return Drawn(how, where, moment_s, moment_s if how == "time limit" else limit_s, draw.random() < TO_GROUP, seed)


def _limited(limit_s: float, at: int) -> Drawn:
    """A run that only its time limit may end."""
    return Drawn("time limit", f"{limit_s:g} s", limit_s, limit_s, False, at)


if __name__ == "__main__":
    sys.exit(main())
