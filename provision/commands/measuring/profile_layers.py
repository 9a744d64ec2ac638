"""``provision profile-layers``: measure layers on the present CPU, alone and beside a background load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, counting, print_json
from provision.commands.measuring.fit_layers import fitted, print_fit
from provision.instances.files.files import check_writable, validate
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.base.options import listed
from provision.models.cpu.networks import MEASURED_TOKENS, networks
from provision.models.cpu.times import LayerTimes
from provision.studies.veltair.cpu import measured_cpu, usable_cores
from provision.studies.veltair.layer_timing import jobs, measure, settings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.cpu.layers import Network
    from provision.studies.veltair.layer_timing import Setting

MEASURED = networks(MEASURED_TOKENS)
"""The networks that can be measured, by name."""


def add_profile_layers(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: all, {', '.join(MEASURED)}")
    parser.add_argument("--cores", metavar="N,N", help="default: 1, 2, ... to all that may be used")
    parser.add_argument("--levels", default="0,0.5,1", metavar="L,L",
                        help="parts of the time that the background streams (default: 0,0.5,1)")
    parser.add_argument("--seconds", type=float, default=0.1, metavar="S",
                        help="per layer, version and setting (default: 0.1)")
    parser.add_argument("--out", required=True, metavar="F", help="write the times here (.json, else YAML)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    check_writable(options.out, options.force)
    usable, machine = usable_cores(), measured_cpu()
    todo, work = _settings(options, len(usable)), jobs(_networks(options.networks))
    rows, background = [], []
    with counting("measuring layers", len(todo) * len(work)) as advance:
        for setting in todo:
            found, streaming = measure(work, setting, usable, machine.l3_mib, options.seconds, advance)
            rows += found
            background += [streaming] if streaming else []
    content = {"version": 1, "kind": "layer-times", "source": "measured by provision profile-layers",
               "machine": machine, "background": background, "times": rows}
    times = validate(LayerTimes, content, "profile-layers")
    write(times, options.out, options.force)
    given_up = len(todo) * len(work) - len(rows)
    if options.json:
        print_json({"times": len(rows), "missing": given_up, "file": options.out})
        return 0
    print_fit(times, fitted(times))
    if given_up:
        print(f"{given_up} of {len(todo) * len(work)} times are missing: other programs had the cores")
    print(f"written to {options.out}")
    return 0


def _networks(names: Sequence[str]) -> list[Network]:
    """The shipped networks with these names; all networks if no names are given."""
    for unknown in set(names) - set(MEASURED):
        raise InputError(f"network {unknown!r}: none of this name ships; there are {', '.join(MEASURED)}")
    return [network for name, network in MEASURED.items() if name in (names or MEASURED)]


def _settings(options: Namespace, usable: int) -> list[Setting]:
    """The settings to measure; settings without background load come first."""
    if not 0 < options.seconds <= 60:
        raise InputError(f"--seconds {options.seconds:g}: should be above 0 and at most 60")
    cores = listed("cores", options.cores, int, 1, usable) if options.cores else range(1, usable + 1)
    levels = {0.0, *listed("levels", options.levels, float, 0, 1)}
    return settings(sorted(set(cores)), sorted(levels), usable)
