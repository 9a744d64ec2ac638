"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cluster.layout import layout
from provision.cluster.recommend import recommend, told, write_exports
from provision.cluster.state import read_state
from provision.commands.common import add_force, add_json, print_json, seconds
from provision.instances.files.files import check_writable
from provision.instances.read import write

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
    for path in filter(None, (options.out, f"{options.export}/plan.json" if options.export else None)):
        check_writable(path, options.force)
    found = recommend(state, options.max_moves, options.keep, options.time_limit)
    if options.out:
        write(found.plan, options.out, options.force)
    exports = write_exports(found, options.export, options.force) if options.export else []
    if options.json:
        print_json(found.model_dump(mode="json") | {"plan_file": options.out, "exports": exports})
        return 0
    print("\n".join([*told(found, options.markdown), *exports]))
    return 0


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
