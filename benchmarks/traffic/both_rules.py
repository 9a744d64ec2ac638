"""Every system under both latency rules and under Poisson and bursty arrivals: where each breaks.

Run as ``python benchmarks/traffic/both_rules.py [DIR] [--families F,F] [--time-limit S] [--seconds S]``; DIR and the
families are those of `systems`, and three more: ``variants``, ``shared`` slices and ``inss``. Every method plans every
case under ``half_slo``, under ``queueing`` for Poisson arrivals and under ``queueing`` for bursty ones (renewal, cv 2),
without limits on replicas but where throughput is the objective; what it cannot plan stays empty. A cell is GPUs, or
requests/s where those count, and in brackets how many workloads (and workflows) are late in a replay with Poisson
arrivals and in one with bursty ones.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import provision
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.traffic.arrivals import Renewal

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import systems
from systems import Family, print_markdown, shipped, solved

CVS = (1.0, 2.0)
RULES = {
    "half_slo": {"latency_budget": "half_slo"},
    "queueing": {"latency_budget": "queueing"},
    "queueing-bursty": {"latency_budget": "queueing", "arrivals": Renewal(cv=CVS[1])},
}
FAMILIES = systems.FAMILIES | {
    "variants": Family({"variants-12": partial(shipped, "igniter-variants-12")}, ()),
    "shared": Family({f"S{row}": partial(shipped, f"parvagpu-s{row}-shared") for row in range(1, 7)}, ()),
    "inss": Family({"inss": partial(shipped, "inss")}, ()),
}
METHODS = ("auto", "greedy", "parvagpu", "parvagpu-single", "parvagpu-unoptimized", "mig-serving-fast", "paris",
           "igniter", "ffd", "ffd++", "gpulets+", "gslice+", "gpulets", "nexus", "gslice")


def main() -> None:
    """Print a table per family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--families", default="parvagpu,igniter,gpulets")
    parser.add_argument("--cases", help="of a family, with commas between; all where not said")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rules", default=",".join(RULES), help=f"of {', '.join(RULES)}")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds per method and case")
    parser.add_argument("--seconds", type=float, default=20.0, help="of arrivals in a replay")
    options = parser.parse_args()
    for name in options.families.split(","):
        cases = {case: [free(one) for one in read(options.folder)] for case, read in FAMILIES[name].cases.items()
                 if not options.cases or case in options.cases.split(",")}
        rows = [row for method in options.methods.split(",") for rule in options.rules.split(",")
                if any((row := planned(cases, method, rule, options))[2:])]
        print(f"\n### {name}\n")
        print_markdown(("method", "rule", *cases), rows)


def free(instance: Instance) -> Instance:
    """An instance without limits on replicas; with them where throughput is the objective."""
    if instance.objective == THROUGHPUT:
        return instance
    return instance.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in instance.workloads])


def planned(cases: dict[str, list[Instance]], method: str, rule: str, options: argparse.Namespace) -> list[str | None]:
    """A row: what a method's plans under a rule meet."""
    row: list[str | None] = [method, rule]
    for case, instances in cases.items():
        row.append(cell(instances, RULES[rule], method, options))
        print(method, rule, case, row[-1], file=sys.stderr)
    return row


def cell(instances: list[Instance], rule: dict[str, object], method: str, options: argparse.Namespace) -> str | None:
    """GPUs of a method's plan and who is late; None when it can plan none of the instances or found no plan."""
    try:
        instances = [one.with_policy(**rule) for one in instances]
        which, result = solved(instances, method, options.time_limit) or (0, None)
    except provision.InputError:
        return None
    if result is None or result.plan is None:
        return None
    late = [len(provision.simulate(instances[which], result.plan, options.seconds, seed=7, arrival_cv=cv).late)
            for cv in CVS]
    throughput = instances[which].objective == THROUGHPUT
    size = f"{result.objective:.0f}/s" if throughput else len(result.plan.gpus)
    return f"{size} ({late[0]}, {late[1]})"


if __name__ == "__main__":
    main()
