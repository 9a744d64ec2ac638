"""ParvaGPU's comparison beyond the table of plans: its rivals, figures 6, 7, 9, 11, and section III-F (SC 2024).

Run as ``python benchmarks/papers/parvagpu_figures.py DIR [--times N] [--maps] [--only PART ...]``; DIR is ParvaGPU's
artefact (``prof_data``, ``SLO``, and ``deployment`` for ``--maps``). With --only the other parts of a result file stay.

With ``--maps`` only the deployment maps that the authors published are compared with our plans: how many segments they
have, how many of these our plan has too (a segment is a service on a slice of some size with batch and processes),
and how many it has beside them.

- ``profile``: what section II says of InceptionV3 (figures 3 and 4), by its tables: requests/s of all processes, ms.
- ``gpus``: ParvaGPU's GPUs with every number of processes that was profiled, as in its program, and with up to three,
  as in its paper; and without processes, single.
- ``saved``: GPUs that ParvaGPU saves against methods with MIG, and against gpu-lets and iGniter without MIG
  (`a100_rivals`), where batches beside another part are slower by an assumed factor.
  gpu-lets runs with turns and, as ParvaGPU describes it, without. iGniter splits workloads that one GPU does not carry,
  as its program does; ``S1 to S4`` are those that it could run in the paper.
- ``slack``: internal slack (figure 6, equation 3) and external fragmentation (figure 7), means over S1 to S6. SM
  activity was measured there; here it is, first, the routed part of a replica's throughput, and second, with servers
  saturated, its throughput over the largest that its model reaches on that slice type with any batch and number of
  processes.
- ``repeated``: the part of GPUs saved on S5 with every workload 1 to N times, mean (figure 10).
- ``delay``: scheduling delays in ms (figure 9 for S1 to S6, figure 11 for S5 with every workload 1 to N times), least
  of three; and by what part ParvaGPU's is shorter than a rival's, mean. gpu-lets and iGniter at the largest slowdown.
- ``changed``: every workload's SLO in turn is doubled, or a third shorter (section III-F): the part of the other
  services that are not touched and of the GPUs that keep their slices and workloads, slices destroyed and replicas
  started, and GPUs after all; by ParvaGPU's own procedure, by replanning that weighs changes (it may stop replicas that
  are to spare, at no cost), and planned anew.
- ``shipped``: GPUs on the scenarios as they ship, whose closed networks are fitted to the tables; on S5 and S6 also
  with only the batches that were profiled, and on the tables without their odd points, those that are over ODD times as
  fast as the fit, and how many these are.
"""

import argparse
import csv
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean

import results
from a100_rivals import with_igniter, without_mig
from scenarios import scenario

import provision
from provision.draw.output import print_table
from provision.instances.importers.parvagpu import import_deployment
from provision.instances.read import repeated
from provision.models.hardware.gpu import gpu_type
from provision.models.plans.disturbance import disturbance

SCENARIOS = range(1, 7)
SPLITTABLE = 4
"""iGniter runs S1 to S4 in the paper."""
SLOWDOWNS = (1.0, 1.1, 1.2)
METHODS = ("parvagpu", "parvagpu-single", "parvagpu-unoptimized", "mig-serving-fast")
CHANGED = 4
LARGE = 5, 6
ODD = 1.25
FACTORS = (2.0, 2 / 3)
TOLD = tuple((size, batch, processes) for size, batch in (("1", "4"), ("4", "8")) for processes in "123")
"""Instance sizes, batches and processes of which section II tells numbers."""
COLUMNS = ("part", "what", "where", "value")
MAPS = ("scenario", "segments", "shared", "ours_only")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="of figure 11: the most copies of S5")
    parser.add_argument("--maps", action="store_true", help="only compare the deployment maps")
    results.add_results(parser)
    parser.add_argument("--only", nargs="*", metavar="PART", help="make these parts anew")
    options = parser.parse_args()
    instances = {f"S{number}": scenario(options.folder, number) for number in SCENARIOS}
    if options.maps:
        maps = [[number, *mapped(options.folder, number, one)] for number, one in enumerate(instances.values(), 1)]
        print_table(MAPS, maps)
        results.write(options.results, "parvagpu-maps", MAPS, maps)
        return
    many = {f"S5 x {times}": repeated(instances["S5"], times) for times in range(1, options.times + 1)}
    made = {
        "profile": lambda: profiled(options.folder), "gpus": lambda: [*numbers(instances), *saved(instances)],
        "repeated": lambda: repeatedly(many), "slack": lambda: slack(instances),
        "delay": lambda: [*delays("figure 9", instances), *delays("figure 11", many)],
        "changed": lambda: changes(instances[f"S{CHANGED}"]), "shipped": lambda: shipped(instances),
    }
    found = [row for part in options.only or made for row in made[part]()]
    known = results.earlier(options.results if options.only else None, "parvagpu-figures")
    rows = [*([*one.values()] for one in known.rows if one["part"] not in {row[0] for row in found}), *found]
    print_table(COLUMNS, rows)
    results.write(options.results, "parvagpu-figures", COLUMNS, rows, (), results.commits(known))


def mapped(folder, number, instance) -> tuple[int, int, int]:
    """Segments of the authors' deployment map, those of them that our plan has too, and those that only it has."""
    path = Path(folder, "deployment", f"SLO{number}", f"SLO{number}_ParvaGPU_deploy.csv")
    theirs = segments_of(import_deployment(path, instance))
    ours = segments_of(provision.solve(instance, "parvagpu").plan)
    return theirs.total(), (theirs & ours).total(), (ours - theirs).total()


def segments_of(plan) -> Counter[tuple[str, str, int, int]]:
    """How often a plan has each segment."""
    return Counter((one.workload, piece.profile, one.batch, one.processes) for _, _, piece, one in plan.replicas())


def profiled(folder) -> Iterator[tuple[object, ...]]:
    """Throughputs of all processes and latencies of a process; nothing where the tables lack the network."""
    path = Path(folder, "prof_data", "inceptionv3.csv")
    if not path.exists():
        return
    with path.open(newline="") as file:
        rows = {(row["Mig instance"], row["Batch size"], row["Workload Number"]): row for row in csv.DictReader(file)}
    for at in TOLD:
        if at in rows:
            name = "size {}, batch {}, processes {}".format(*at)
            yield "profile", name, "requests/s", int(at[-1]) * float(rows[at]["Throughput"])
            yield "profile", name, "ms", 1000 * float(rows[at]["Latency"])


def numbers(instances) -> Iterator[tuple[object, ...]]:
    """GPUs by the most processes on a segment."""
    for name, settings in (("every number of processes", {}), ("up to three processes", {"max_processes": 3})):
        for at, instance in instances.items():
            yield "gpus", name, at, gpus(instance, "parvagpu", **settings)
    for at, instance in instances.items():
        yield "gpus", "one process", at, gpus(instance, "parvagpu-single")


def saved(instances) -> Iterator[tuple[object, ...]]:
    """GPUs of the rivals, and what ParvaGPU saves against them."""
    ours = {at: gpus(one, "parvagpu") for at, one in instances.items()}
    for method in ("mig-serving-fast", "parvagpu-single", "parvagpu-unoptimized", "auto"):
        yield from _saved(method, ours, {at: gpus(one, method) for at, one in instances.items()})
    for slowdown in SLOWDOWNS:
        for turns, most in (("turns", 1000), ("no turns", 1)):
            theirs = {at: gpus(without_mig(one, slowdown), "gpulets", models_per_part=most)
                      for at, one in instances.items()}
            yield from _saved(f"gpu-lets, {turns}, slowdown {slowdown:g}", ours, theirs)
        theirs = {at: gpus(with_igniter(one, slowdown), "igniter") for at, one in instances.items()}
        yield from _saved(f"iGniter, slowdown {slowdown:g}", ours, theirs)


def _saved(name, ours, theirs) -> Iterator[tuple[object, ...]]:
    for at, count in theirs.items():
        yield "gpus", name, at, count
    parts = [1 - ours[at] / theirs[at] for at in ours]
    yield "saved", name, "S1 to S6", mean(parts)
    yield "saved", name, f"S1 to S{SPLITTABLE}", mean(parts[:SPLITTABLE])


def repeatedly(many) -> Iterator[tuple[object, ...]]:
    """What ParvaGPU saves on S5 with every workload several times, as a mean over the times."""
    ours = [gpus(one, "parvagpu") for one in many.values()]
    rivals = {method: (method, list(many.values()), {}) for method in ("mig-serving-fast", "parvagpu-single")}
    alike = [without_mig(one, SLOWDOWNS[-1]) for one in many.values()]
    rivals["gpu-lets, no turns"] = ("gpulets", alike, {"models_per_part": 1})
    for name, (method, instances, settings) in rivals.items():
        theirs = [gpus(one, method, **settings) for one in instances]
        yield "repeated", name, "S5", mean(1 - one / other for one, other in zip(ours, theirs, strict=True))


def gpus(instance, method, **parameters) -> int:
    """GPUs of a method's plan."""
    return provision.solve(instance, method, **parameters).report.gpus


def slack(instances) -> Iterator[tuple[object, ...]]:
    """Internal slack and external fragmentation."""
    for method in METHODS:
        plans = [(one, provision.solve(one, method)) for one in instances.values()]
        yield "slack", method, "by rates", mean(found.report.internal_slack for _, found in plans)
        yield "slack", method, "saturated", mean(1 - saturation(one, found.plan) for one, found in plans)
        yield "slack", method, "fragmentation", mean(found.report.external_fragmentation for _, found in plans)


def saturation(instance, plan) -> float:
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


def delays(figure, instances) -> Iterator[tuple[object, ...]]:
    """Scheduling delays, ms, and by what part ParvaGPU's are shorter."""
    found = {method: {at: _least_ms(one, method) for at, one in instances.items()} for method in METHODS}
    found["gpu-lets"] = {at: _least_ms(without_mig(one, SLOWDOWNS[-1]), "gpulets", models_per_part=1)
                         for at, one in instances.items()}
    if figure == "figure 9":
        found["iGniter"] = {at: _least_ms(with_igniter(one, SLOWDOWNS[-1]), "igniter")
                            for at, one in list(instances.items())[:SPLITTABLE]}
    for method, each in found.items():
        yield from (("delay", f"{figure}, {method}", at, ms) for at, ms in each.items())
    for method, each in found.items():
        yield "delay", f"{figure}, {method}", "shorter", mean(1 - found["parvagpu"][at] / ms for at, ms in each.items())


def _least_ms(instance, method, **parameters) -> float:
    runs = [provision.solve(instance, method, **parameters) for _ in range(3)]
    return 1000 * min(run.build_seconds + run.solve_seconds for run in runs)


def changes(instance) -> Iterator[tuple[object, ...]]:
    """What stays when one workload's SLO changes."""
    before = provision.solve(instance, "parvagpu").plan
    procedures = {
        "section III-F": lambda one: provision.replan(one, before, method="parvagpu").plan,
        "replan": lambda one: provision.replan(one, before).plan,
        "anew": lambda one: provision.solve(one, "parvagpu").plan,
    }
    found = defaultdict(list)
    for factor in FACTORS:
        for workload in instance.workloads:
            other = workload.model_copy(update={"slo_ms": factor * workload.slo_ms})
            changed = instance.replace(workloads=[other if one is workload else one for one in instance.workloads])
            for name, procedure in procedures.items():
                found[name].append(stays(before, procedure(changed), workload.name))
    for name, rows in found.items():
        for at, values in zip(("services", "gpus", "moved", "gpus after"), zip(*rows, strict=True), strict=True):
            yield "changed", name, at, mean(values)


def shipped(instances) -> Iterator[tuple[object, ...]]:
    """GPUs of ParvaGPU, with several processes and with one, on the scenarios that ship, and what makes S5 and S6
    differ from the tables.
    """
    for number, method in product(SCENARIOS, METHODS[:2]):
        yield "shipped", method, f"S{number}", gpus(provision.read(f"parvagpu-s{number}"), method)
    for number in LARGE:
        instance, table = provision.read(f"parvagpu-s{number}"), instances[f"S{number}"]
        fit, measured = instance.performance[0], table.performance[0]
        profiled = sorted({point.batch for one in measured.models.values() for point in one.points})
        usual, odd = without_odd(measured, fit)
        for name, one in (
            ("profiled batches", instance.replace(performance=[fit.model_copy(update={"batches": tuple(profiled)})])),
            ("tables without odd points", table.replace(performance=[usual])),
        ):
            for method in METHODS[:2]:
                yield "shipped", f"{method}, {name}", f"S{number}", gpus(one, method)
        yield "shipped", "odd points", f"S{number}", odd


def without_odd(measured, fit):
    """Tables without the points that are over ODD times as fast as the fit, and the number of these points."""
    models, odd = dict(measured.models), 0
    for name, one in measured.models.items():
        if name not in fit.models:
            continue
        network = fit.models[name].coefficients
        usual = tuple(point for point in one.points if point.throughput_rps <= ODD * network.throughput_rps(
            point.batch, point.processes, gpu_type(measured.gpu).slice_compute(point.profile)))
        odd += len(one.points) - len(usual)
        models[name] = one.model_copy(update={"points": usual})
    return measured.model_copy(update={"models": models}), odd


def stays(before, after, changed) -> tuple[float, float, int, int]:
    """Part of the services that are not touched, of the GPUs that keep slices and workloads; slices destroyed and
    replicas started; GPUs after."""
    places = [service_places(plan) for plan in (before, after)]
    others = places[0].keys() - {changed}
    layouts = [[sorted((piece.profile, piece.start, one.workload) for piece in gpu.slices for one in piece.replicas)
                for gpu in plan.gpus] for plan in (before, after)]
    kept = sum(one in layouts[1] for one in layouts[0]) / len(before.gpus)
    untouched = mean(places[0][name] == places[1][name] for name in others)
    return untouched, kept, disturbance(before, after).moved, len(after.gpus)


def service_places(plan) -> dict[str, list[tuple[str, int, int, int]]]:
    """By service: its slices with batch and processes; GPUs may be numbered in another order."""
    found = defaultdict(list)
    for gpu in plan.gpus:
        for piece in gpu.slices:
            for one in piece.replicas:
                found[one.workload].append((piece.profile, piece.start, one.batch, one.processes))
    return {name: sorted(places) for name, places in found.items()}


if __name__ == "__main__":
    main()
