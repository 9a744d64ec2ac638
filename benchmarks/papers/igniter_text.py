"""Numbers that iGniter's text and figures state and that its public data decides (TPDS 2022).

Run as ``python benchmarks/papers/igniter_text.py SOLO PAIRS``: tables of models alone and of models side by side, as
iGniter published them. A row is what a number is, and the number.

- Section 2.2: how much longer ResNet-50 takes beside AlexNet or VGG-19 (figure 4, measured), and their L2 utilisation.
- Table 1 and section 5.3: shares in percent, batches, GPUs and companions in the plans of the systems.
- Section 5.2: clock, scheduling delay and active time of VGG-19 beside one and three others, by the shipped
  coefficients.
- Section 5.3: late workloads of the testbed where all batches take longer than predicted, without shadow processes and
  with them (P99 over the SLO, constant arrivals, 60 s, seed 0), and how many miss half of their SLO by the co-location
  data.
- Section 5.4: how long Algorithm 1 takes, in ms (the least of three runs), and the most memory that it takes, in MB.
"""

import argparse
import csv
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import product

import results

import provision
from provision.draw.output import print_table
from provision.formulations.search import feasibility
from provision.models.performance.catalogue import load_performance
from provision.models.performance.igniter import solo_terms
from provision.models.problem.instance import Instance
from provision.models.problem.workload import FleetEntry

COLUMNS = ("section", "what", "value")
TESTBED, MOTIVATION, MANY = "igniter-testbed-12", "igniter-motivation", "igniter-1000-seed0"
PRICE, T4_PRICE = 3.06, 0.526
BATCH, HALF = 16, 50
"""Figure 4: ResNet-50's batch, and the share of either model in percent."""
FOUR = ("vgg19", "alexnet", "resnet50", "ssd")
BESIDE_ONE, BESIDE_THREE = 0.20, 0.25
THREE = 3
"""The batch of section 5.2's figure 13."""
LONGER = (1.04, 1.06, 1.08, 1.1)
"""Factors on all batch times."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solo", help="models alone (CSV)")
    parser.add_argument("pairs", help="models side by side (CSV)")
    results.add_results(parser)
    options = parser.parse_args()
    solo, pairs = _read(options.solo), _read(options.pairs)
    rows = [*measured(solo, pairs), *planned(), *erring(), *modelled(), *timed()]
    print_table(COLUMNS, rows)
    results.write(options.results, "igniter-text", COLUMNS, rows)


def _read(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def measured(solo, pairs) -> Iterator[tuple[str, str, object]]:
    """Section 2.2, from the published measurements."""
    alone_ms = {(one["model"], int(one["batch"]), float(one["share_percent"])): float(one["latency_ms"])
                for one in solo}
    slower = []
    for one in pairs:
        mine, other = ("a", "b") if one["model_a"] == "resnet50" else ("b", "a")
        if one[f"model_{mine}"] == "resnet50" and one[f"model_{other}"] in ("alexnet", "vgg19") \
                and int(one[f"batch_{mine}"]) == BATCH and float(one[f"share_{mine}_percent"]) == HALF:
            ms = float(one[f"latency_{mine}_ms"])
            slower.append(100 * (ms / alone_ms["resnet50", BATCH, HALF] - 1))
    yield "2.2", "ResNet-50 slower, least", min(slower)
    yield "2.2", "ResNet-50 slower, most", max(slower)
    for model in ("alexnet", "vgg19"):
        l2 = {int(one["batch"]): float(one["l2_percent"]) for one in solo
              if one["model"] == model and float(one["share_percent"]) == HALF and one["l2_percent"]}
        yield "2.2", f"L2 of {model}, batch 1", l2[1]
        yield "2.2", f"L2 of {model}, batch 32", l2[32]


def planned() -> Iterator[tuple[str, str, object]]:
    """Table 1 and section 5.3, from plans."""
    yield "table 1", "igniter", _listed(provision.solve(MOTIVATION, "igniter").plan)
    plans = {method: provision.solve(TESTBED, method).plan for method in ("igniter", "ffd", "ffd++", "gpulets+")}
    for method, plan in plans.items():
        yield "5.3", f"{method}, cost per hour", PRICE * len(plan.gpus)
    yield "5.3", "igniter saves against gpulets+", 1 - len(plans["igniter"].gpus) / len(plans["gpulets+"].gpus)
    for method, workload in (("ffd", "alexnet-app2"), ("ffd++", "alexnet-app2"), ("gpulets+", "alexnet-app2"),
                             ("igniter", "alexnet-app2"), ("igniter", "resnet50-app1"), ("gpulets+", "resnet50-app1"),
                             ("igniter", "vgg19-app3"), ("gpulets+", "vgg19-app3")):
        yield "5.3", f"{method}, {workload}", _place(plans[method], workload)
    t4 = provision.solve(on_t4s(), "igniter").plan
    split = Counter(one.workload for *_, one in t4.replicas())
    yield "5.3", "T4s", len(t4.gpus)
    yield "5.3", "T4s, cost per hour", T4_PRICE * len(t4.gpus)
    yield "5.3", "T4s, on several", ", ".join(sorted(name for name, count in split.items() if count > 1))
    for workload in ("alexnet-app1", "ssd-app1"):
        yield "5.3", f"igniter, beside {workload}", _beside(plans["igniter"], workload)


def on_t4s() -> Instance:
    """The testbed on T4s, whose coefficients are derived, with workloads that may be split."""
    testbed = provision.read(TESTBED)
    return testbed.replace(
        fleet=(FleetEntry(gpu="t4", price_per_hour=T4_PRICE),), performance=(load_performance("igniter-t4-derived"),),
        workloads=tuple(one.model_copy(update={"max_replicas": None}) for one in testbed.workloads),
    )


def _listed(plan) -> str:
    return ", ".join(_told(one) for gpu in plan.gpus for piece in gpu.slices for one in piece.replicas)


def _told(replica) -> str:
    return f"{replica.workload} {100 * replica.sm_share:g} % x {replica.batch}"


def _place(plan, workload) -> str:
    at, replica = next((at, one) for at, _, _, one in plan.replicas() if one.workload == workload)
    return f"GPU {at + 1}, {100 * replica.sm_share:g} %, batch {replica.batch}"


def _beside(plan, workload) -> str:
    here = next(at for at, _, _, one in plan.replicas() if one.workload == workload)
    return ", ".join(one.workload for at, _, _, one in plan.replicas() if at == here and one.workload != workload)


def erring() -> Iterator[tuple[str, str, object]]:
    """Section 5.3: the plan of the testbed where the model errs."""
    testbed = provision.read(TESTBED)
    plan = provision.solve(testbed, "igniter").plan
    for factor, shadow in product(LONGER, (False, True)):
        found = provision.simulate(testbed, plan, arrival_cv=0.0, service_factor=factor, shadow=shadow)
        yield "5.3", f"late at {factor:g} times the batch times, {'with' if shadow else 'without'} shadows", \
            len(found.late)
    measured = testbed.replace(performance=(load_performance("colocation-v100"),))
    yield "5.3", "miss half of the SLO by co-location", len(feasibility.late(measured, plan))


def modelled() -> Iterator[tuple[str, str, object]]:
    """Section 5.2: VGG-19 beside SSD and beside three models, batch 3."""
    data = load_performance("igniter-v100")
    for name, models, share in (("one", ("vgg19", "ssd"), BESIDE_ONE), ("three", FOUR, BESIDE_THREE)):
        terms = [solo_terms(data, model, THREE, share) for model in models]
        mine, others = terms[0], sum(float(one.cache) for one in terms[1:])
        demand_w = data.hardware.idle_power_w + sum(float(one.power_w) for one in terms)
        delay_ms = float(mine.scheduling_ms) + float(mine.kernels) * data.hardware.extra_delay_ms(len(models))
        yield "5.2", f"VGG-19 beside {name}, clock in MHz", \
            data.hardware.max_clock_mhz * data.hardware.clock_ratio(demand_w)
        yield "5.2", f"VGG-19 beside {name}, scheduling delay in ms", delay_ms
        yield "5.2", f"VGG-19 beside {name}, active time in ms", \
            float(mine.active_ms) * (1 + float(mine.cache_sensitivity) * others)
    resnet50 = data.models["resnet50"]
    yield "5.2", "ResNet-50's active time per kernel in ms, batch 1", resnet50.active_ms(1, 0.5) / resnet50.kernels


def timed() -> Iterator[tuple[str, str, object]]:
    """Section 5.4."""
    for name in (TESTBED, MANY):
        instance = provision.read(name)
        runs = [provision.solve(instance, "igniter") for _ in range(3)]
        yield "5.4", f"{len(instance.workloads)} workloads, ms", \
            1000 * min(one.build_seconds + one.solve_seconds for one in runs)
        tracemalloc.start()
        provision.solve(instance, "igniter")
        yield "5.4", f"{len(instance.workloads)} workloads, MB", tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()


if __name__ == "__main__":
    main()
