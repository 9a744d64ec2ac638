"""``provision fit-layers``: fit the analytical CPU model to measured layer times, and tell how a background load slows
layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.commands.common import print_json, print_table
from provision.commands.verb import Writing
from provision.heuristics.veltair.fit import CONSTANTS, by_network, compared, fit_cpu
from provision.instances.files.files import check_writable, write_text
from provision.models.base.arguments import local, operand
from provision.models.cpu.slowdowns import by_level, fit_proxy
from provision.models.cpu.times import LayerTimes
from provision.studies.veltair.layer_times import read_layer_times
from provision.sweeps.table import as_csv


class FitLayers(Writing):
    """``provision fit-layers``."""

    times: str = operand("F", "a file of profile-layers, or a shipped name")
    out: str | None = local(None, "F", "write measured and predicted times of all layers here (.csv)")

    def run(self) -> int:
        """Fit, and print how well."""
        if self.out:
            check_writable(self.out, self.force)
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
