"""From an instance to served requests: servers started by ``apply``, the simulator's own arrivals, P99 beside it.

A model's batch times are measured, an instance with Poisson arrivals is made of them and planned, and the plan is
applied: ``apply`` starts the server, which batches as the simulator does. Then the simulator's arrivals are sent to it.
The measured percentiles of the latency stand beside those of the simulator and the P99 of the latency rule.

By default the GPU is that of the stand-in for NVIDIA's driver. The model ``paced`` only waits for a time that depends
on the batch, so that a machine that is busy with other work hardly disturbs it; ``numpy`` and ``torch`` multiply
matrices on this CPU. With ``--real GPU`` the driver and GPU are those of this machine, and ``torch`` runs there; this
has not run on any GPU yet.

Run as ``python benchmarks/applier/end_to_end.py [--models LIST] [--seconds S] [--load L] [--results DIR]``. The model
``torch`` is skipped if PyTorch is missing; the exit status is 77 if no model is left.
"""

import argparse
import contextlib
import os
import shlex
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: one server takes one core

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "benchmarks/papers")]
SKIPPED = 77
BATCHES = (1, 2, 4, 8)
WIDTH, DEPTH = 512, 4
CALIBRATIONS = 20
PACE_S, PACE_PER_REQUEST_S = 0.04, 0.01
MODELS = ("paced", "numpy", "torch")
WAIT_S = 60.0
STAMP = struct.Struct("=q")


def model(name, torch_device):
    """A function that answers a batch of so many requests: by waiting, or by four layers of matrix products."""
    if name == "paced":
        return lambda batch: time.sleep(PACE_S + PACE_PER_REQUEST_S * batch)
    if name == "numpy":
        rng = np.random.default_rng(0)
        layers = [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(DEPTH)]

        def answer(batch):
            rows = np.ones((16 * batch, WIDTH), np.float32)
            for layer in layers:
                rows = np.tanh(rows @ layer)
            return rows

        return answer
    import torch

    layers = [torch.randn(WIDTH, WIDTH, device=torch_device) for _ in range(DEPTH)]

    def answer_with_torch(batch):
        rows = torch.ones(16 * batch, WIDTH, device=torch_device)
        for layer in layers:
            rows = torch.tanh(rows @ layer)
        return rows.cpu()

    return answer_with_torch


def serve(path, batch, delay_s, name, torch_device) -> None:
    """Serve at a socket until SIGTERM: a batch begins when it is full, or its oldest request has waited for a delay.

    Smaller batches are filled up, since the data tell one time per batch size, for the simulator as well.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    answer = model(name, torch_device)
    answer(batch)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(1)
    client, _ = listening.accept()
    waiting, ready = [], threading.Condition()

    def receive() -> None:
        while stamp := client.recv(STAMP.size, socket.MSG_WAITALL):
            with ready:
                waiting.append((time.monotonic() + delay_s, stamp))
                ready.notify()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        with ready:
            while len(waiting) < batch and (not waiting or waiting[0][0] > time.monotonic()):
                ready.wait(waiting[0][0] - time.monotonic() if waiting else 0.1)
            taken, waiting[:] = waiting[:batch], waiting[batch:]
        answer(batch)
        client.sendall(b"".join(stamp for _, stamp in taken))


def measured_ms(name, torch_device) -> dict[int, float]:
    """The median time of a batch, by its size."""
    answer, found = model(name, torch_device), {}
    for batch in BATCHES:
        times = []
        for _ in range(CALIBRATIONS):
            begun = time.perf_counter()
            answer(batch)
            times.append(time.perf_counter() - begun)
        found[batch] = max([1000 * float(np.median(times)), *found.values()])
    return found


def instance_of(times_ms, kind, profile, load):
    """An instance of one workload at a part of what the largest batch carries, within 20 times its duration."""
    from provision.models.problem.instance import Instance

    most_rps = 1000 * BATCHES[-1] / times_ms[BATCHES[-1]]
    points = [(profile, batch, 1, 1000 * batch / ms, ms) for batch, ms in times_ms.items()]
    return Instance(
        version=2, name="end-to-end", fleet=[{"gpu": kind, "price_per_hour": 1.0, "count": 1}],
        workloads=[{"name": "products", "model": "products", "slo_ms": 20 * times_ms[BATCHES[-1]],
                    "rate_rps": load * most_rps, "max_replicas": 1}],
        performance={"version": 1, "name": "here", "kind": "measured-segments", "gpu": kind,
                     "models": {"products": {"points": points}}},
    )


def latencies_ms(path, arrivals_s) -> np.ndarray:
    """Send requests at these times, and return how long each took, from the time when it was due."""
    client = connected(path)
    begun, took = time.perf_counter(), []

    def receive() -> None:
        while len(took) < len(arrivals_s) and (stamp := client.recv(STAMP.size, socket.MSG_WAITALL)):
            took.append(time.perf_counter() - begun - arrivals_s[STAMP.unpack(stamp)[0]])

    receiving = threading.Thread(target=receive)
    receiving.start()
    for number, due_s in enumerate(arrivals_s):
        time.sleep(max(0.0, begun + due_s - time.perf_counter()))
        client.sendall(STAMP.pack(number))
    receiving.join()
    client.close()
    return 1000 * np.array(took)


def connected(path) -> socket.socket:
    """A connection to the server, which may still be loading."""
    until = time.monotonic() + WAIT_S
    while True:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(path)
            return client
        except OSError:
            client.close()
            if time.monotonic() > until:
                raise
        time.sleep(0.05)


def run(name, options, folder) -> tuple[float, ...]:
    """Measure, plan, apply, send; the row of results of a model."""
    from driver import Node

    import provision
    from provision.applier import rollback, status
    from provision.models.hardware.gpu import gpu_types, names_type
    from provision.models.traffic.arrivals import Poisson
    from provision.simulation.deployment import deploy
    from provision.simulation.replay import arrivals_ns

    device = "cpu" if options.real is None else "cuda"
    state, path = folder / "s", str(folder / "socket")
    node = None if options.real is not None else Node(folder / "node", ["a100-80gb"], mig=True)
    with contextlib.nullcontext() if node is None else node.loaded():
        gpus = [options.real or "0"]
        gpu = status(state)[0].gpus[int(gpus[0])]
        kind = next(one.name for one in gpu_types().values() if names_type(gpu.product, one))
        instance = instance_of(measured_ms(name, device), kind, "3g.40gb" if gpu.mig else "whole", options.load)
        result = provision.solve(instance, time_limit_s=10)
        if result.plan is None:
            raise SystemExit(f"{name}: no plan: {result.status}")
        predicted = provision.verify(instance, result.plan).predictions[0]
        simulated = provision.simulate(instance, result.plan, seconds=options.seconds, seed=options.seed).workloads[0]
        server = [sys.executable, __file__, "--serve", path, "--batch", "{batch}", "--models", name,
                  "--delay-s", str(float(deploy(instance, result.plan).slices[0].delays_ms[0]) / 1000),
                  *(["--real", options.real] if options.real is not None else [])]
        ended = provision.apply(instance, result.plan, state, gpus, shlex.join(server))
        if ended.outcome != "applied":
            raise SystemExit(f"not applied: {ended.failure}")
        try:
            rate = instance.workloads[0].rate_rps
            arrivals = arrivals_ns(Poisson(), rate, options.seconds, np.random.default_rng(options.seed)) / 1e9
            took = latencies_ms(path, arrivals)
        finally:
            rollback(state)
    batch = result.plan.gpus[0].slices[0].replicas[0].batch
    return (rate, batch, len(took), *np.percentile(took, (50, 90, 99)), simulated.p50.mean_ms, simulated.p99.mean_ms,
            predicted.p99_ms, instance.workloads[0].slo_ms)


def main() -> int:
    """Serve, or run it all and print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=0.5, help="part of what the largest batch carries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(MODELS), help="of paced, numpy, torch")
    parser.add_argument("--real", metavar="GPU", help="index of a GPU of this machine, for the model torch")
    parser.add_argument("--serve", metavar="SOCKET", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--delay-s", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--results", metavar="DIR", help="write the result file here")
    options = parser.parse_args()
    names = options.models.split(",")
    if options.serve:
        serve(options.serve, options.batch, options.delay_s, names[0], "cpu" if options.real is None else "cuda")
        return 0
    if "torch" in names and find_spec("torch") is None:
        print("torch: skipped, PyTorch is not installed")
        names.remove("torch")
    columns = ("rate_rps", "batch", "requests", "p50_ms", "p90_ms", "p99_ms", "simulated_p50_ms", "simulated_p99_ms",
               "predicted_p99_ms", "slo_ms")
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="e") as held:
            row = run(name, options, Path(held))
        print(f"{name}: " + ", ".join(f"{column} {value:.6g}" for column, value in zip(columns, row, strict=True)))
        rows.append((name, *row))
    import results

    results.write(options.results, "end-to-end", ("model", *columns), rows, (options.seed,))
    return 0 if rows else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
