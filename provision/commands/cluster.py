"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cluster.layout import layout
from provision.commands.common import add_json, print_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_layout(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("gpu", metavar="GPU", help="a GPU type, such as a100-80gb")
    parser.add_argument("profiles", metavar="PROFILE", nargs="+", help="the instances to create, in this order")
    parser.add_argument("--on", metavar="PROFILE@START", nargs="+", default=[], help="instances that exist and stay")
    add_json(parser)
    parser.set_defaults(run=_layout)


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
