"""``provision fit`` on tables of pairs of models side by side: gpu-lets' interference model on seven tenths of the
pairs, as in the paper, or a model of co-located DNNs on four fifths; the others judge the fit.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import provision
from provision.commands.common import print_json, print_table
from provision.instances.files.files import check_writable, refused
from provision.instances.importers.pairs import read_alone, read_beside, read_pairs
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.fitting import colocation
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.colocation import Colocation
from provision.models.performance.fitted_networks import FittedError, fitted_error, relative_errors
from provision.models.performance.pairwise import PairwiseInterference, fit

MODEL = "pairwise"
LEAST_PAIRS = 10
"""The least number of pairs: enough to fit all coefficients and to judge the fit."""


def fit_gpulets(path: str, as_json: bool) -> int:
    """Fit seven tenths of the pairs, judge the fit on the others, and print both; returns the exit code."""
    utilisations, slowdown = read_pairs(path)
    if len(slowdown) < LEAST_PAIRS:
        raise InputError(f"{path}: {len(slowdown)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    fitted = np.arange(len(slowdown)) % 10 < 7
    l2_own, l2_other, dram_own, dram_other = utilisations[:, fitted]
    model = fit(l2_own, l2_other, dram_own, dram_other, slowdown[fitted])
    errors = relative_errors(model.slowdown(*utilisations[:, ~fitted]), slowdown[~fitted])
    return _print_gpulets(model, fitted_error(errors), int(fitted.sum()), as_json)


def _print_gpulets(model: PairwiseInterference, error: FittedError, fitted: int, as_json: bool) -> int:
    """Print the coefficients, and the errors on the pairs left out; returns the exit code."""
    errors = {"mean_error": error.mean, "p95_error": error.p95, "max_error": error.max}
    counts = {"points_fitted": fitted, "points_judged": error.points}
    if as_json:
        print_json({"model": MODEL, "coefficients": model._asdict(), "overall": errors | counts})
        return 0
    print_table(("coefficient", "value"), [[name, value] for name, value in model._asdict().items()])
    shown = ", ".join(f"{name.replace('_', ' ')} {100 * value:.2f} %" for name, value in errors.items())
    print(f"{MODEL}: {shown}, on the {error.points} pairs of {fitted + error.points} that were not fitted")
    return 0


PAIR_GPU = "v100"
PAIR_COLUMNS = ("DNN", "alone: mean error %", "p95 error %", "pairs: mean error %", "p95 error %", "latencies judged")


def fit_colocation(
    path: str, pairs_path: str, gpu_name: str | None, out: str | None, force: bool, as_json: bool
) -> int:
    """Fit, judge the fit on held-out pairs, print the errors, and write the performance data unless ``out`` is
    None; returns the exit code.
    """
    gpu = gpu_type(gpu_name or PAIR_GPU).name
    if out:
        check_writable(out, force)
    runs, pairs = read_alone(path), read_beside(pairs_path)
    apart = colocation.kept_apart(pairs)
    if len(apart) < LEAST_PAIRS or not apart.any():
        raise InputError(f"{pairs_path}: {len(apart)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    unseen = pairs.take(apart)
    about = {"name": Path(out).stem if out else "colocation", **_provenance(path, pairs_path)}
    with refused(path):
        data = colocation.judged(colocation.fit(runs, pairs.take(~apart), gpu, **about), runs, unseen)
    overall = fitted_error(colocation.errors(data, unseen).ravel())
    if out:
        with refused(out):
            write(data, out, force)
    if as_json:
        print_json(_pairs_summary(data, overall, out))
    else:
        _print_colocation(data, overall, out)
    return 0


def _provenance(path: str, pairs_path: str) -> dict[str, Any]:
    """The fields of performance data that tell its source, without paths of this machine."""
    tables = f"{Path(path).name} and {Path(pairs_path).name}"
    return {
        "source": f"Tables {tables}, fitted by provision {provision.__version__}; errors on pairs kept apart.",
        "command": "provision fit ALONE --format colocation --pairs PAIRS",
        "fitted": date.today().isoformat(),
    }


def _pairs_summary(data: Colocation, overall: FittedError, out: str | None) -> dict[str, Any]:
    """The JSON object that ``--json`` prints."""
    content = data.model_dump(mode="json")["models"]
    return {
        "model": data.kind,
        "models": {name: {"alone": one["solo_error"], "pairs": one["pair_error"]} for name, one in content.items()},
        "overall": overall.model_dump(),
        "pairs_fitted": len(data.fitted_pairs),
        "pairs_judged": overall.points // 2,
        "out": out,
    }


def _print_colocation(data: Colocation, overall: FittedError, out: str | None) -> None:
    """Print the errors of every model and of all models together."""
    rows = [
        [name, *_percent(one.solo_error), *_percent(one.pair_error), one.pair_error.points if one.pair_error else 0]
        for name, one in data.models.items()
    ]
    print_table(PAIR_COLUMNS, [*rows, ["all", "", "", *_percent(overall), overall.points]])
    print(
        f"{data.kind}: fitted to {len(data.fitted_pairs)} pairs; alone judged on batch sizes left out, pairs on the "
        f"{overall.points // 2} kept apart"
    )
    if out:
        print(f"written to {out}")


def _percent(error: FittedError | None) -> tuple[str, str]:
    """The mean and the 95th percentile of an error in percent, as text; empty if nothing was judged."""
    return (f"{100 * error.mean:.2f}", f"{100 * error.p95:.2f}") if error else ("", "")
