"""Is ``auto`` behind a method that has the same time limit?

Run as ``python benchmarks/verification/behind.py [--instances N] [--seed S] [--limits L ...] [--only TEXT]
[--seconds S] [--results DIR]``. Every second instance is one of ``relations.py`` (all data kinds, latency rules and
options), every other one of ``independent.py --wide`` (one to four workloads over shipped data). Each is planned by
``auto`` and by every method that can plan it, one after the other, without replays; for ``survive`` and
``even_replicas`` the method stands in the place of ``auto`` on the instances that plans are derived from. The table
counts, per method and limit, the instances on which the method has a plan, on which ``auto`` is behind, on which it is
ahead, and on which the method fails. With ``--results`` the run goes on where the result file ends. Ends with
``instances N comparisons C behind B errors E``; exit 1 if B or E > 0.
"""

import argparse
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/oracles"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results
from independent import wide_instance
from relations import ROUNDING, drawn

import provision
from provision.draw.output import print_table
from provision.models.base.errors import UnsupportedError
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Outcome, Search
from provision.solving.methods import methods
from provision.solving.policies import even_replicas, surviving

ALL = "all instances"
COLUMNS = ("method", "instances", "behind", "ahead", "errors", "seeds")


def main() -> int:
    """Plan all instances and print who is behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limits", type=float, nargs="+", default=[2.0, 8.0])
    parser.add_argument("--only", default="", help="methods whose name has this text")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no more instances are begun after these")
    results.add_results(parser)
    options = parser.parse_args()
    tally, started = results.Tally(options.results, "behind", COLUMNS), perf_counter()
    total = tally.rows.setdefault(ALL, Counter())
    while total["instances"] < options.instances and perf_counter() - started < options.seconds:
        seed = options.seed + total["seeds"]
        tally.add(ALL, "seeds")
        instance = instance_of(seed)
        if instance is None:  # options that contradict each other
            continue
        tally.add(ALL, "instances")
        for limit_s in options.limits:
            for name, verdict in compared(instance, limit_s, options.only):
                tally.add(f"{name}, {limit_s:g} s", "instances", *([verdict] if verdict else []))
        tally.write(range(options.seed, options.seed + total["seeds"]))
    print_table(COLUMNS, [[name, *(counts[one] for one in COLUMNS[1:])] for name, counts in sorted(tally.rows.items())])
    each = sum((counts for name, counts in tally.rows.items() if name != ALL), Counter[str]())
    counted = " ".join(f"{one} {each[one]}" for one in ("behind", "errors"))
    print(f"instances {total['instances']} comparisons {each['instances']} {counted}")
    return 1 if each["behind"] or each["errors"] else 0


def instance_of(seed: int) -> Instance | None:
    """The instance of a seed; None where its options contradict each other."""
    return drawn(seed // 2) if seed % 2 == 0 else wide_instance(seed // 2)


def compared(instance: Instance, limit_s: float, only: str = "") -> list[tuple[str, str]]:
    """Every method that has a plan, with whether ``auto`` is ``behind`` or ``ahead``; and those that end in errors."""
    able = [alone(one) for one in methods().values() if one.name != "auto" and only in one.name]
    loss, found = {}, []
    for one in (methods()["auto"], *able):
        try:
            loss[one.name] = _loss(instance, one, limit_s)
        except Exception as error:  # whatever it is, one method does not end the others
            print(f"{instance.name}, {limit_s:g} s: {one.name}: {error!r}", file=sys.stderr, flush=True)
            found.append((one.name, "errors"))
    ours = loss.pop("auto", math.inf)
    for name, theirs in loss.items():
        if theirs == math.inf:
            continue
        rounding = ROUNDING * max(abs(theirs), 1e-9)
        found.append((name, "behind" if ours > theirs + rounding else "ahead" if ours < theirs - rounding else ""))
        if found[-1][1] == "behind":
            print(f"{instance.name}, {limit_s:g} s: auto {ours:.6g}, {name} {theirs:.6g}", file=sys.stderr, flush=True)
    return found


def alone(method: Method) -> Method:
    """A method in the place of ``auto``: for rules of the policy that only ``auto`` knows it plans the other instances.
    """
    def run(instance: Instance, search: Search) -> Outcome:
        try:
            for rule, way in (("survive", surviving), ("even_replicas", even_replicas)):
                if getattr(instance.policy, rule):
                    method.check(instance.with_policy(survive=None, even_replicas=False))
                    return way(instance, search, run)
            method.check(instance)
            return method.run(instance, replace(search, parameters=method.parameters))
        except UnsupportedError as error:
            return Outcome("unknown", "completed", reason=str(error))

    return Method(method.name, method.summary, run, features=methods()["auto"].features)


def _loss(instance: Instance, method: Method, limit_s: float) -> float:
    """What the plan of a method costs, or the negative of its throughput; infinite without a plan that holds."""
    found = provision.solve(instance, method, time_limit_s=limit_s, replay=False)
    if found.plan is None or not found.verified or found.objective is None:
        return math.inf
    return objective_of(instance).loss(found.objective)


if __name__ == "__main__":
    sys.exit(main())
