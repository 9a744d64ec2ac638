"""Both verifiers on the same plans: of the shipped instances, of the ledger, and of random instances.

Run as ``python benchmarks/verification/independent.py [--instances N] [--seed S] [--time-limit T] [--shipped]
[--ledger] [--seconds S] [--out F]``. Plans of shipped and random instances are those of ``auto`` within the time limit;
random instances are those of ``agreement.py``. The table counts verdicts; every disagreement is printed with what each
verifier says, and then the exit code is 1. ``--out`` gets the table and the disagreements.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from time import perf_counter

from provision.commands.common import print_table
from provision.instances.files.shipped import shipped, shipped_instances
from provision.instances.generators.families import generated
from provision.instances.ledger.ledger import ledger
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.solving.solve import solve
from provision.verification.second import second_opinion
from provision.verification.verify import verify

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/oracles"))
from combined import random_combination

ANSWERS = ("both hold", "both violated", "holds, not decided", "violated, not decided", "first holds, second violated",
           "first violated, second holds", "no plan", "error")
Answer = tuple[str, str, list[str]]


def main() -> int:
    """Compare the verdicts, print the table and every disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=0, help="random instances")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=2.0)
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more instances are begun after these")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", metavar="F", help="write the table and the disagreements here")
    options = parser.parse_args()
    lines: list[str] = []
    rows = []
    for title, answers in _sets(options):
        counts, started = Counter[str](), perf_counter()
        for name, answer, why in answers:
            counts[answer] += 1
            if answer not in ("both hold", "both violated", "no plan"):
                lines += [f"{title} {name}: {answer}", *(f"    {one}" for one in why)]
                print("\n".join(lines[-1 - len(why):]), file=sys.stderr, flush=True)
            if perf_counter() - started > options.seconds:
                break
        rows.append([title, *(counts[one] for one in ANSWERS), f"{perf_counter() - started:.0f} s"])
    print_table(["plans", *ANSWERS, "time"], rows)
    if options.out:
        table = "\n".join(" | ".join(map(str, row)) for row in (["plans", *ANSWERS, "time"], *rows))
        Path(options.out).write_text("\n".join([" ".join(sys.argv), table, *lines, ""]))
    differ = sum(row[1 + ANSWERS.index(one)] for row in rows for one in ANSWERS[4:6] + ANSWERS[7:])
    return 1 if differ else 0


def _sets(options: argparse.Namespace) -> Iterator[tuple[str, Iterator[Answer]]]:
    if options.shipped:
        names = shipped_instances()
        yield "shipped, auto", (_answer(name, partial(_named, name), options.time_limit) for name in names)
    if options.ledger:
        yield "ledger", (_answer(name, partial(_named, name), 0, one.plan) for name, one in ledger().items())
    if options.instances:
        seeds = range(options.seed, options.seed + options.instances)
        if options.workers == 1:
            yield "random, auto", (_random(seed, options.time_limit) for seed in seeds)
            return
        with Pool(options.workers) as pool:
            yield "random, auto", pool.imap_unordered(partial(_random, time_limit_s=options.time_limit), seeds)


def _named(name: str) -> Instance:
    return generated(name) or shipped(name)


def _random(seed: int, time_limit_s: float) -> Answer:
    return _answer(f"combined-{seed}", partial(random_combination, seed, every=True), time_limit_s)


def _answer(name: str, instance_of: partial[Instance], time_limit_s: float, plan: Plan | None = None) -> Answer:
    """What both verifiers say of a plan, one that ``auto`` finds where none is given."""
    try:
        instance = instance_of()
        if plan is None:
            plan = solve(instance, time_limit_s=time_limit_s, replay=False).plan
        return (name, "no plan", []) if plan is None else (name, *compared(instance, plan))
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
