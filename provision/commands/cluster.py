"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cluster.calibrate import calibrate, corrected, observed_by, read_observed
from provision.cluster.defragment import defragment
from provision.cluster.layout import layout
from provision.cluster.metrics import WINDOW_S, measured, metrics_table
from provision.cluster.recommend import export_paths, recommend, told, write_exports
from provision.cluster.state import read_state
from provision.commands.common import UNKNOWN, add_force, add_json, print_json, print_table, seconds
from provision.commands.reading import read_instance
from provision.instances.files.files import check_writable
from provision.instances.read import read_plan, write
from provision.models.base.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_layout(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("gpu", metavar="GPU", help="a GPU type, such as a100-80gb")
    parser.add_argument("profiles", metavar="PROFILE", nargs="+", help="the instances to create, in this order")
    parser.add_argument("--on", metavar="PROFILE@START", nargs="+", default=[], help="instances that exist and stay")
    add_json(parser)
    parser.set_defaults(run=_layout)


def add_recommend(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("state", metavar="STATE", help="what import kubernetes or import gpus wrote")
    parser.add_argument("--max-moves", type=int, metavar="N",
                        help="at most so many slices destroyed and replicas started")
    parser.add_argument("--keep", metavar="NAMESPACE", action="append", default=[], help="GPUs of this namespace stay")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, for a pull request")
    parser.add_argument("--out", metavar="F", help="write the target plan here (.json, else YAML)")
    parser.add_argument("--export", metavar="DIR", help="write the target for mig-parted, DRA and the device plugin")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_recommend)


def _recommend(options: Namespace) -> int:
    state = read_state(options.state)
    for path in [*([options.out] if options.out else []), *(export_paths(options.export) if options.export else [])]:
        check_writable(path, options.force)
    found = recommend(state, options.max_moves, options.keep, options.time_limit)
    if options.out:
        write(found.plan, options.out, options.force)
    exports, whole = write_exports(found, options.export, options.force) if options.export else ([], True)
    if options.json:
        print_json(found.model_dump(mode="json") | {"plan_file": options.out, "exports": exports})
    else:
        print("\n".join([*told(found, options.markdown), *exports]))
    return 0 if whole else 1


def add_calibrate(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("plan", metavar="PLAN", help="the plan that runs")
    parser.add_argument("--prometheus", metavar="URL", help="the server that has the latency histograms")
    parser.add_argument("--metrics", metavar="FILE", help="rows for the table of metric names")
    parser.add_argument("--window", type=seconds, default=WINDOW_S, metavar="S",
                        help=f"seconds over which latencies are taken (default: {WINDOW_S})")
    parser.add_argument("--observed", metavar="FILE", help="or a table: workload,requests,p50_ms,p99_ms")
    parser.add_argument("--out", metavar="F", help="write corrected performance data here, if anything is outside")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_calibrate)


def _calibrate(options: Namespace) -> int:
    if (options.prometheus is None) == (options.observed is None):
        raise InputError("calibrate: give --prometheus URL or --observed FILE, and not both")
    instance = read_instance(options.instance)
    plan = read_plan(options.plan, instance)
    for path in {options.out, *_corrected_paths(options.out, len(instance.performance))} if options.out else ():
        check_writable(path, options.force)
    observed = read_observed(options.observed) if options.observed else observed_by(
        measured(options.prometheus, metrics_table(options.metrics), options.window), instance)
    found = calibrate(instance, plan, observed)
    lines = list(found.notes)
    if options.out and found.factors:
        files, further = corrected(instance, found.factors)
        lines += further
        for data, path in zip(files, _corrected_paths(options.out, len(files)), strict=True):
            write(data, path, options.force)
            lines.append(f"{data.source}: written to {path}")
    if options.json:
        print_json(found.model_dump(mode="json") | {"lines": lines})
        return 0 if found.ok else 1
    print_table(("workload", "percentile", "observed ms", "predicted ms", "band ms", "inside", "requests"), [
        (one.workload, f"P{one.percentile:g}", one.observed_ms, one.predicted_ms,
         None if one.band_ms is None else f"{one.band_ms[0]:.4g} to {one.band_ms[1] or float('inf'):.4g}",
         {True: "yes", False: "NO", None: "-"}[one.inside], round(one.requests)) for one in found.rows])
    for model, factor in found.factors.items():
        print(f"{model}: its times are {factor:.3g} times those predicted")
    print("\n".join([*lines, "everything is inside its band" if found.ok else "the prediction does not hold"]))
    return 0 if found.ok else 1


def _corrected_paths(out: str, files: int) -> list[str]:
    """The paths of so many files of corrected data."""
    return [out] if files == 1 else [f"{out}.{number}.yaml" for number in range(files)]


def add_defragment(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("state", metavar="STATE", help="what import kubernetes or import gpus wrote")
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--free", type=int, metavar="N", help="let so many GPUs stand empty")
    goal.add_argument("--free-node", metavar="NODE", help="let this machine stand empty")
    goal.add_argument("--admit", metavar="PROFILE", help="make room for a slice: PROFILE, or GPUTYPE:PROFILE")
    parser.add_argument("--max-moves", type=int, metavar="N", help="at most so many slices move")
    parser.add_argument("--keep", metavar="NAMESPACE", action="append", default=[], help="slices of it stay")
    parser.add_argument("--budget", metavar="WORKLOAD=N", action="append", default=[],
                        help="at most N slices of a workload move")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)")
    add_json(parser)
    parser.set_defaults(run=_defragment)


def _defragment(options: Namespace) -> int:
    state = read_state(options.state)
    budgets = {}
    for text in options.budget:
        name, _, number = text.rpartition("=")
        if name not in state.instance.workload or not number.isdecimal():
            raise InputError(f"--budget {text}: write WORKLOAD=N with a workload of the state: "
                             f"{', '.join(list(state.instance.workload)[:10])}")
        budgets[name] = int(number)
    found = defragment(state, options.free, options.free_node, options.admit, options.max_moves, options.keep, budgets,
                       options.time_limit)
    if options.json:
        print_json(found.model_dump(mode="json"))
    elif found.status == "impossible":
        print(f"No moves reach it, proven: {found.goal}.")
    elif found.weight is None:
        print(f"Nothing was found in time: {found.goal}; a longer --time-limit may help.")
    else:
        proof = "proven fewest" if found.status == "optimal" else f"at least {found.bound:g} by proof"
        print(f"{len(found.moves)} moves, {found.weight:g} restarts and destroyed slices ({proof}): {found.goal}.")
        for move in found.moves:
            print(f"  {', '.join(move.pods)} ({move.profile}): {move.before} to {move.after}")
        if found.moves and found.order.found:
            print(f"{len(found.order.steps)} steps, in all of which every pod is served:")
            for step in found.order.steps:
                print(f"  {step.number}. {step.action} {', '.join(step.workloads)} on {step.gpu}, {step.slice}")
        if found.order.spare_gpus:
            print(f"They need {found.order.spare_gpus} spare GPUs for a time.")
        if not found.order.found:
            print("No order was found that serves every pod all the time; move at a quiet time.")
        print(f"Then empty: {', '.join(found.freed) or 'none'}." + (f" Room: {found.room}." if found.room else ""))
    return UNKNOWN if found.status == "unknown" else int(found.status == "impossible")


def _layout(options: Namespace) -> int:
    answer = layout(options.gpu, options.profiles, options.on)
    if options.json:
        print_json(answer.model_dump(mode="json"))
    elif not answer.legal:
        print(f"Not legal on {answer.gpu}: {answer.reason}.")
    else:
        print(f"Legal on {answer.gpu}: {', '.join(f'{name} at {start}' for name, start in answer.instances)}.")
        for name, starts in answer.starts.items():
            print(f"{name} may start at {_numbers(starts)}.")
        room = "; ".join(f"{name} at {_numbers(starts)}" for name, starts in answer.further.items())
        print(f"Beside them fits one more of: {room}." if room else "Nothing more fits.")
        if answer.as_given:
            print("First fit creates them in the order given.")
        elif answer.order:
            print(f"First fit fails in the order given; create them as {', '.join(answer.order)}.")
        else:
            print("First fit reaches this layout in no order; create the instances at the starts above.")
    return 0 if answer.legal else 1


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
