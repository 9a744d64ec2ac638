"""Fits closed networks to the ParvaGPU artefact's A100-80GB profile and writes the performance data that ships."""

import argparse
from pathlib import Path

import numpy as np
import yaml

from provision.instances.importers.parvagpu import GPU
from provision.instances.importers.parvagpu_profiles import read_profiles
from provision.models.fitting.files import performance_data
from provision.models.fitting.profile import fit_profile

OUT = Path(__file__).resolve().parents[1] / "models/performance/data/parvagpu-a100.yaml"
FAMILY = "closed-network"
ABOUT = {
    "name": "parvagpu-a100",
    "gpu": GPU,
    "source": "Fitted by this package from the ParvaGPU artefact's A100-80GB profile, doi 10.5281/zenodo.13329588.",
    "command": "python benchmarks/fit_parvagpu.py DIR",
    "fitted": "2026-11-21",
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder that holds prof_data/")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write (default: the shipped one)")
    arguments = parser.parse_args()
    profiles = read_profiles(arguments.directory)
    fits = {dnn: fit_profile(dnn, profile.points, FAMILY) for dnn, profile in profiles.items()}
    content = performance_data(FAMILY, profiles, fits, **ABOUT).model_dump(mode="json")
    arguments.out.write_text(yaml.safe_dump(content, sort_keys=False, width=110, default_flow_style=None))
    _print_table({dnn: (fit.errors, *_memory_mistakes(fit.model, profiles[dnn].points)) for dnn, fit in fits.items()})


def _print_table(columns) -> None:
    """Errors per model and over all points, and memory verdicts that contradict the profile."""
    errors, lost, false_fits = zip(*columns.values(), strict=True)
    columns["all"] = np.concatenate(errors), sum(lost), sum(false_fits)
    print(f"{'model':12} {'points':>6} {'mean %':>7} {'p95 %':>7} {'max %':>7} lost false fits")
    for name, (error, lost, false) in columns.items():
        summary = f"{100 * error.mean():7.2f} {100 * np.percentile(error, 95):7.2f} {100 * error.max():7.1f}"
        print(f"{name:12} {len(error):6} {summary} {lost:4} {false:10}")


def _memory_mistakes(network, points) -> tuple[int, int]:
    """Number of valid points said not to fit, and of points out of memory said to fit."""
    fits = network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    return int((points.measured & ~fits).sum()), int((fits & ~points.measured).sum())


if __name__ == "__main__":
    main()
