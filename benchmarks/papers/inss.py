"""InSS beside the other methods on random states of its family: throughput, and what is late in simulation.

Run as ``python benchmarks/papers/inss.py [--states N] [--proven N] [--policies F ...] [--seconds S] [--time-limit S]``.
The states are ``inss-seed0``, ``inss-seed1``, ...; slow methods answer the first ``--proven`` of them. Every method
plans by its own latency rule, InSS's by full_batches (eq. 2), and ``of the bound there`` is the mean part of the exact
method's bound on those states under the same rule. ``normalised`` is InSS's reward: each workload's throughput over
that of batch 1 on a whole GPU. ``late`` counts requests of Poisson arrivals, as a mean over the states whose plan
holds. Policies that ``provision train`` wrote are rows of their own.
"""

import argparse
import sys
from statistics import mean
from typing import NamedTuple

import provision
from provision.commands.common import print_table
from provision.heuristics.inss.system import System

EXACT = "auto"
FAST = {"full_batches": ("inss", "inss-ni", "gpulets+bda"), "half_slo": ("igniter", "gpulets+")}
SLOW = {"full_batches": ("greedy", EXACT), "half_slo": ("gslice+", "greedy", EXACT)}
"""Methods by latency rule."""
COLUMNS = (
    "rule", "method", "states", "plans that hold", "requests/s", "normalised", "requests/s, slow states",
    "of the bound there", "late %", "states over 1 % late", "ms",
)

LATE = 0.01
"""InSS keeps the part of late tasks below this."""


class Answer(NamedTuple):
    """What a method said of one state; all but ``bound`` and ``ms`` are None without a plan that holds."""

    value: float | None
    normalised: float | None
    late: float | None
    bound: float | None
    ms: float


def answer(instance, method, options, **parameters):
    """A method's plan for a state, replayed."""
    result = provision.solve(instance, method, options.time_limit, **parameters)
    ms = 1000 * (result.build_seconds + result.solve_seconds)
    if not result.verified:
        return Answer(None, None, None, result.bound, ms)
    report = provision.simulate(instance, result.plan, options.seconds)
    late = sum(one.violation_rate * one.offered_rps for one in report.workloads)
    part = late / sum(one.offered_rps for one in report.workloads)
    return Answer(result.objective, _normalised(instance, result), part, result.bound, ms)


def _normalised(instance, result):
    """The sum of eq. 3 without its penalty."""
    alone_rps = dict(zip(instance.workload, System(instance).alone_rps(), strict=True))
    return sum(found.throughput_rps / alone_rps[found.workload] for found in result.report.predictions)


def answers(method, instances, options, **parameters):
    """Answers to states; None when the method is not for such instances."""
    found = []
    for instance in instances:
        try:
            found.append(answer(instance, method, options, **parameters))
        except provision.UnsupportedError:
            return None
        print(f"{method} {parameters or ''} {instance.name}: {found[-1]}", file=sys.stderr)
    return found


def row(rule, name, found, bounds):
    """One line of the table."""
    if found is None:
        return [rule, name, "not applicable", *[None] * (len(COLUMNS) - 3)]
    held = [one for one in found if one.value is not None]
    compared = [(one.value, bound) for one, bound in zip(found, bounds, strict=False) if one.value is not None]
    late = [one.late for one in held]
    return [
        rule, name, len(found), len(held), _mean(one.value for one in held), _mean(one.normalised for one in held),
        _mean(value for value, _ in compared), _mean(value / bound for value, bound in compared),
        _mean(100 * part for part in late), sum(part > LATE for part in late), _mean(one.ms for one in found),
    ]


def rows(rule, options):
    """The lines of the methods that plan by one latency rule."""
    states = [provision.read(f"inss-seed{seed}") for seed in range(options.states)]
    instances = [one.with_policy(latency_budget=rule) for one in states]
    found = {name: answers(name, instances, options) for name in FAST[rule]}
    if "inss" in found:
        found |= {f"inss {path}": answers("inss", instances, options, policy=path) for path in options.policies}
    found |= {name: answers(name, instances[: options.proven], options) for name in SLOW[rule]}
    bounds = [one.bound for one in found[EXACT]]
    return [row(rule, name, one, bounds) for name, one in found.items()]


def _mean(values):
    """Their mean; None when there are none."""
    values = list(values)
    return mean(values) if values else None


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--proven", type=int, default=20)
    parser.add_argument("--policies", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=5.0, help="of arrivals")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per method and state")
    options = parser.parse_args()
    print_table(COLUMNS, [line for rule in FAST for line in rows(rule, options)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
