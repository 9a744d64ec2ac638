"""InSS beside the other methods on random states of its family: throughput, and what is late in simulation.

Run as ``python benchmarks/papers/inss.py [--states N] [--proven N] [--policies F ...] [--seconds S] [--alone SOLO]``.
The states are ``inss-seed0``, ``inss-seed1``, ...; with ``--instance inss-six`` those of the public program's run of
six models, at rates anywhere in its ranges. Slow methods answer the first ``--proven`` of them. Every method
plans by its own latency rule, InSS's by full_batches (eq. 2), and ``of the bound there`` is the mean part of the exact
method's bound on those states under the same rule. ``normalised`` is InSS's reward: each workload's throughput over
that of batch 1 on a whole GPU. ``late`` counts requests of Poisson arrivals, as a mean over the states whose plan
holds; the columns that end in ``all`` are means over all states with a plan, whether or not it holds; ``hold by InSS's
equations`` counts plans that keep eq. 2 by InSS's own prediction, and ``over by %`` is the farthest that any plan is
from what it breaks. ``gpulets+`` is gpu-lets as iGniter has it, ``gpulets+largest`` as InSS has it. Policies that
``provision train`` wrote are rows of their own.

Throughput is InSS's, a batch over its whole latency with its upload: in the data the upload counts as feedback, so
that methods, verifier and bounds all have it. With --alone, iGniter's published table of models alone (CSV), InSS also
plans with running times by locally weighted regression on 4 batches x 4 shares, ``inss (LWR)``.
"""

import argparse
import csv
import sys
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import results
from interference_rivals import LWR_BATCHES, LWR_PERCENT

import provision
from provision.draw.output import print_table
from provision.heuristics.inss.batches import keeping
from provision.heuristics.inss.inss import running
from provision.heuristics.inss.system import System
from provision.models.problem.instance import Instance
from provision.training.settings import STABLE

SIX = "inss-six"
RANGES = (100, 500), (100, 400), (50, 200), (100, 400), (100, 450), (100, 400)
SPREAD = 2 / 3
"""The part of their middles by which the ranges reach at most above and below them."""
EXACT = "auto"
FAST = {"full_batches": ("inss", "inss-ni", "gpulets+largest", "gpulets+bda"),
        "half_slo": ("igniter", "gpulets+", "gslice+")}
SLOW = {"full_batches": (EXACT,), "half_slo": (EXACT,)}
"""Methods by latency rule."""
COLUMNS = (
    "rule", "method", "states", "plans that hold", "requests/s", "normalised", "requests/s, slow states",
    "of the bound there", "late %", "states over 1 % late", "ms", "plans", "requests/s, all", "late %, all",
    "hold by InSS's equations", "over by %",
)

LATE = 0.01
"""InSS keeps the part of late tasks below this."""


class Answer(NamedTuple):
    """What a method said of one state; all but ``bound`` and ``ms`` are None without a plan.

    ``own`` is whether the plan keeps eq. 2 by InSS's equations, ``over`` by what part it is farthest from a limit.
    """

    holds: bool
    value: float | None
    normalised: float | None
    late: float | None
    bound: float | None
    ms: float
    own: bool = False
    over: float = 0.0


def answer(instance, method, options, **parameters) -> Answer:
    """A method's plan for a state, replayed."""
    result = provision.solve(instance, method, options.time_limit, **parameters)
    ms = 1000 * (result.build_seconds + result.solve_seconds)
    if result.plan is None:
        return Answer(False, None, None, None, result.bound, ms)
    late = provision.simulate(instance, result.plan, options.seconds).violation_rate
    over = max((abs(one.margin) for one in result.report.violations if one.margin is not None), default=0.0)
    return Answer(result.verified, throughput_rps(result.report), _normalised(instance, result.report), late,
                  result.bound, ms, keeps_eq_2(instance, result.plan), over)


def keeps_eq_2(instance, plan) -> bool:
    """Whether a plan keeps InSS's constraints by its own equations; no if a workload has several replicas."""
    system = System(instance)
    try:
        given = running(system, plan)
    except provision.UnsupportedError:
        return False
    batches = {one.workload: one.batch for *_, one in plan.replicas()}
    batch = np.array([[batches[name] for name in instance.workload]])
    return bool(keeping(system, given, batch, system.rates_rps[None], np.zeros(batch.shape)).all())


def throughput_rps(report) -> float:
    """Requests/s of all replicas, whether or not the plan holds."""
    return sum(found.throughput_rps for found in report.predictions if found is not None)


def _normalised(instance, report) -> float:
    """The sum of eq. 3 without its penalty."""
    alone_rps = dict(zip(instance.workload, System(instance).alone_rps(), strict=True))
    return sum(found.throughput_rps / alone_rps[found.workload] for found in report.predictions)


def whole_latency(instance) -> Instance:
    """The instance with throughputs that are batches over whole latencies: uploads count as feedback."""
    def counted(one):
        return one.model_copy(update={"load_bytes": 0.0, "feedback_bytes": one.load_bytes + one.feedback_bytes})

    return instance.replace(performance=[data.model_copy(update={
        "models": {name: counted(one) for name, one in data.models.items()}
    }) for data in instance.performance])


def state(name, seed) -> Instance:
    """A random state of an instance; rates of the six models in the ranges of the public program (``TS/env.py``)."""
    if name == SIX:
        rng = np.random.default_rng(seed)
        return six_at(float(rng.integers(low, high)) for low, high in RANGES)
    return provision.read(f"{name}-seed{seed}")


def six_at(rates_rps) -> Instance:
    """The instance of the six models at other rates."""
    six = provision.read(SIX)
    return six.replace(workloads=[one.model_copy(update={"rate_rps": rate})
                                  for one, rate in zip(six.workloads, rates_rps, strict=True)])


def trained_on(name) -> tuple[Instance, float]:
    """The instance whose rates are in the middle of those that an actor is trained for, and how far these spread."""
    return (six_at(map(mean, RANGES)), SPREAD) if name == SIX else (provision.read(name), STABLE.spread)


def sixteen(path, folder) -> str:
    """A table with the rows of 4 batches x 4 shares of a table of models alone, as InSS measures them."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file)
                if int(row["batch"]) in LWR_BATCHES and round(float(row["share_percent"])) in LWR_PERCENT]
    kept = Path(folder) / "sixteen.csv"
    with kept.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return str(kept)


def answers(method, instances, options, **parameters) -> list[Answer] | None:
    """Answers to states; None when the method is not for such instances."""
    found = []
    for instance in instances:
        try:
            found.append(answer(instance, method, options, **parameters))
        except provision.UnsupportedError:
            return None
        print(f"{method} {parameters or ''} {instance.name}: {found[-1]}", file=sys.stderr)
    return found


def row(rule, name, found, bounds) -> list[object]:
    """One line of the table."""
    if found is None:
        return [rule, name, "not applicable", *[None] * (len(COLUMNS) - 3)]
    planned, held = [one for one in found if one.value is not None], [one for one in found if one.holds]
    compared = [(one.value, bound) for one, bound in zip(found, bounds, strict=False) if one.holds]
    late = [one.late for one in held]
    return [
        rule, name, len(found), len(held), _mean(one.value for one in held), _mean(one.normalised for one in held),
        _mean(value for value, _ in compared), _mean(value / bound for value, bound in compared),
        _mean(100 * part for part in late), sum(part > LATE for part in late), _mean(one.ms for one in found),
        len(planned), _mean(one.value for one in planned), _mean(100 * one.late for one in planned),
        sum(one.own for one in planned), 100 * max((one.over for one in planned), default=0.0),
    ]


def rows(rule, options) -> list[list[object]]:
    """The lines of the methods that plan by one latency rule."""
    states = [whole_latency(state(options.instance, seed)) for seed in range(options.states)]
    instances = [one.with_policy(latency_budget=rule) for one in states]
    found = {name: answers(name, instances, options) for name in FAST[rule]}
    if "inss" in found and options.alone:
        with TemporaryDirectory() as folder:
            found["inss (LWR)"] = answers("inss", instances, options, alone=sixteen(options.alone, folder))
    if "inss" in found:
        found |= {f"inss {path}": answers("inss", instances, options, policy=path) for path in options.policies}
    found |= {name: answers(name, instances[: options.proven], options) for name in SLOW[rule]}
    bounds = [one.bound for one in found[EXACT]]
    return [row(rule, name, one, bounds) for name, one in found.items()]


def _mean(values) -> float | None:
    """Their mean; None when there are none."""
    values = list(values)
    return mean(values) if values else None


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance", default="inss", choices=("inss", SIX))
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--proven", type=int, default=20)
    parser.add_argument("--policies", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=5.0, help="of arrivals")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per method and state")
    parser.add_argument("--alone", metavar="SOLO", help="measurements of models alone, for regression")
    results.add_results(parser)
    options = parser.parse_args()
    found = [line for rule in FAST for line in rows(rule, options)]
    print_table(COLUMNS, found)
    results.write(options.results, f"{options.instance}-methods", COLUMNS, found, range(options.states))
    return 0


if __name__ == "__main__":
    sys.exit(main())
