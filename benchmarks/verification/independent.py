"""Both verifiers on the same plans: of the shipped instances, of the ledger, and of random instances.

Run as ``python benchmarks/verification/independent.py [--instances N] [--wide N] [--seed S] [--time-limit T]
[--shipped] [--queueing] [--ledger] [--seconds S] [--results DIR]``. Plans of shipped and random instances are those of
``auto`` within the time limit. ``--instances`` draws those of ``agreement.py``, ``--wide`` such over all shipped data,
with routing, survival, workflows and other options of the policy; ``--queueing`` takes the shipped instances for
random arrivals. The table counts verdicts; every disagreement is printed with what each verifier says, and then the
exit code is 1. ``--broken`` changes one thing in the plan of every random instance, so that many are violated; there
only what the first verifier lets pass counts as a disagreement, since its tables keep a margin. With ``--results`` a
run goes on where the result file ends; sets that it has already are counted no second time.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter

import numpy as np

from provision.draw.output import print_table
from provision.instances.ledger.ledger import ledger
from provision.instances.read import generated, shipped, shipped_instances
from provision.models.performance.catalogue import load_performance
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.solving.solve import solve
from provision.verification.second import second_opinion
from provision.verification.verify import verify

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/oracles"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from combined import random_combination

ANSWERS = ("both hold", "both violated", "holds, not decided", "violated, not decided", "first holds, second violated",
           "first violated, second holds", "no plan", "error")
Answer = tuple[str, str, list[str]]
Ask = Callable[[], Answer]


def main() -> int:
    """Compare the verdicts, print the table and every disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=0, help="random instances")
    parser.add_argument("--wide", type=int, default=0, help="random instances over the shipped data")
    parser.add_argument("--broken", action="store_true", help="change one thing of every random instance's plan")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=2.0)
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--queueing", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more instances are begun after these")
    parser.add_argument("--workers", type=int, default=1)
    results.add_results(parser)
    options = parser.parse_args()
    tally = results.Tally(options.results, "independent", ("plans", *ANSWERS))
    for title, several in _sets(options):
        done, started = sum(tally.rows.get(title, {}).values()), perf_counter()
        for name, answer, why in _asked(several[done:], options.workers):
            tally.add(title, answer)
            tally.write()
            if answer not in ("both hold", "both violated", "no plan"):
                lines = [f"{title} {name}: {answer}", *(f"    {one}" for one in why)]
                print("\n".join(lines), file=sys.stderr, flush=True)
            if perf_counter() - started > options.seconds:
                break
    print_table(["plans", *ANSWERS], [[name, *(counts[one] for one in ANSWERS)] for name, counts in tally.rows.items()])
    wrong = [ANSWERS[4], ANSWERS[7], *([] if options.broken else [ANSWERS[5]])]
    return 1 if any(counts[one] for counts in tally.rows.values() for one in wrong) else 0


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, list[Ask]]]:
    if options.shipped:
        names = shipped_instances()
        yield "shipped", [partial(_answer, name, partial(_named, name), options.time_limit) for name in names]
    if options.queueing:
        names = [name for name in shipped_instances() if not any(one.tokens for one in shipped(name).workloads)]
        yield "shipped, queueing", [partial(_answer, one, partial(_queued, one), options.time_limit) for one in names]
    if options.ledger:
        yield "ledger", [partial(_answer, name, partial(_named, name), 0, one.plan) for name, one in ledger().items()]
    seeds = range(options.seed, options.seed + max(options.instances, options.wide))
    if options.instances:
        yield f"random from {options.seed}", _drawn(random_combination_of, seeds[: options.instances], options)
    if options.wide:
        yield f"over shipped data from {options.seed}", _drawn(wide_instance, seeds[: options.wide], options)


def _drawn(draw: Callable[[int], Instance], seeds: range, options: argparse.Namespace) -> list[Ask]:
    return [partial(_random, seed, draw=draw, time_limit_s=options.time_limit, broken=options.broken) for seed in seeds]


def _asked(several: list[Ask], workers: int) -> Iterator[Answer]:
    if workers == 1:
        yield from map(_call, several)
        return
    with Pool(workers) as pool:
        yield from pool.imap(_call, several)


def _call(one: Ask) -> Answer:
    return one()


def random_combination_of(seed: int) -> Instance:
    """The instance of this seed that ``agreement.py`` takes."""
    return random_combination(seed, every=True)


FAST = {"parvagpu-a100": 12.0, "mlperf-a30": 1.0, "igniter-v100": 5.0, "colocation-v100": 5.0, "gpulets-2080ti": 12.0,
        "igniter-t4-derived": 10.0}
"""Milliseconds that a batch takes about, by performance data: SLOs and rates are drawn around it."""
FLEETS = (("a100-80gb", ["parvagpu-a100"]), ("a30", ["mlperf-a30"]), ("v100", ["igniter-v100"]),
          ("v100", ["colocation-v100"]), ("rtx2080ti", ["gpulets-2080ti"]), ("v100 t4", ["igniter-v100",
          "igniter-t4-derived"]))


def wide_instance(seed: int) -> Instance:
    """One to four workloads on shipped data with options of the policy drawn at random; follows from the seed."""
    rng = np.random.default_rng([seed, 7])
    gpus, data = FLEETS[int(rng.integers(len(FLEETS)))]
    models = [name for one in map(load_performance, data[:1]) for name in one.models]
    slow = FAST[data[0]]
    policy = {"latency_budget": str(rng.choice(["queueing", "queueing", "half_slo"])),
              "routing": str(rng.choice(["random", "random", "round_robin", "least_loaded"]))}
    policy |= {name: value for name, value in (
        ("safety", 0.9), ("headroom", 0.2), ("share_slices", True), ("even_replicas", True),
        ("survive", {"gpu_failures": 1})) if rng.random() < 0.25}
    if policy["latency_budget"] == "half_slo" and "share_slices" in policy:
        policy.pop("survive", None)  # refused together
    workloads = []
    for index in range(int(rng.integers(1, 5))):
        one = {"name": f"w{index}", "model": str(rng.choice(models)), "slo_ms": round(slow * rng.uniform(4, 20), 2),
               "rate_rps": round(1000 / slow * rng.uniform(0.2, 3), 2)}
        if data[0] == "mlperf-a30":
            one["slo_ms"] = round(rng.uniform(80, 800), 2)
        one |= {name: value for name, value in (("min_replicas", 2), ("max_replicas", 2), ("max_share_per_gpu", 0.5))
                if rng.random() < 0.15}
        workloads.append(one)
    names = [one["name"] for one in workloads]
    flows = [{"name": "flow", "stages": [[name] for name in names]}] if len(names) > 1 and rng.random() < 0.2 else []
    for one in workloads if flows else ():  # every request passes through all
        one["rate_rps"] = workloads[0]["rate_rps"]
    fleet = [{"gpu": gpu, "price_per_hour": round(rng.uniform(1, 4), 2)} for gpu in gpus.split()]
    return Instance.model_validate({"version": 2, "name": f"wide-{seed}", "policy": policy, "fleet": fleet,
                                    "performance": data, "workloads": workloads, "workflows": flows})


def _queued(name: str) -> Instance:
    instance = shipped(name)
    return instance.model_copy(update={"policy": instance.policy.model_copy(update={"latency_budget": "queueing"})})


def _named(name: str) -> Instance:
    return generated(name) or shipped(name)


def _random(seed: int, draw: Callable[[int], Instance], time_limit_s: float, broken: bool) -> Answer:
    change = partial(changed, rng=np.random.default_rng([seed, 11])) if broken else None
    return _answer(f"seed {seed}", partial(draw, seed), time_limit_s, change=change)


def changed(plan: Plan, rng: np.random.Generator) -> Plan:
    """The plan with one replica changed: its batch, processes, SM share, rate, or all of it left out."""
    tree = plan.model_dump(mode="json")
    slices = [piece for gpu in tree["gpus"] for piece in gpu["slices"] if piece["replicas"]]
    piece = slices[int(rng.integers(len(slices)))]
    one = piece["replicas"][int(rng.integers(len(piece["replicas"])))]
    kind = str(rng.choice(["smaller", "larger", "processes", "share", "rate", "gone"]))
    if kind == "gone":
        piece["replicas"].remove(one)
    elif kind == "rate":
        one["rate_rps"] *= 1.3
    elif kind == "share":
        one["sm_share"] = max(one["sm_share"] - 0.1, 0.1)
    elif kind == "processes":
        one["processes"] += 1
    else:
        one["batch"] = max(1, one["batch"] - 1) if kind == "smaller" else 2 * one["batch"]
    return Plan.model_validate(tree)


def _answer(
    name: str, instance_of: partial[Instance], time_limit_s: float, plan: Plan | None = None,
    change: partial[Plan] | None = None,
) -> Answer:
    """What both verifiers say of a plan, one that ``auto`` finds where none is given."""
    try:
        instance = instance_of()
        if plan is None:
            plan = solve(instance, time_limit_s=time_limit_s, replay=False).plan
        if plan is None or not plan.gpus:
            return name, "no plan", []
        return (name, *compared(instance, plan if change is None else change(plan)))
    except Exception as error:  # whatever it is, one instance does not end the others
        return name, "error", [f"{type(error).__name__}: {error}"]


def compared(instance: Instance, plan: Plan) -> tuple[str, list[str]]:
    """Both verdicts, and what each found."""
    first, second = verify(instance, plan), second_opinion(instance, plan)
    why = [*(f"first: {one.message}" for one in first.violations), *(f"second: {one}" for one in second.faults),
           *(f"second, not decided: {one}" for one in second.open)]
    if second.verdict == "not decided":
        return ("holds, not decided" if first.ok else "violated, not decided"), why
    if first.ok == (second.verdict == "holds"):
        return ("both hold" if first.ok else "both violated"), why
    return ("first holds, second violated" if first.ok else "first violated, second holds"), why


if __name__ == "__main__":
    sys.exit(main())
