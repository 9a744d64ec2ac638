"""``provision profile-layers``: measure layers on the present CPU, alone and beside a background load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from provision.commands.common import counting, print_json
from provision.commands.measuring.fit_layers import fitted, print_fit
from provision.commands.verb import Writing
from provision.instances.files.files import check_writable, validate
from provision.instances.read import write
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Positive, PositiveCount
from provision.models.cpu.layers import Network
from provision.models.cpu.networks import MEASURED_TOKENS, networks
from provision.models.cpu.times import LayerTimes
from provision.studies.veltair.cpu import measured_cpu, usable_cores
from provision.studies.veltair.layer_timing import Setting, jobs, measure, settings

MEASURED = networks(MEASURED_TOKENS)
"""The networks that can be measured, by name."""


class ProfileLayers(Writing):
    """``provision profile-layers``."""

    networks: tuple[str, ...] = operand("NETWORK", f"default: all, {', '.join(MEASURED)}", (), nargs="*")
    cores: tuple[PositiveCount, ...] = local((), "N,N", "numbers of cores (default: 1, 2, ... to all that may be used)")
    levels: tuple[Annotated[float, Field(ge=0, le=1)], ...] = local(
        (0.0, 0.5, 1.0), "L,L", "parts of the time that the background streams")
    seconds: Annotated[Positive, Field(le=60)] = local(0.1, "S", "per layer, version and setting")
    out: str = local(..., "F", "write the times here (.json, else YAML)")

    def run(self) -> int:
        """Measure, and print how the times compare with the model."""
        check_writable(self.out, self.force)
        usable, machine = usable_cores(), measured_cpu()
        todo, work = _settings(self, len(usable)), jobs(_networks(self.networks))
        rows, background = [], []
        with counting("measuring layers", len(todo) * len(work)) as advance:
            for setting in todo:
                found, streaming = measure(work, setting, usable, machine.l3_mib, self.seconds, advance)
                rows += found
                background += [streaming] if streaming else []
        content = {"version": 1, "kind": "layer-times", "source": "measured by provision profile-layers",
                   "machine": machine, "background": background, "times": rows}
        times = validate(LayerTimes, content, "profile-layers")
        write(times, self.out, self.force)
        given_up = len(todo) * len(work) - len(rows)
        if self.as_json:
            print_json({"times": len(rows), "missing": given_up, "file": self.out})
            return 0
        print_fit(times, fitted(times))
        if given_up:
            print(f"{given_up} of {len(todo) * len(work)} times are missing: other programs had the cores")
        print(f"written to {self.out}")
        return 0


def _networks(names: Sequence[str]) -> list[Network]:
    """The shipped networks with these names; all networks if no names are given."""
    for unknown in set(names) - set(MEASURED):
        raise InputError(f"network {unknown!r}: none of this name ships; there are {', '.join(MEASURED)}")
    return [network for name, network in MEASURED.items() if name in (names or MEASURED)]


def _settings(options: ProfileLayers, usable: int) -> list[Setting]:
    """The settings to measure; settings without background load come first."""
    if options.cores and max(options.cores) > usable:
        raise InputError(f"--cores {max(options.cores)}: write numbers from 1 to {usable}, with commas between")
    return settings(sorted({*(options.cores or range(1, usable + 1))}), sorted({0.0, *options.levels}), usable)
