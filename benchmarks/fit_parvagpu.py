"""Fits closed networks to the ParvaGPU artefact's A100-80GB profile and writes them as performance data."""

import argparse
import csv
import dataclasses
from pathlib import Path

import numpy as np
import yaml

from provision.models.closed_network import batch_latency_ms_array
from provision.models.fit_closed_network import fit
from provision.models.gpu import gpu_type

OUT = Path(__file__).resolve().parents[1] / "models/data/performance/parvagpu-a100.yaml"
GPU = "a100-80gb"
PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}
BATCHES = sorted({2**power for power in range(9)} | {3 * 2**power for power in range(7)})
HEADER = {
    "version": 1,
    "name": "parvagpu-a100",
    "kind": "closed-network",
    "gpu": GPU,
    "source": "Fitted by this package from the ParvaGPU artefact's A100-80GB profile, "
    "doi 10.5281/zenodo.13329588.",
    "command": "python benchmarks/fit_parvagpu.py DIR",
    "fitted": "2026-11-21",
    "profiles": list(PROFILES.values()),
    "batches": BATCHES,
}


def read_profile(path):
    """Batch, processes, GPCs, slice memory (GiB) and batch latency (ms, NaN if out of memory) of all points.

    Latency comes from the throughput of one process, which has more digits than the latency column.
    """
    with path.open(newline="") as lines:
        rows = [list(map(float, row[:4])) for row in list(csv.reader(lines))[1:]]
    compute, batch, processes, throughput_rps = np.array(rows).T
    memory_gib = np.array([gpu_type(GPU).slice_memory_gib(PROFILES[gpcs]) for gpcs in compute])
    served = np.where(throughput_rps > 0, throughput_rps, np.nan)
    return batch, processes, compute, memory_gib, 1000 * batch / served


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder that holds prof_data/")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write (default: the shipped one)")
    arguments = parser.parse_args()
    profiles = {path.stem: read_profile(path) for path in sorted(arguments.directory.glob("prof_data/*.csv"))}
    fits = {name: fit(*points) for name, points in profiles.items()}
    models = {name: _entry(*fitted) for name, fitted in fits.items()}
    content = {**HEADER, "models": models}
    arguments.out.write_text(yaml.safe_dump(content, sort_keys=False, width=110, default_flow_style=None))
    _print_table({name: (fits[name][0], points) for name, points in profiles.items()})


def _entry(network, error):
    """One model of the file."""
    return {"coefficients": network.model_dump(), "error": dataclasses.asdict(error)}


def _print_table(fits):
    """Errors per model and over all points, and memory verdicts that contradict the profile."""
    print(f"{'model':12} {'points':>6} {'mean %':>7} {'p95 %':>7} {'max %':>7} lost false fits")
    columns = {name: (_errors(*fit_), *_memory_mistakes(*fit_)) for name, fit_ in fits.items()}
    errors, lost, false_fits = zip(*columns.values(), strict=True)
    columns["all"] = np.concatenate(errors), sum(lost), sum(false_fits)
    for name, (error, lost, false) in columns.items():
        summary = f"{100 * error.mean():7.2f} {100 * np.percentile(error, 95):7.2f} {100 * error.max():7.1f}"
        print(f"{name:12} {len(error):6} {summary} {lost:4} {false:10}")


def _errors(network, points):
    """Relative errors at the valid points."""
    batch, processes, compute, _, latency_ms = points
    error = np.abs(batch_latency_ms_array(network, batch, processes, compute) / latency_ms - 1)
    return error[~np.isnan(error)]


def _memory_mistakes(network, points):
    """Number of valid points said not to fit, and of points out of memory said to fit."""
    batch, processes, _, memory_gib, latency_ms = points
    fits, valid = network.memory_gib(batch, processes) <= memory_gib, ~np.isnan(latency_ms)
    return int((valid & ~fits).sum()), int((fits & ~valid).sum())


if __name__ == "__main__":
    main()
