"""ParvaGPU's comparison beyond numbers of GPUs: figures 6, 7, 9 and 11, and gpu-lets as it runs it (SC 2024, IV).

Run as ``python benchmarks/papers/parvagpu_figures.py DIR``; DIR is ParvaGPU's artefact (``prof_data`` and ``SLO``).

1. GPUs that ParvaGPU saves against gpu-lets without MIG (`gpulets_a100`), with turns and, as ParvaGPU describes
   gpu-lets, without; batches beside another part are slower by an assumed factor. Paper: 46.5 %.
2. Internal slack (figure 6, equation 3) and external fragmentation (figure 7), averaged over S1 to S6. SM activity was
   measured there; here it is, first, the routed part of a replica's throughput, and second, with servers saturated, its
   throughput over the largest that its model reaches on that slice kind with any batch and number of processes.
3. Scheduling delays in ms (figure 9 for S1 to S6, figure 11 for S5 with every workload 1 to 10 times), least of three.
4. A workload's SLO changes (section III-F): every workload's in turn is doubled in S4, and the plan is repaired; GPUs
   that keep their slices and workloads, on average.
"""

import argparse
from collections import Counter
from statistics import mean

from gpulets_a100 import without_mig
from scenarios import scenario

import provision
from provision.instances.generators.families import repeated
from provision.models.hardware.gpu import gpu_type

SCENARIOS = range(1, 7)
SLOWDOWNS = (1.0, 1.1, 1.2)
METHODS = ("parvagpu", "parvagpu-single", "parvagpu-unoptimized", "mig-serving-fast")
CHANGED = 4


def main():
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="of figure 11: the most copies of S5")
    options = parser.parse_args()
    instances = [scenario(options.folder, number) for number in SCENARIOS]
    print_saved(instances)
    print_slack(instances)
    print_delays("figure 9", {f"S{number}": one for number, one in zip(SCENARIOS, instances, strict=True)})
    print_delays("figure 11", {f"S5 x {times}": repeated(instances[4], times) for times in range(1, options.times + 1)})
    print_changed(instances[CHANGED - 1])


def print_saved(instances):
    """Part 1."""
    ours = [gpus(one, "parvagpu") for one in instances]
    print(f"GPUs of parvagpu: {ours}")
    for most in (1000, 1):
        for slowdown in SLOWDOWNS:
            theirs = [gpus(without_mig(one, slowdown), "gpulets", models_per_part=most) for one in instances]
            saved = mean(1 - few / many for few, many in zip(ours, theirs, strict=True))
            turns = "with" if most > 1 else "without"
            print(f"gpulets {turns} turns, slowdown {slowdown:g}: {theirs}, saved {saved:.1%}")


def gpus(instance, method, **parameters):
    """GPUs of a method's plan."""
    return provision.solve(instance, method, **parameters).report.gpus


def print_slack(instances):
    """Part 2."""
    for method in METHODS:
        plans = [(one, provision.solve(one, method)) for one in instances]
        routed = mean(found.report.internal_slack for _, found in plans)
        saturated = mean(1 - saturation(one, found.plan) for one, found in plans)
        outside = mean(found.report.external_fragmentation for _, found in plans)
        print(f"{method}: internal slack {routed:.1%} by rates, {saturated:.1%} saturated; fragmentation {outside:.1%}")


def saturation(instance, plan):
    """Activity of the SMs of a plan's slices, weighted by their size, when every server is saturated."""
    size, active = 0.0, 0.0
    for at, _, piece, replica in plan.replicas():
        model, gpu = instance.workload[replica.workload].model, plan.gpus[at].gpu
        points = instance.performance_of(gpu, model, piece.profile).operating_points(model, piece.profile)
        here = (points.batch == replica.batch) & (points.processes == replica.processes)
        slice_size = gpu_type(gpu).slice_compute(piece.profile)
        size += slice_size
        active += slice_size * points.throughput_rps[here].max() / points.throughput_rps.max()
    return active / size


def print_delays(figure, instances):
    """Part 3."""
    for method in METHODS:
        delays = []
        for instance in instances.values():
            runs = [provision.solve(instance, method) for _ in range(3)]
            delays.append(1000 * min(run.build_seconds + run.solve_seconds for run in runs))
        print(f"{figure}, {method}: {' '.join(f'{name} {ms:.1f}' for name, ms in zip(instances, delays, strict=True))}")


def print_changed(instance):
    """Part 4."""
    before, kept = provision.solve(instance, "parvagpu").plan, []
    for workload in instance.workloads:
        eased = workload.model_copy(update={"slo_ms": 2 * workload.slo_ms})
        changed = instance.replace(workloads=[eased if one is workload else one for one in instance.workloads])
        stay = Counter(layouts(before)) & Counter(layouts(provision.replan(changed, before).plan))
        kept.append(stay.total() / len(before.gpus))
    print(f"SLO of one workload doubled in S{CHANGED}: {mean(kept):.1%} of the GPUs keep their slices and workloads")


def layouts(plan):
    """What stands where on every GPU of a plan: profiles, starts and workloads."""
    for gpu in plan.gpus:
        slices = [(piece.profile, piece.start, one.workload) for piece in gpu.slices for one in piece.replicas]
        yield tuple(sorted(slices))


if __name__ == "__main__":
    main()
