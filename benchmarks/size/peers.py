"""Side by side: what other ways to plan give on the same instances, from 12 to 100,000 workloads.

Run as ``python benchmarks/size/peers.py [--cases KIND-WORKLOADS ...] [--methods M ...] [--time-limit S] [--seed N]
[--results DIR]``. Workloads of the kind ``free`` are those of iGniter's generator on V100s with any number of replicas;
``isolated`` ones are drawn around ParvaGPU's S5, on A100s with MIG. The ways:

auto
    This package's search, with its proven bound.
assignment-milp, assignment-cpsat
    The plain program over GPUs and replicas, by HiGHS and by CP-SAT, for up to 40 workloads and 20 GPUs.
igniter, gpulets+, parvagpu
    The papers' heuristics, where they support the instance (gpu-lets as iGniter compares with it).
pop-4, pop-16
    Partitioned optimisation (POP, SOSP 2021): workloads dealt at random into equal parts, each planned by ``auto`` in
    its share of the time; the cost is the sum.
price-and-round
    As CvxCluster's paper (arXiv 2605.01614) describes it: a convex relaxation of the placement gives prices of
    resources; a greedy procedure then takes what is cheapest at these prices and places it.

Each runs in a process of its own with the same limit on CPU seconds (``LIMITS``, by size) and ends for good after
twice as much. Seconds are of CPU, those of solvers' processes included; loading and compiling came before. The
verifier judges every plan, outside of the clock. With ``--results``, the other rows of the result file stay.
"""

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from time import process_time
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, hstack, vstack

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "papers")]
import results
from large import instance_of
from scale import around_s5

import provision
from provision.draw.output import print_table
from provision.formulations.linear.highs import Rows, solve_linear
from provision.formulations.search.assemble import assemble, deal
from provision.formulations.search.segments import Partitions, best_segments, partitions_of
from provision.models.base import clock
from provision.models.base.arrays import Floats, Ints, distinct_rows
from provision.models.base.errors import UnsupportedError
from provision.models.performance.igniter import IgniterProfiles, Terms, igniter_data, solo_terms, together
from provision.models.plans.plan import Plan, PlannedGpu
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import Workload

COLUMNS = ("case", "method", "limit_s", "cost", "bound", "answer", "cpu_s", "gpus")
CASES = tuple(f"{kind}-{many}" for kind in ("free", "isolated") for many in (12, 120, 1000, 10_000, 100_000))
LIMITS = {12: 5.0, 120: 20.0, 1000: 40.0, 10_000: 30.0, 100_000: 60.0}
"""CPU seconds by the number of workloads."""
MOST_EQUAL = 12
"""The most equal replicas that fill a GPU in the relaxation of price-and-round."""
LATE = 3
"""The exit code of a process that has spent twice the limit."""
USED_UP = 1000.0
"""By what factor a slice type that is used up is dearer in price-and-round."""
PORTION = 1000
"""The most replicas that are placed together by price-and-round; each portion has GPUs of its own."""


class Answer(NamedTuple):
    """A plan, a proven bound (None: the method claims none), and a word on how it ended."""

    plan: Plan | None
    bound: float | None
    told: str


def by(method: str) -> Callable[[Instance, float, int], Answer]:
    """The answers of a method of this package."""
    def answer(instance: Instance, limit_s: float, seed: int) -> Answer:
        found = provision.solve(instance, method, limit_s, seed, replay=False)
        return Answer(found.plan, found.bound, found.status)
    return answer


def partitioned(parts: int) -> Callable[[Instance, float, int], Answer]:
    """POP: random equal parts, planned apart and added up."""
    def answer(instance: Instance, limit_s: float, seed: int) -> Answer:
        order = np.random.default_rng(seed).permutation(len(instance.workloads))
        gpus = list[PlannedGpu]()
        for chosen in np.array_split(order, min(parts, len(order))):
            part = instance.replace(workloads=[instance.workloads[at] for at in sorted(chosen.tolist())])
            found = provision.solve(part, "auto", limit_s / parts, seed, replay=False)
            if found.plan is None:
                return Answer(None, None, "a part has no plan")
            gpus += found.plan.gpus
        return Answer(instance.plan_of(f"pop-{parts}", gpus), None, "feasible")
    return answer


def price_and_round(instance: Instance, limit_s: float, seed: int) -> Answer:
    """Compute prices from a relaxation that may use fractions of GPUs, choose the cheapest replicas at these prices,
    and place them greedily.
    """
    shared = bool(igniter_data(instance.performance))
    return Answer((_placed if shared else _packed)(instance), None, "feasible")


def _packed(instance: Instance) -> Plan:
    """Isolated slices. The relaxation is a linear program over partitions and slices of like workloads; its whole GPUs
    are there at first, and a slice type that is used up is taken only where no other will do."""
    segments = best_segments(instance)
    partitions = partitions_of(instance, segments)
    rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
    table, of_row = distinct_rows(segments.throughput_rps)
    gpus, prices = _relaxed(instance, partitions, table, np.bincount(of_row, rates_rps, len(table)))
    left, chosen = gpus @ partitions.slots, np.zeros(segments.throughput_rps.shape, int)
    for at in np.argsort(-rates_rps).tolist():
        chosen[at] = _cheapest(np.where(left > 0, prices, prices * USED_UP), segments.throughput_rps[at], rates_rps[at])
        left = left - chosen[at]
    missing = np.maximum(-left, 0)
    while missing.any():
        useful = np.minimum(partitions.slots, missing)
        best = int(np.argmax(useful @ prices))
        gpus[best] += 1
        missing = missing - useful[best]
    layouts = deal(instance, segments, partitions, gpus, chosen)
    assert layouts is not None
    return assemble(instance, segments, layouts, "price-and-round")


def _relaxed(instance: Instance, partitions: Partitions, rps: Floats, rate_rps: Floats) -> tuple[Ints, Floats]:
    """(partitions,) the whole GPUs, and (slice types,) the duals of slices, where like workloads, with throughputs
    ``rps`` (rows, slice types), may use fractions of slices and GPUs."""
    rows, slices = np.nonzero(rps)
    many, types = partitions.slots.shape
    at = np.arange(len(rows))
    used, served = (coo_array((value, (row, at)), (height, len(at))) for value, row, height in (
        (-np.ones(len(at)), slices, types), (rps[rows, slices], rows, len(rps))))
    matrix = csr_array(vstack([hstack([partitions.offered(), used]), hstack([csr_array((len(rps), many)), served])]))
    cost = np.append([instance.fleet[one].price_per_hour or 1.0 for one in partitions.entry], np.zeros(len(rows)))
    found = solve_linear(Rows(cost, matrix, np.append(np.zeros(types), rate_rps), 0 * cost, cost + math.inf))
    assert found is not None
    return found.x[:many].astype(int), found.duals[:types]


def _cheapest(prices: Floats, rps: Floats, rate_rps: float) -> Ints:
    """(slice types,) how many slices one workload takes: the cheapest per request/s, the last as cheap as it may be."""
    able = np.flatnonzero(rps)
    best = able[np.argmin(prices[able] / rps[able])]
    many = np.zeros(len(prices), int)
    many[best] = int(rate_rps / rps[best])
    rest = rate_rps - many[best] * rps[best]
    if rest > 0:
        enough = able[rps[able] >= rest]
        many[enough[np.argmin(prices[enough])]] += 1
    return many


def _placed(instance: Instance) -> Plan:
    """A Plan of shared GPUs. Pieces are sized for GPUs of equal replicas; ``ffd++`` then places them."""
    data = igniter_data(instance.performance)[instance.fleet[0].gpu]
    prices = 1 / np.arange(1, MOST_EQUAL + 1)
    table: dict[tuple[str, float], Floats] = {}
    pieces, of_piece = list[Workload](), dict[str, str]()
    for one in instance.workloads:
        key = one.model, instance.budget_ms(one)
        if key not in table:
            table[key] = _equal_rps(data, *key)
        rps, rate_rps = table[key], instance.planned_rps(one)
        for number in np.repeat(np.arange(MOST_EQUAL), _cheapest(prices, rps, rate_rps)).tolist():
            rate_rps, carried = max(rate_rps - rps[number], 0.0), min(rps[number], rate_rps)
            pieces.append(one.model_copy(update={"name": f"piece-{len(pieces)}", "max_replicas": 1,
                                                 "rate_rps": carried / instance.policy.planned_rps(1.0)}))
            of_piece[pieces[-1].name] = one.name
    portions, gpus = -(-len(pieces) // PORTION), list[PlannedGpu]()
    for at in range(portions):
        found = provision.solve(instance.replace(workloads=pieces[at::portions]), "ffd++", replay=False)
        assert found.plan is not None
        gpus += found.plan.gpus
    return instance.plan_of("price-and-round", [_renamed(gpu, of_piece) for gpu in gpus])


def _equal_rps(data: IgniterProfiles, model: str, budget_ms: float) -> Floats:
    """(MOST_EQUAL,) the most requests/s of each of 1, 2, ... equal replicas that fill a GPU, within a latency budget.
    """
    batch, found = np.arange(1, data.max_batch + 1), np.zeros(MOST_EQUAL)
    for many in range(1, MOST_EQUAL + 1):
        share = data.hardware.unit_share * (data.hardware.units // many)
        terms = solo_terms(data, model, batch, share)
        latency_ms, rps = together(data.hardware, Terms(*(np.repeat(one[:, None], many, axis=1) for one in terms)))
        found[many - 1] = np.where(latency_ms <= budget_ms, rps, 0.0).max()
    return found


def _renamed(gpu: PlannedGpu, names: dict[str, str]) -> PlannedGpu:
    """A GPU whose replicas serve the workloads that their pieces came from."""
    return gpu.model_copy(update={"slices": tuple(
        part.model_copy(update={"replicas": tuple(
            one.model_copy(update={"workload": names[one.workload]}) for one in part.replicas)})
        for part in gpu.slices)})


METHODS: dict[str, Callable[[Instance, float, int], Answer]] = {
    **{name: by(name) for name in ("auto", "assignment-milp", "assignment-cpsat", "igniter", "gpulets+", "parvagpu")},
    "pop-4": partitioned(4),
    "pop-16": partitioned(16),
    "price-and-round": price_and_round,
}


def instance_of_case(case: str, seed: int) -> Instance:
    """The instance of a case."""
    kind, many = case.split("-")
    return instance_of(int(many), "v100", seed) if kind == "free" else around_s5(int(many), seed)


def end_at(second: float, done: Event) -> None:
    """End this process at a second of its CPU, unless it is done before."""
    while not done.wait(0.5):
        if process_time() > second:
            os._exit(LATE)


def answer_here(channel: Connection, case: str, method: str, limit_s: float, seed: int) -> None:
    """Send the row of a case and a method; this process ends after twice the limit."""
    clock.perf_counter = process_time
    instance, run = instance_of_case(case, seed), METHODS[method]
    try:
        run(instance.replace(workloads=instance.workloads[:12]), 1.0, seed)  # compiles
        spent_s = sum(os.times()[:4])
        done = Event()
        Thread(target=end_at, args=(process_time() + 2 * limit_s, done), daemon=True).start()
        found = run(instance, limit_s, seed)
        done.set()
        spent_s = sum(os.times()[:4]) - spent_s
    except UnsupportedError:
        channel.send([None, None, "refused", None, None])
        return
    if found.plan is None:
        channel.send([None, found.bound, found.told, round(spent_s, 2), None])
        return
    told = found.told if provision.verify(instance, found.plan).ok else "violated"
    channel.send([objective_of(instance).value(found.plan), found.bound, told, round(spent_s, 2), found.plan.gpu_count])


def answered(case: str, method: str, limit_s: float, seed: int) -> list[object]:
    """The row of a case and a method."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=answer_here, args=(there, case, method, limit_s, seed))
    process.start()
    there.close()
    try:
        cost, bound, told, cpu_s, gpus = here.recv()
    except EOFError:
        process.join()
        late = process.exitcode == LATE
        cost, bound, told, cpu_s, gpus = None, None, "no answer in twice the limit" if late else "failed", None, None
    process.join()
    return [case, method, limit_s, cost, bound, told, cpu_s, gpus]


def main() -> None:
    """Print a row for every case and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", metavar="KIND-WORKLOADS", default=CASES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--time-limit", type=float, help="instead of those by size")
    parser.add_argument("--seed", type=int, default=0)
    results.add_results(parser)
    options = parser.parse_args()
    known = results.earlier(options.results, "peers")
    rows = {(one["case"], one["method"]): [one.get(column) for column in COLUMNS] for one in known.rows}
    for case in options.cases:
        limit_s = options.time_limit or LIMITS[int(case.split("-")[1])]
        for method in options.methods:
            rows[case, method] = answered(case, method, limit_s, options.seed)
            print(*rows[case, method], sep=" | ", flush=True)
            results.write(options.results, "peers", COLUMNS, rows.values(), [options.seed], results.commits(known))
    print_table(COLUMNS, list(rows.values()))


if __name__ == "__main__":
    main()
