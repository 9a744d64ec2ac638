"""``provision fit --format gpulets``: fit gpu-lets' interference model to seven tenths of the measured pairs, as in the
paper.
"""

from __future__ import annotations

import numpy as np

from provision.commands.common import print_json, print_table
from provision.instances.importers.gpulets_pairs import read_pairs
from provision.models.base.errors import InputError
from provision.models.performance.error import fitted_error, relative_errors
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.pairwise import PairwiseInterference, fit

MODEL = "pairwise"
LEAST_PAIRS = 10
"""The least number of pairs: enough to fit all coefficients and to judge the fit."""


def run(path: str, as_json: bool) -> int:
    """Fit seven tenths of the pairs, judge the fit on the others, and print both; returns the exit code."""
    utilisations, slowdown = read_pairs(path)
    if len(slowdown) < LEAST_PAIRS:
        raise InputError(f"{path}: {len(slowdown)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    fitted = np.arange(len(slowdown)) % 10 < 7
    l2_own, l2_other, dram_own, dram_other = utilisations[:, fitted]
    model = fit(l2_own, l2_other, dram_own, dram_other, slowdown[fitted])
    errors = relative_errors(model.slowdown(*utilisations[:, ~fitted]), slowdown[~fitted])
    return _print(model, fitted_error(errors), int(fitted.sum()), as_json)


def _print(model: PairwiseInterference, error: FittedError, fitted: int, as_json: bool) -> int:
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
