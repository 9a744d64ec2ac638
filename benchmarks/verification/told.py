"""Is what `solve` and `explain` say true? Sentences on plans, judged by replays around the numbers that are told.

Run as ``python benchmarks/verification/told.py [--instances N] [--first SEED] [--time-limit T] [--requests R]
[--results DIR]``. Instances of every data kind are drawn, planned under the rule ``queueing``, and asked as
``provision solve`` and ``provision explain`` ask. Every number is replayed with other seeds: a workload that "bears" a
factor must keep its SLO at NEAR less, and miss it at NEAR more; "every SLO holds" and "breaks" are replayed at the
factor that they name; the percentile must lie in its band with service times at both ends of theirs. How bursty
arrivals may be is not judged: that takes replays of hours. Replays decide if the fraction of late requests differs from
the allowed one by SURE standard errors over REPLAYS replays. "Carries at least" is judged by planning for these rates
on the GPUs that are named, "at most" by the verifier. Every sentence that is false is printed; exit 1 if there is any.
"""

import argparse
import math
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from option_grid import KINDS

import provision
from provision.answers.explain import explain
from provision.answers.margins import LONGER, MORE, MOST, Margin, margins_of
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

NEAR = 0.03
"""How far from a number, as a fraction, a replay lies: bisection tells a number to 2 %."""
ROUNDED = 0.005
"""The most by which the rounding to three digits changes a number, as a fraction."""
REPLAYS, SURE, MOST_TOTAL = 8, 4.0, 1e6
"""Replays of each claim, standard errors, and the most requests of all workloads in a replay."""
ROUTINGS = ("random", "random", "round_robin", "least_loaded")
TRUE, FALSE, OPEN = "true", "false", "undecided"
COLUMNS = ("sentence", "told", "false", "undecided")
CARRY = re.compile(r"Planned anew, (?:these \d+ GPUs carry|this GPU carries) at least (\d+)% more")
FULLEST = re.compile(r"Fullest replica: (\S+) on GPU (\d+) gets (\S+) of the (\S+) requests/s")
FURTHER = re.compile(r"With one more (\S+?)(?: with(?:out)? MIG)? they carry at least (\d+)% more")


class Asked(NamedTuple):
    """An instance, its plan, and the number of requests of a workload in all replays of a claim."""

    instance: Instance
    plan: Plan
    requests: int


def main() -> int:
    """Judge all sentences and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=42)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--time-limit", type=float, default=4.0)
    parser.add_argument("--requests", type=int, default=2**19)
    results.add_results(parser)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.instances)
    tally = results.Tally(options.results, "told", COLUMNS)
    for seed in seeds:
        instance = drawn(seed)
        found = provision.solve(instance, time_limit_s=options.time_limit)
        if found.plan is None or not found.verified:
            print(f"{instance.name}: {found.status}")
            continue
        for sentence, what, verdict in sentences(Asked(instance, found.plan, options.requests), options.time_limit):
            tally.add(sentence, "told", *([verdict] if verdict != TRUE else ()))
            if verdict == FALSE:
                print(f"{instance.name}: {sentence}: {what}", flush=True)
        tally.write(range(options.first, seed + 1))
    for sentence, counts in sorted(tally.rows.items()):
        print(f"{sentence}: {counts['told']} told, {counts[FALSE]} false, {counts[OPEN]} undecided")
    return 1 if any(counts[FALSE] for counts in tally.rows.values()) else 0


def drawn(seed: int) -> Instance:
    """An instance of a data kind with other rates, SLOs and ways of routing."""
    draw, kind = random.Random(seed), list(KINDS)[seed % len(KINDS)]
    content = KINDS[kind]
    workloads = [{**one, "rate_rps": round(one["rate_rps"] * 10 ** draw.uniform(-0.7, 0.5), 2)}
                 | ({"slo_ms": round(one["slo_ms"] * draw.uniform(1, 3), 1)} if "slo_ms" in one else {})
                 for one in content["workloads"]]
    policy = {"latency_budget": "queueing", "routing": "random" if kind == "tokens" else draw.choice(ROUTINGS)}
    return Instance.model_validate({**content, "name": f"{kind}-{seed}", "workloads": workloads, "policy": policy})


def sentences(asked: Asked, time_limit_s: float) -> Iterator[tuple[str, str, str]]:
    """Yield each sentence that is told, what it says, and whether that is true."""
    for one in margins_of(asked.instance, asked.plan) or ():
        yield from _borne(asked, one)
        yield from _banded(asked, one)
    yield from _carried(asked, time_limit_s)


def _borne(asked: Asked, one: Margin) -> Iterator[tuple[str, str, str]]:
    """Judge what a workload bears."""
    tokens = asked.instance.workload[one.workload].tokens is not None
    for what, factor, part in (("service", one.service, LONGER), ("rate", one.rate, MORE)):
        if factor is None or (tokens and what == "service"):  # replays of language models have no factor on times
            continue
        claims = [(f"bears, {what}", factor * (1 - NEAR), True)] if factor * (1 - NEAR) >= 1 else []
        claims += [(f"breaks beyond, {what}", factor * (1 + NEAR), False)] if factor < MOST * (1 - NEAR) else []
        holds = factor >= 1 + part
        claims.append((f"{'holds' if holds else 'breaks'} at {part:.0%} more {what}", 1 + part, holds))
        for sentence, tried, keeps in claims:
            found, verdict = _held(asked, one.workload, what, tried, keeps)
            yield sentence, f"{one.workload} bears {what} {factor:.3f}: {found}", verdict


def _held(asked: Asked, name: str, what: str, factor: float, keeps: bool) -> tuple[str, str]:
    """What replays with a factor say, and whether a workload keeps its SLO there, or misses it, as was told."""
    late, error, allowed = _late(asked, name, what, factor)
    told = f"{late:.2%} late at {factor:.3f}, {'at most' if keeps else 'more than'} {allowed:.0%} by what is told"
    if abs(late - allowed) <= SURE * error:
        return told, OPEN
    return told, TRUE if (late < allowed) == keeps else FALSE


def _late(asked: Asked, name: str, what: str, factor: float) -> tuple[float, float, float]:
    """The fraction of late requests in replays, its standard error, and the fraction that may be late."""
    instance, workload = asked.instance, asked.instance.workload[name]
    if what == "rate":
        workload = workload.model_copy(update={"rate_rps": workload.rate_rps * factor})
        instance = instance.replace(workloads=[workload if one.name == name else one for one in instance.workloads])
    longer = factor if what == "service" else 1.0
    parts = [max(_late_parts(one, name)) for one in _replays(asked._replace(instance=instance), workload, longer)]
    return (statistics.mean(parts), statistics.stdev(parts) / math.sqrt(REPLAYS),
            1 - instance.policy.percentile_of(workload) / 100)


def _late_parts(report: provision.SimulationReport, name: str) -> list[float]:
    """The fractions of the requests of a workload that miss each of its limits."""
    return [one.violation_rate for one in (*report.workloads, *report.tokens)
            if one.workload.partition(": ")[0] == name]


def _replays(asked: Asked, workload: Workload, longer: float) -> Iterator[provision.SimulationReport]:
    """Yield replays with different seeds, longer service times, and a part of the requests of a workload in each."""
    seconds = min(asked.requests / REPLAYS / workload.rate_rps,
                  MOST_TOTAL / sum(one.rate_rps for one in asked.instance.workloads))
    factor = {} if longer == 1 else {"service_factor": longer}
    return (provision.simulate(asked.instance, asked.plan, seconds, 1000 + seed, **factor) for seed in range(REPLAYS))


def _banded(asked: Asked, one: Margin) -> Iterator[tuple[str, str, str]]:
    """Judge the band of a percentile."""
    if one.replayed is None:
        return
    low_ms, high_ms = one.replayed.low_ms, math.inf if one.replayed.high_ms is None else one.replayed.high_ms
    for name, factor in (("predicted times", 1.0), ("the shortest times", one.replayed.low),
                         ("the longest times", one.replayed.high)):
        met = [next(each.at_slo.mean_ms for each in report.workloads if each.workload == one.workload)
               for report in _replays(asked, asked.instance.workload[one.workload], factor)]
        known = [math.inf if each is None else each for each in met]
        ms, error = statistics.mean(known), 0.0 if math.inf in known else statistics.stdev(known) / math.sqrt(REPLAYS)
        beyond = max(low_ms * (1 - NEAR) - ms, ms - high_ms * (1 + NEAR))
        verdict = TRUE if beyond <= 0 else OPEN if beyond <= SURE * error else FALSE
        yield f"in its band at {name}", f"{one.workload} {ms:.4g} in {one.replayed}", verdict


def _carried(asked: Asked, time_limit_s: float) -> Iterator[tuple[str, str, str]]:
    """Judge what `explain` says of more traffic."""
    told = explain(asked.instance, asked.plan, time_limit_s=time_limit_s)
    held = Counter(gpu.gpu for gpu in asked.plan.gpus)
    for line in told.more:
        if found := CARRY.match(line):
            yield "these GPUs carry at least", line, _planned(asked.instance, held, int(found[1]), time_limit_s)
        elif found := FURTHER.match(line):
            verdict = _planned(asked.instance, held + Counter([found[1]]), int(found[2]), time_limit_s)
            yield "with one more GPU at least", line, verdict
    for line in told.limits:
        if found := FULLEST.match(line):
            yield "fullest replica, at most", line, _fullest(asked, found[1], int(found[2]), found[4])


def _planned(instance: Instance, held: Counter[str], percent: int, time_limit_s: float) -> str:
    """TRUE if these GPUs can carry all rates raised by ``percent``, FALSE if proven not, OPEN if unknown."""
    fleet = [one.model_copy(update={"count": held[one.gpu]}) for one in instance.fleet if held[one.gpu]]
    faster = instance.replace(fleet=fleet, workloads=[
        one.model_copy(update={"rate_rps": one.rate_rps * (1 + percent / 100)}) for one in instance.workloads])
    found = provision.solve(faster, time_limit_s=time_limit_s, replay=False)
    return TRUE if found.verified else FALSE if found.status == "infeasible" else OPEN


def _fullest(asked: Asked, name: str, gpu: int, most: str) -> str:
    """Whether the verifier accepts a replica at the rate that is told as its highest, and no replica of the workload on
    that GPU at NEAR more.
    """
    rate = float(most.replace(",", ""))
    return TRUE if (any(_accepted(asked, name, gpu, rate * (1 - ROUNDED)))
                    and not all(_accepted(asked, name, gpu, rate * (1 + NEAR)))) else FALSE


def _accepted(asked: Asked, name: str, gpu: int, rate_rps: float) -> Iterator[bool]:
    """Yield for each replica of a workload on a GPU whether the plan is valid with this rate there, if the workload has
    as much more.
    """
    there = asked.plan.gpus[gpu]
    for at, piece in enumerate(there.slices):
        for number, one in enumerate(piece.replicas):
            if one.workload != name:
                continue
            faster = one.model_copy(update={"rate_rps": rate_rps})
            replicas = (*piece.replicas[:number], faster, *piece.replicas[number + 1:])
            slices = (*there.slices[:at], piece.model_copy(update={"replicas": replicas}), *there.slices[at + 1:])
            gpus = (*asked.plan.gpus[:gpu], there.model_copy(update={"slices": slices}), *asked.plan.gpus[gpu + 1:])
            instance = asked.instance.replace(workloads=[
                each.model_copy(update={"rate_rps": each.rate_rps + rate_rps - one.rate_rps}) if each.name == name
                else each for each in asked.instance.workloads])
            yield provision.verify(instance, instance.plan_of("", gpus)).ok


if __name__ == "__main__":
    sys.exit(main())
