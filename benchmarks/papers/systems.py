"""All systems on the same instances, as Markdown: GPUs, cost, violations predicted and met in replays, seconds.

Run as ``python benchmarks/papers/systems.py [DIR] [--families F,F] [--time-limit S] [--seconds S]``; DIR is ParvaGPU's
artefact (``prof_data`` and ``SLO``), whose measured tables are then used, and gpu-lets and its like run on data
derived from them (`a100_rivals`); without it the shipped scenarios on the fitted model are used. Ends with exit 1 when
``auto`` is worse than another plan that holds.

The first table of a family says for every plan GPUs and in brackets how many workloads break their SLO or rate: by the
performance model, in a replay with constant arrivals, and in one with Poisson arrivals (P99 over SLO; workflows count
too). Cost and seconds are sums. The second says which part of all requests was late under Poisson arrivals. The third
is what papers report beside what came out here: GPUs and broken workloads, or how many GPUs ParvaGPU saves against a
system, 1 - (its GPUs) / (the system's), averaged over the scenarios (SC 2024, section IV-B and D).
"""

import argparse
import sys
from functools import partial
from statistics import mean
from typing import NamedTuple

import results
from a100_rivals import without_mig
from gpulets_scenarios import SCENARIOS
from scenarios import scenario

import provision
from provision.instances.read import repeated
from provision.models.base.errors import UnsupportedError
from provision.models.plans.result import Result
from provision.models.problem.instance import Instance

COLUMNS = ("case", "method", "gpus", "broken_model", "broken_constant", "broken_poisson", "late", "cost_per_hour", "s")
FAST = ("parvagpu", "parvagpu-single", "mig-serving-fast", "paris", "greedy", "auto")
REFERENCE = "parvagpu"


class Family(NamedTuple):
    """Cases by name, each a function of DIR that gives instances, of which a method gets the first that it can plan.

    ``methods`` are those to run, ``replayed`` says whether plans are replayed. Papers report ``saved``, the part of a
    system's GPUs that ParvaGPU saves, and ``reported``, GPUs and broken workloads by (case, system).
    """

    cases: dict
    methods: tuple
    saved: tuple = ()
    reported: tuple = ()
    replayed: bool = True


class Run(NamedTuple):
    """What a method found on the first or second instance of a case, and its plan replayed, where it is."""

    which: int
    result: provision.Result
    constant: provision.SimulationReport | None = None
    poisson: provision.SimulationReport | None = None


def _parvagpu(number, folder) -> tuple[Instance, ...]:
    shipped = provision.read(f"parvagpu-s{number}")
    if not folder:
        return (shipped,)
    measured = scenario(folder, number).replace(fleet=shipped.fleet, objective=shipped.objective)
    return measured, without_mig(measured)


def _repeated(times, folder) -> tuple[Instance, ...]:
    return (repeated(scenario(folder, 5), times),)


def shipped(name, folder) -> tuple[Instance, ...]:
    return (provision.read(name),)


def _split(name, folder) -> tuple[Instance, ...]:
    """A shipped instance whose workloads may have several replicas."""
    shipped = provision.read(name)
    return (shipped.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in shipped.workloads]),)


ALL = tuple(provision.methods())
FAMILIES = {
    "parvagpu": Family(
        {f"S{row}": partial(_parvagpu, row) for row in range(1, 7)},
        ALL,
        saved=(("mig-serving-fast", 0.41), ("gpulets", 0.465), ("gslice", None),
               ("parvagpu-single", mean([0, 0, 0, 0.125, 0.071, 0.111]))),
    ),
    "parvagpu-s5-repeated": Family(
        {f"S5 x {times}": partial(_repeated, times) for times in range(1, 11)},
        FAST,
        saved=(("mig-serving-fast", 0.30), ("parvagpu-single", 0.074)),
        replayed=False,
    ),
    "igniter": Family(
        {name: partial(shipped, f"igniter-{name}") for name in ("motivation", "testbed-12")}
        | {"testbed-12 split": partial(_split, "igniter-testbed-12")},
        ALL,
        reported=(("motivation", "igniter", 1, 0), ("motivation", "gslice+", 1, 2), ("motivation", "gpulets+", 2, 2),
                  ("testbed-12", "igniter", 6, 0), ("testbed-12", "gslice+", 6, 3), ("testbed-12", "ffd", 5, 10),
                  ("testbed-12 split", "gpulets+", 8, 3)),
    ),
    "gpulets": Family({name: partial(shipped, f"gpulets-{name}") for name in SCENARIOS}, ALL),
}


def main() -> int:
    """Print the tables of every family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--families", default="parvagpu,igniter,gpulets", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--methods", help="with commas between; all of a family where not said")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per method and case")
    parser.add_argument("--seconds", type=float, default=30.0, help="of arrivals in a replay")
    results.add_results(parser)
    options = parser.parse_args()
    good = [report(name, FAMILIES[name], options) for name in options.families.split(",")]
    return 0 if all(good) else 1


def report(name, family, options) -> bool:
    """Run a family and print its tables; whether no plan that holds is better than auto's."""
    cases = {case: read(options.folder) for case, read in family.cases.items()}
    if options.methods:
        family = family._replace(methods=tuple(options.methods.split(",")))
    for method in family.methods:
        solved(next(iter(cases.values())), method, 1.0)
    runs = {}
    for case, instances in cases.items():
        found = {method: run(instances, method, family.replayed, options) for method in family.methods}
        runs[case] = {method: one for method, one in found.items() if one}
        print(f"{name}, {case} done", file=sys.stderr)
    methods = [method for method in family.methods if any(method in found for found in runs.values())]
    print(f"\n### {name}\n")
    print_markdown(("method", *runs, "cost per hour", "s"), [overview(method, runs) for method in methods])
    if family.replayed:
        print_markdown(("late requests", *runs), [lateness(method, runs) for method in methods])
    print_papers(family, runs)
    rows = [row(case, method, one) for case, found in runs.items() for method, one in found.items()]
    results.write(options.results, f"systems-{name}", COLUMNS, rows, [0])
    return all(judged(case, found) for case, found in runs.items())


def row(case, method, one) -> list[object]:
    """A Run for the result file."""
    report, replays = one.result.report, [len(found.late) if found else None for found in one[2:]]
    late = one.poisson.violation_rate if one.poisson else None
    return [case, method, report.gpus, len(report.violated), *replays, late, report.cost_per_hour,
            one.result.build_seconds + one.result.solve_seconds]


def solved(instances, method, limit_s) -> tuple[int, Result] | None:
    """Which of the instances is the first that a method can plan, and what it finds there; None where there is none."""
    for which, instance in enumerate(instances):
        try:
            return which, provision.solve(instance, method, limit_s)
        except UnsupportedError:
            continue
    return None


def run(instances, method, replayed, options) -> Run | None:
    """The Run of a method; None when it can plan none of the instances or found no plan."""
    which, result = solved(instances, method, options.time_limit) or (0, None)
    if result is None or result.plan is None:
        return None
    if not replayed:
        return Run(which, result)
    replays = [provision.simulate(instances[which], result.plan, options.seconds, arrival_cv=cv) for cv in (0.0, 1.0)]
    return Run(which, result, *replays)


def overview(method, runs) -> list[object]:
    """A line of the first table."""
    found = [one[method] for one in runs.values() if method in one]
    costs = [one.result.report.cost_per_hour for one in found]
    cost = None if None in costs or len(found) < len(runs) else f"{sum(costs):.2f}"
    seconds = sum(one.result.build_seconds + one.result.solve_seconds for one in found)
    return [method, *(plan_of(one.get(method)) for one in runs.values()), cost, f"{seconds:.3g}"]


def plan_of(one) -> str | None:
    """GPUs and broken workloads of a Run as text; None where there is none."""
    if one is None:
        return None
    report, replays = one.result.report, [replay for replay in one[2:] if replay]
    broken = [len(report.violated), *(len(replay.late) for replay in replays)]
    return f"{report.gpus} ({', '.join(map(str, broken))})"


def lateness(method, runs) -> list[object]:
    """A line of the second table."""
    found = [one.get(method) for one in runs.values()]
    return [method, *(f"{one.poisson.violation_rate:.1%}" if one and one.poisson else None for one in found)]


def print_papers(family, runs) -> None:
    """The third table, where papers report something."""
    rows = []
    for system, paper in family.saved:
        pairs = [(found[REFERENCE], found[system]) for found in runs.values() if system in found]
        shares = [1 - ours.result.report.gpus / theirs.result.report.gpus for ours, theirs in pairs]
        here = f"{mean(shares):.1%}" if shares else None
        rows.append([f"saved against {system}", None if paper is None else f"{paper:.1%}", here])
    for case, system, gpus, broken in family.reported:
        rows.append([f"{system} on {case}", f"{gpus} ({broken})", plan_of(runs[case].get(system))])
    if rows:
        print_markdown(("", "paper", "here"), rows)


def judged(case, found) -> bool:
    """Whether no plan on auto's instance that holds is better than auto's; those that are go to stderr."""
    ours = found.get("auto")
    if ours is None:
        return True
    better = [
        name for name, one in found.items()
        if one.result.verified and one.which == ours.which and one.result.objective < ours.result.objective * (1 - 1e-9)
    ]
    if better:
        print(f"{case}: auto is worse than {', '.join(better)}", file=sys.stderr)
    return not better


def print_markdown(columns, rows) -> None:
    """A Markdown table; nothing stands for None."""
    for cells in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join('' if cell is None else cell for cell in cells)} |")
    print()


if __name__ == "__main__":
    sys.exit(main())
