"""Send mutated requests to the service: how many, what it answered, what its memory did.

``python benchmarks/service/hostile.py [--requests 10000] [--seed 0]``; exit 1 on a status of 500 or more, on a
traceback in an answer, when the server's memory keeps growing, or when it does not answer in the end.
"""

import argparse
import sys
import tempfile
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import perf_counter

import provision

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
from hostile import requests, send
from served import Client, process

GROWTH = 1.10
"""The most that the resident memory of the server may be at the end, of what it was after a third of the requests."""


UNFINISHED_S = 0.3
"""How long to wait after a body that the server must take for unfinished."""


def main() -> int:
    """Run and print; the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    limits = ("--queue", "20", "--job-s", "5")
    with tempfile.TemporaryDirectory() as folder, process(folder, *limits) as (running, url, lines):
        return _run(given, running.pid, url, lines)


def _run(given: argparse.Namespace, pid: int, url: str, lines: list[str]) -> int:
    host, port = url.removeprefix("http://").split(":")
    statuses, wrong, memory, started = Counter(), [], [], perf_counter()
    for number, (method, path, body, headers) in enumerate(requests(given.requests, given.seed, _good())):
        try:
            timeout_s = UNFINISHED_S if "Transfer-Encoding" in headers else 60
            status, text = send(HTTPConnection(host, int(port), timeout=timeout_s), method, path, body, headers)
        except (ConnectionError, HTTPException, TimeoutError) as error:
            statuses[type(error).__name__] += 1
            continue
        statuses[status] += 1
        if status == 500 or status > 503 or "Traceback" in text:
            wrong.append((method, path, body[:200], headers, status))
        if number % (given.requests // 12 or 1) == 0:
            memory.append(_resident_mib(pid))
    alive = Client(url).call("GET", "/healthz")["status"] == "ok"
    memory.append(_resident_mib(pid))
    third = memory[len(memory) // 3]
    print(f"{given.requests} requests in {perf_counter() - started:.0f} s: {dict(statuses.most_common())}")
    print(f"memory of the server, MiB: {memory}")
    failures = sum('"failure"' in line for line in lines)
    print(f"logged failures: {failures}; answers at the end: {alive}")
    for one in wrong[:20]:
        print("wrong:", one)
    return int(bool(wrong) or not alive or memory[-1] > GROWTH * third)


def _good() -> list:
    """Requests that the server takes."""
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "greedy").plan.model_dump(mode="json", exclude_none=True)
    whole = instance.model_dump(mode="json", exclude_none=True)
    status = {"gpus": [], "leftovers": []}
    return [
        {"verb": "solve", "instance": whole, "method": "greedy", "time_limit_s": 1},
        {"verb": "verify", "instance": whole, "plan": plan},
        {"verb": "simulate", "instance": whole, "plan": plan, "seconds": 1},
        {"verb": "what-if", "instance": "parvagpu-s1", "vary": {"rate": "1:2:1"}, "method": "greedy"},
        {"verb": "diff", "instance": "parvagpu-s1", "plan": plan, "status": status},
        {"verb": "export", "instance": "parvagpu-s1", "plan": plan, "to": "shell"},
        whole,
    ]


def _resident_mib(pid: int) -> int:
    """Resident memory of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    sys.exit(main())
