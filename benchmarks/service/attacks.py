"""How long ``/healthz`` takes to answer while the service is attacked with large bodies or idle connections.

``python benchmarks/service/attacks.py [--only CASE ...] [--part X] [--longest-s S] [--results DIR]``. Each case sends
everything at once; meanwhile other connections, one after another, ask for ``/healthz``. A case ends when everything is
answered, and after at least 3 s. ``--part`` scales sizes and numbers. Exit code 1 if ``/healthz`` took longer than
``--longest-s`` (1) or did not answer, or if anything was answered with a status of 500.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil

sys.path += [str(Path(__file__).parents[2] / "tests/support"), str(Path(__file__).parents[1] / "papers")]
import results
from served import process

LEAST_S = 3.0
PAUSE_S = 0.05
COLUMNS = ("attack", "requests", "mib", "slowest_s", "probes", "server_cpu_s", "server_mib", "answers")
WORKLOAD = '{{"name": "w{0}", "model": "resnet50", "slo_ms": 200, "rate_rps": 100}}'


def _keys(count: int) -> str:
    return "{" + "".join(f'"key{n}": 1, ' for n in range(count)) + '"key7": 1}'


def _workloads(count: int) -> str:
    rows = ", ".join(WORKLOAD.format(n) for n in range(count))
    return ('{"version": 2, "name": "many", "fleet": [{"gpu": "a100-80gb"}], "performance": "parvagpu-a100", '
            f'"workloads": [{rows}]}}')


BODIES: dict[str, tuple[str, int, Callable[[float], str]]] = {
    "nothing": ("yaml", 0, lambda part: ""),
    "YAML, a number of 80,000 digits": ("yaml", 1, lambda part: f"slo_ms: {'1' * int(80_000 * part)}x"),
    "YAML, a number of 15 million digits": ("yaml", 1, lambda part: f"slo_ms: {'1' * int(15e6 * part)}x"),
    "YAML, a list of 500,000 numbers": ("yaml", 1, lambda part: f"a: [{'12, ' * int(500_000 * part)}1]"),
    "YAML, 1 million %TAG directives": ("yaml", 1, lambda part: "%TAG !a! b\n" * int(1e6 * part)),
    "YAML, 60,000 workloads": ("yaml", 1, lambda part: _workloads(int(60_000 * part))),
    "JSON, 20,000 workloads": ("json", 1, lambda part: _workloads(int(20_000 * part))),
    "JSON, 40,000 keys, one twice": ("json", 1, lambda part: _keys(int(40_000 * part))),
    "JSON, 1 million keys, one twice": ("json", 1, lambda part: _keys(int(1e6 * part))),
    "JSON, 7 million numbers": ("json", 1, lambda part: f'{{"a": [{"1," * int(7e6 * part)}1]}}'),
    "JSON, 5 million empty mappings": ("json", 1, lambda part: f'{{"a": [{"{}," * int(5e6 * part)}1]}}'),
    "40 times JSON, 13 MiB": ("json", 40, lambda part: f'{{"a": ["{"x" * int(13 * 2**20 * part)}"]}}'),
    "40 times JSON, 6 million numbers": ("json", 40, lambda part: f'{{"a": [{"1," * int(6e6 * part)}1]}}'),
}
"""Each with its format, how often it is sent at the same time, and the body for a part of the size."""
IDLE = {
    "1,000 connections that send nothing": b"",
    "1,000 connections with half a header": b"GET /healthz HTTP/1.1\r\nHo",
}


def main() -> int:
    """Attack a server, print and write what happened; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*BODIES, *IDLE], default=[*BODIES, *IDLE], metavar="CASE")
    parser.add_argument("--part", type=float, default=1.0, metavar="X")
    parser.add_argument("--longest-s", type=float, default=1.0, metavar="S")
    results.add_results(parser)
    given, rows = parser.parse_args(), []
    for attack in given.only:
        with tempfile.TemporaryDirectory() as folder, process(folder, "--queue", "5") as (running, url, _):
            host, port = url.removeprefix("http://").split(":")
            rows.append(_row(attack, given.part, (host, int(port)), psutil.Process(running.pid)))
            print(dict(zip(COLUMNS, rows[-1], strict=True)), flush=True)
    results.write(given.results, "attacks", COLUMNS, rows)
    return int(any(row[3] > given.longest_s or "500" in row[-1] for row in rows))


def _row(attack: str, part: float, where: tuple[str, int], server: psutil.Process) -> tuple:
    """Attack a server and ask for its health meanwhile; a row of the result file."""
    begun, cpu_s = time.monotonic(), sum(server.cpu_times()[:2])
    slowest_s, probes, most_mib, answers = 0.0, 0, 0.0, Counter()
    kind, times, body = BODIES.get(attack, ("", 0, lambda part: ""))
    content, sockets = body(part).encode(), []
    with ThreadPoolExecutor(max(1, times)) as pool:
        sent = [pool.submit(_post, where, f"application/{kind}", content) for _ in range(times)]
        if attack in IDLE:
            sockets = [_idle(where, IDLE[attack]) for _ in range(int(1000 * part))]
        while time.monotonic() < begun + LEAST_S or not all(one.done() for one in sent):
            slowest_s, probes = max(slowest_s, _health_s(where)), probes + 1
            most_mib = max(most_mib, server.memory_info().rss / 2**20)
            time.sleep(PAUSE_S)
        answers.update(str(one.result()) for one in sent)
    for one in sockets:
        one.close()
    told = " ".join(f"{count}x{status}" for status, count in sorted(answers.items()))
    mib = times * len(content) / 2**20
    return (attack, times or len(sockets), mib, slowest_s, probes, sum(server.cpu_times()[:2]) - cpu_s, most_mib, told)


def _post(where: tuple[str, int], kind: str, content: bytes) -> int | str:
    """The status of a request, or the error that it met."""
    connection = HTTPConnection(*where, timeout=300)
    try:
        connection.request("POST", "/api/v1/instances", content, {"Content-Type": kind})
        return connection.getresponse().status
    except (OSError, HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def _health_s(where: tuple[str, int]) -> float:
    """The seconds until the server tells its health; infinity if it does not."""
    begun, connection = time.monotonic(), HTTPConnection(*where, timeout=60)
    try:
        connection.request("GET", "/healthz")
        ok = json.loads(connection.getresponse().read())["status"] == "ok"
    except (OSError, HTTPException, ValueError, KeyError):
        ok = False
    finally:
        connection.close()
    return time.monotonic() - begun if ok else float("inf")


def _idle(where: tuple[str, int], start: bytes) -> socket.socket:
    """A connection that sends the start of a request and no more."""
    made = socket.create_connection(where, timeout=60)
    made.sendall(start)
    return made


if __name__ == "__main__":
    sys.exit(main())
