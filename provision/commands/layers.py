"""``provision profile-layers`` and ``fit-layers``: measure layers on the present CPU, alone and beside a background
load, and fit the analytical CPU model to the times.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from provision.commands.common import counting, print_json, print_table
from provision.commands.verb import Writing
from provision.heuristics.veltair.fit import CONSTANTS, by_network, compared, fit_cpu
from provision.instances.files.files import validate, write_text
from provision.instances.read import write
from provision.models.base.arguments import local, operand, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Positive, PositiveCount
from provision.models.cpu.layers import Network
from provision.models.cpu.networks import MEASURED_TOKENS, networks
from provision.models.cpu.times import LayerTimes, by_level, fit_proxy
from provision.studies.veltair.cpu import measured_cpu, usable_cores
from provision.studies.veltair.layer_times import read_layer_times
from provision.studies.veltair.layer_timing import Setting, jobs, measure, settings
from provision.sweeps.table import as_csv


class FitLayers(Writing):
    """``provision fit-layers``."""

    times: str = operand("F", "a file of profile-layers, or a shipped name")
    out: str | None = written("write measured and predicted times of all layers here (.csv)")

    def run(self) -> int:
        """Fit, and print how well."""
        times = read_layer_times(self.times)
        found = fitted(times)
        if self.out:
            write_text(self.out, as_csv(found["layers"]), self.force)
        if self.as_json:
            print_json({"machine": times.machine.model_dump()} | found | {"file": self.out})
            return 0
        print_fit(times, found)
        if self.out:
            print(f"written to {self.out}")
        return 0


def fitted(times: LayerTimes) -> dict[str, Any]:
    """The results of a fit to LayerTimes: the constants of the CPU, networks and layers compared with the model, the
    effect of every background level, and the fit of the interference proxy (None if there is none).
    """
    cpu, proxy = fit_cpu(times), fit_proxy(times)
    layers = compared(times, cpu)
    return {
        "cpu": {name: getattr(cpu, name) for name in CONSTANTS}, "networks": by_network(layers), "layers": layers,
        "levels": by_level(times), "proxy": proxy and proxy._asdict(),
    }


def print_fit(times: LayerTimes, found: Mapping[str, Any]) -> None:
    """Print the results of ``fitted``."""
    machine, cpu, networks, levels = times.machine, found["cpu"], found["networks"], found["levels"]
    print(f"measured on {machine.cpu}, {machine.cores} cores, L3 {machine.l3_mib or '?'} MiB, PyTorch {machine.torch}")
    print(f"a core does {cpu['core_flops'] / 1e9:.4g} GFLOP/s and reads {cpu['core_l3_bps'] / 1e9:.3g} GB/s, "
          f"a layer starts in {cpu['fork_s'] * 1e6:.3g} us")
    print("\nVersions fastest alone, beside the analytical model")
    print_table(list(networks[0]), [list(row.values()) for row in networks])
    print("\nBeside a load that streams memory")
    print_table(list(levels[0]), [[*list(row.values())[:-1], _counts(row["fastest"])] for row in levels])
    if found["proxy"]:
        print("proxy (known load instead of hardware counters): slowdown = 1 + B ({:.3g} + {:.3g} a), B and a in GB/s; "
              "R2 {:.2f} on rows left out".format(*found["proxy"]["weights"], found["proxy"]["r_squared"]))


def _counts(fastest: Mapping[str, int]) -> str:
    """The versions of layers in words, each with the number of layers for which it is fastest."""
    return ", ".join(f"{version} {count}" for version, count in fastest.items())


MEASURED = networks(MEASURED_TOKENS)
"""The networks that can be measured, by name."""


class ProfileLayers(Writing):
    """``provision profile-layers``."""

    networks: tuple[str, ...] = operand("NETWORK", f"default: all, {', '.join(MEASURED)}", (), nargs="*")
    cores: tuple[PositiveCount, ...] = local((), "N,N", "numbers of cores (default: 1, 2, ... to all that may be used)")
    levels: tuple[Annotated[float, Field(ge=0, le=1)], ...] = local(
        (0.0, 0.5, 1.0), "L,L", "parts of the time that the background streams")
    seconds: Annotated[Positive, Field(le=60)] = local(0.1, "S", "per layer, version and setting")
    out: str = written("write the times here (.json, else YAML)", default=...)

    def run(self) -> int:
        """Measure, and print how the times compare with the model."""
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
