"""Derive the shipped data of gpu-lets from its public tables.

Run as ``python benchmarks/fit_gpulets.py DIR [--year Y] [--scaling S] [--out FILE]``; DIR holds ``2080ti/UTIL.CSV``,
``2080ti/INT_MODEL_CONSTANT.CSV`` and ``mem-config.json``. Prints the errors of every model. 2021 (arXiv 2109.01611) has
five models, 2022 (ATC, and the public program) nine with other SLOs.

The durations in UTIL.CSV were taken under a profiler and are up to ten times those of the paper's Table 4, whose SLOs
are twice the execution of 32 requests; the public program's are taken to be so, too. So a batch of 32 takes half of
that SLO, and the table only says how execution grows with the batch: (1 - f) * batch / 32 + f of that, f fitted to
relative errors. Traffic is fitted to utilisation times execution. The coefficients of interference are the published
ones, applied to utilisations as fractions.
"""

import argparse
import csv
import json
import math
import sys
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import nnls

from provision.models.fitting.left_out import distributions
from provision.models.performance.bands import ErrorBands
from provision.models.performance.gpulets import GpuletInterference, GpuletModel, Gpulets

sys.path.insert(0, str(Path(__file__).parent / "papers"))
from gpulets_scenarios import DATA, DATA_2022, SLO_2022_MS, SLO_MS

OUT = Path(__file__).resolve().parents[1] / "models/performance/data"
YEARS = {
    2021: (DATA, SLO_MS, "Table 4", "2026-11-21"),
    2022: (DATA_2022, SLO_2022_MS, "SLOs", "2026-11-28"),
}
"""The name of the data, SLOs (twice what 32 requests take), where they stand, and the day."""
LARGEST = 32
SPLITS = ((1.0,), (0.2, 0.8), (0.4, 0.6), (0.5, 0.5))
SCALING = 0.5
"""Nobody has published how execution shrinks with the share. Of 0, 0.25, 0.5, 0.75 and 1 this is the largest with
which squishy bin packing onto halves schedules all 1,023 scenarios, as section 3.1 says:
benchmarks/papers/gpulets_grid.py."""
LEFT_OUT = (
    "Batches on a whole GPU, each left out of the fit in turn. Nobody has published times on parts of a GPU: there the "
    "errors are unknown."
)
MIB_PER_GIB = 1024


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--year", type=int, default=2021, choices=YEARS)
    parser.add_argument("--scaling", type=float, default=SCALING)
    parser.add_argument("--out", type=Path, help="file to write")
    options = parser.parse_args()
    data = derived(options.folder, options.year, options.scaling)
    for name, model in data.models.items():
        print(f"{name}: {model.error}")
    text = yaml.safe_dump(data.model_dump(mode="json"), sort_keys=False, width=110, default_flow_style=None)
    (options.out or OUT / f"{data.name}.yaml").write_text(text)


def derived(folder, year, scaling) -> Gpulets:
    """The data of the RTX 2080 Ti."""
    data, slos_ms, slos, fitted_on = YEARS[year]
    held_mib = {entry["name"]: entry["mem"] for entry in json.loads((folder / "mem-config.json").read_text())["models"]}
    held_mib["lenet"] = held_mib["lenet1"]
    [[*coefficients]] = rows(folder / "2080ti" / "INT_MODEL_CONSTANT.CSV")
    l2_own, l2_other, dram_own, dram_other, constant = (round(float(cell), 6) for cell in coefficients)
    measured = {}
    for name, batch, seconds, _, l2, dram, *_ in rows(folder / "2080ti" / "UTIL.CSV"):
        measured.setdefault(name, []).append((int(batch), float(seconds), float(l2) / 100, float(dram) / 100))
    models = {name: fitted(np.array(sorted(measured[name])).T, slo_ms / 2, held_mib[name] / MIB_PER_GIB)
              for name, slo_ms in sorted(slos_ms.items())}
    of_year = "" if year == 2021 else f" --year {year}"
    command = f"python benchmarks/fit_gpulets.py DIR{of_year} --scaling {scaling:g}"
    bands = {name: left_out(*np.array(sorted(measured[name])).T[:2]) for name in sorted(slos_ms)}
    return Gpulets(
        version=1, name=data, kind="gpulets", gpu="rtx2080ti",
        source=f"Derived by this package from the public tables and {slos} of gpu-lets, github.com/casys-kaist/glet.",
        command=command, fitted=fitted_on, bands=ErrorBands(source=LEFT_OUT, command=command, models=bands),
        splits=SPLITS, batches=tuple(sorted(batch for batch, *_ in measured["lenet"])), scaling=scaling,
        interference=GpuletInterference(l2_own=l2_own, l2_other=l2_other, dram_own=dram_own, dram_other=dram_other,
                                        constant=constant),
        models=models,
    )


def rows(path) -> list[list[str]]:
    """The cells of a table, its header and empty lines left out."""
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in list(csv.reader(file))[1:] if row]


def fitted(table, largest_ms, memory_gib) -> GpuletModel:
    """A model from its batches, durations, L2 and DRAM utilisations, shape (4, rows)."""
    batch, duration, l2, dram = table
    relative, size = duration / duration[-1], batch / LARGEST
    fixed = fixed_part(relative, size)
    ms = largest_ms * (fixed + (1 - fixed) * size)
    error = np.abs(ms / largest_ms / relative - 1)
    l2_ms, dram_ms = (traffic(batch, ms, used) for used in (l2, dram))
    return GpuletModel(
        fixed_ms=rounded_down(largest_ms * fixed), per_request_ms=rounded_down(largest_ms * (1 - fixed) / LARGEST),
        l2_fixed_ms=l2_ms[0], l2_per_request_ms=l2_ms[1], dram_fixed_ms=dram_ms[0], dram_per_request_ms=dram_ms[1],
        memory_gib=round(memory_gib, 4),
        error={"mean": round(float(error.mean()), 5), "p95": round(float(np.percentile(error, 95)), 5),
               "max": round(float(error.max()), 5), "points": len(batch)},
    )


def fixed_part(relative, size) -> float:
    """The fraction f of the longest execution that does not depend on the batch; least squares of relative errors."""
    weighted = (1 - size) / relative**2
    return float(np.clip(np.sum(weighted * (relative - size)) / np.sum(weighted * (1 - size)), 0, 1))


def left_out(batch, duration):
    """The errors of execution on a whole GPU at each batch but the largest, which sets the scale, left out in turn."""
    relative, size = duration / duration[-1], batch / LARGEST
    logs = []
    for at in range(len(batch) - 1):
        rest = np.arange(len(batch)) != at
        fixed = fixed_part(relative[rest], size[rest])
        logs.append(np.log(relative[at] / (fixed + (1 - fixed) * size[at])))
    return distributions(np.array(logs), batch[:-1])


def rounded_down(value) -> float:
    """To six digits behind the point, so that a batch of 32 does not miss by rounding."""
    return math.floor(value * 1e6) / 1e6


def traffic(batch, ms, used) -> list[float]:
    """Fixed and per-request traffic, in ms of the full bandwidth, that explain the utilisations."""
    terms = np.column_stack([np.ones_like(batch), batch]) / ms[:, None]
    return [round(float(value), 6) for value in nnls(terms, used)[0]]


if __name__ == "__main__":
    main()
