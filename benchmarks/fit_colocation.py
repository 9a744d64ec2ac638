"""Fits co-location to iGniter's published V100 measurements and writes the shipped data; prints its errors.

Run as ``python benchmarks/fit_colocation.py SOLO PAIRS PROFILE``. One pair in five is kept apart, by a rule on what
stands side by side. No pair has the same model twice. How much longer a batch of 16 on half of the GPU is active beside
a copy of itself stands in the profile, and is added as a pair.
"""

import argparse
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from provision.instances.importers.igniter_profile import read_profile
from provision.instances.importers.pairs import read_alone, read_beside
from provision.models.fitting.colocation import Pairs, errors, fit, judged, kept_apart
from provision.models.fitting.igniter import IgniterMeasurements
from provision.models.fitting.waves import SoloRuns
from provision.models.performance.fitted_networks import fitted_error

OUT = Path(__file__).resolve().parents[1] / "models/performance/data/colocation-v100.yaml"
COPIES_BATCH, COPIES_SHARE = 16, 0.5
ABOUT: dict[str, Any] = {
    "name": "colocation-v100",
    "source": "Fitted by this package from iGniter's published V100 measurements (models alone, pairs, and the profile "
    "for a model beside a copy of itself), github.com/icloud-ecnu/igniter; pair_error is on pairs kept apart.",
    "command": "python benchmarks/fit_colocation.py SOLO PAIRS PROFILE",
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solo", help="models alone (CSV)")
    parser.add_argument("pairs", help="models side by side (CSV)")
    parser.add_argument("profile", help="iGniter's profile, one JSON object per line")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    options = parser.parse_args()
    runs, pairs = read_alone(options.solo), read_beside(options.pairs)
    apart = kept_apart(pairs)
    known, unseen = pairs.take(~apart), pairs.take(apart)
    seen = Pairs(*map(np.concatenate, zip(known, copies(runs, read_profile(options.profile)), strict=True)))
    data = judged(fit(runs, seen, "v100", fitted=date.today().isoformat(), **ABOUT), runs, unseen)
    content = data.model_dump(mode="json")
    options.out.write_text(yaml.safe_dump(content, sort_keys=False, width=110, default_flow_style=None))
    for name, one in data.models.items():
        print(f"{name}: alone {one.solo_error}; in pairs {one.pair_error}")
    print(f"all: in pairs {fitted_error(errors(data, unseen).ravel())}")


def copies(runs: dict[str, SoloRuns], profile: IgniterMeasurements) -> Pairs:
    """Every model beside a copy of itself."""
    names = [*runs]
    latency_ms = [
        _at(runs[name]) * profile.models[name].activetime_2 / profile.models[name].activetime_1 for name in names
    ]
    shape = (len(names), 2)
    return Pairs(
        np.column_stack([names, names]),
        np.full(shape, float(COPIES_BATCH)),
        np.full(shape, COPIES_SHARE),
        np.column_stack([latency_ms, latency_ms]),
    )


def _at(runs: SoloRuns) -> float:
    """The latency alone at the batch and share of the copies, in ms."""
    here = (runs.batch == COPIES_BATCH) & np.isclose(runs.sm_share, COPIES_SHARE)
    return float(runs.latency_ms[here].item())


if __name__ == "__main__":
    main()
