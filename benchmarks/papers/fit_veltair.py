"""The constants of ``models/cpu``'s PUBLISHED, from the layer times that come with VELTAIR's public program.

Run as ``python benchmarks/papers/fit_veltair.py DIR``, a copy of SJTU-ReArch-Group/VELTAIR_ASPLOS22. A row of
``prof_output/NETWORK.out`` is a layer of ``configs/NETWORK.config``, its columns are microseconds on 8, 16, ... 64
cores. A layer is predicted to take the time of its fastest tiling on so many cores. Efficiency, bandwidth to L3 and
the time to join a core are found by least squares on the logarithms of ResNet-50's times on up to 56 cores; GoogLeNet
is not seen. On 64 cores, where ResNet-50 takes longer than on 56, the rest is the factor ``crowded``.
"""

import argparse
from pathlib import Path

import numpy as np
import results
from scipy.optimize import least_squares

from provision.draw.output import print_table
from provision.heuristics.veltair.versions import candidates_of
from provision.models.cpu.cpu import CPUS, PUBLISHED, core_scaling
from provision.models.cpu.layers import Layer, conv

FITTED, JUDGED = "ResNet50", "GoogLeNet"
UNIT = 8
"""Cores from one column to the next."""
UNCROWDED = PUBLISHED._replace(crowded=1.0)
START = {"efficiency": 0.7, "core_l3_bps": 12e9, "join_s": 0.1e-6}
STEP = 0.02
"""Relative change that the fit tries; times have steps where the fastest tiling changes."""


def published(folder, name) -> tuple[list[Layer], np.ndarray]:
    """The layers of a network, and their times in s, (layers, columns)."""
    lines = Path(folder, "configs", f"{name}.config").read_text().split()
    times = Path(folder, "prof_output", f"{name}.out").read_text().split()
    rows = [[float(number) for number in line.split(",") if number] for line in times]
    return [layer(line) for line in lines], np.array(rows) / 1e6


def layer(line) -> Layer:
    """The Layer of ``CONV,height-width-channels-filters-kernel-kernel-padding-padding-stride-stride-groups``."""
    size, _, channels, filters, kernel, _, padding, _, stride, *_ = map(int, line.split(",")[1].split("-"))
    return conv("", (size + 2 * padding - kernel) // stride + 1, channels, filters, kernel, stride)


def predicted_s(layers, columns, cpu) -> np.ndarray:
    """Times of the layers' fastest tilings on 8, 16, ... cores, (layers, columns)."""
    cores = UNIT * np.arange(1, columns + 1)
    found = {one: core_scaling(candidates_of(one, cpu), 0.0, cpu)[:, cores - 1].min(axis=0) for one in set(layers)}
    return np.array([found[one] for one in layers])


def fitted(layers, times_s):
    """The Cpu that fits, but for ``crowded``."""

    def cpu_of(logs):
        return UNCROWDED._replace(**dict(zip(START, np.exp(logs).tolist(), strict=True)))

    def errors(logs) -> np.ndarray:
        return np.log(predicted_s(layers, times_s.shape[1], cpu_of(logs)) / times_s).ravel()

    return cpu_of(least_squares(errors, np.log(list(START.values())), diff_step=STEP).x)


def main() -> None:
    """Print the constants, and errors of the fit and of the CPUs that ship."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    results.add_results(parser)
    options = parser.parse_args()
    profiles = {name: published(options.folder, name) for name in (FITTED, JUDGED)}
    layers, times_s = profiles[FITTED]
    uncrowded = fitted(layers, times_s[:, :-1])
    crowded = times_s[:, -1].sum() / predicted_s(layers, times_s.shape[1], uncrowded)[:, -1].sum()
    cpu = uncrowded._replace(crowded=float(crowded))
    print({name: getattr(cpu, name) for name in (*START, "crowded")})
    rows, told = [], []
    for label, one in {"fitted now": cpu, **CPUS}.items():
        for name, (layers, times_s) in profiles.items():
            ours_s = predicted_s(layers, times_s.shape[1], one)
            told.append([label, name, float(np.abs(ours_s / times_s - 1).mean()), *(1e3 * ours_s.sum(axis=0)).tolist()])
            totals = [f"{ours:.2f} ({theirs:.2f})" for ours, theirs in
                      zip(1e3 * ours_s.sum(axis=0), 1e3 * times_s.sum(axis=0), strict=True)]
            rows.append([label, name, f"{np.abs(ours_s / times_s - 1).mean():.1%}", ", ".join(totals)])
    print_table(["CPU", "network", "mean error of a layer", "ms of a query on 8, 16, ... cores (published)"], rows)
    most = max(times_s.shape[1] for _, times_s in profiles.values())
    told = [[*row, *[None] * (3 + most - len(row))] for row in told]
    columns = ["cpu", "network", "error", *(f"ms_{UNIT * one}" for one in range(1, most + 1))]
    results.write(options.results, "veltair-layers", columns, told)


if __name__ == "__main__":
    main()
