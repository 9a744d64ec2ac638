"""Load the service: solves per second and the P99 of API calls with many clients at once, and none lost.

``python benchmarks/service/load.py [--clients 50] [--jobs 4] [--workers 1]``: every client submits jobs, follows each
through its event stream and asks for its result. Exit 1 when a job is lost or ends otherwise than done.
"""

import argparse
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
from served import Client, process

JOB = {"verb": "solve", "instance": "parvagpu-s3", "method": "auto", "time_limit_s": 10}


class TimedClient(Client):
    """A client that notes how long its calls take, by path without ids."""

    def __init__(self, url: str, took_s: dict[str, list[float]]) -> None:
        super().__init__(url)
        self.took_s = took_s

    def call(self, method, path, content=None):
        """A call, timed."""
        started = perf_counter()
        try:
            return super().call(method, path, content)
        finally:
            kind = "/".join(part for part in path.split("/") if len(part) != 16)
            self.took_s[f"{method} {kind}"].append(perf_counter() - started)


def main() -> int:
    """Run and print; the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=50)
    options.add_argument("--jobs", type=int, default=4, help="per client")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--method", default=JOB["method"])
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, process(folder, "--workers", str(given.workers)) as (_, url, _):
        Client(url).run(JOB | {"method": given.method})  # a process that is warm
        return _run(given, url)


def _run(given: argparse.Namespace, url: str) -> int:
    took_s: dict[str, list[float]] = defaultdict(list)
    statuses: list[str] = []

    def work() -> None:
        client = TimedClient(url, took_s)
        for _ in range(given.jobs):
            id = client.submit(JOB | {"method": given.method})
            for _event in client.events(id):
                pass
            statuses.append(client.job(id)["status"])
            client.call("GET", "/healthz")

    threads = [threading.Thread(target=work) for _ in range(given.clients)]
    started = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, asked = perf_counter() - started, given.clients * given.jobs
    done = statuses.count("done")
    print(f"{given.clients} clients, {given.workers} workers, {given.method}: {done} of {asked} jobs done in "
          f"{seconds:.1f} s, {done / seconds:.1f} solves/s")
    for path, times_s in sorted(took_s.items()):
        p50, p99 = np.quantile(times_s, [0.5, 0.99]) * 1000
        print(f"  {path}: {len(times_s)} calls, P50 {p50:.1f} ms, P99 {p99:.1f} ms")
    return int(done != asked)


if __name__ == "__main__":
    sys.exit(main())
