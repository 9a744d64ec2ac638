"""Intervals of networks fitted to few points, judged on ParvaGPU's A100 tables where they were not fitted.

Run as ``python benchmarks/few_points.py DIR``; DIR holds prof_data/. For every DNN the points of the rule (as
``provision fit --propose 3`` does for an unknown DNN), and points drawn at random, are fitted with the networks of the
other DNNs as the prior; the rest judges. ``covered`` is the part of the left-out latencies that stay below the upper
end. The width with which 95 % would stay below is told for every DNN as the other DNNs' points give it, which is how a
new DNN is met.

With --designs closed networks are fitted to 16 points each, chosen well or badly, as `provision fit` does: at random,
all on the two smallest slices, all with batches of up to 4, all on the largest slice, or by the rule. Their bands come
from cross-validation on these 16 points. All other points judge that have no larger batches and no more processes, as
plans have none; ``inside90`` is the part of their latencies within the 90 % bands, ``length`` how wide these are on
average (the upper end less the lower, by the prediction). ``mended`` are errors after three further points, which
``provision fit DIR --propose 3`` chooses among the points of the table, on those that are left.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "papers"))
import results

from provision.draw.output import print_table
from provision.instances.importers.parvagpu import GPU
from provision.instances.importers.parvagpu_profiles import read_profiles
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.few_points import LEAST_POINTS, WIDTH, fit_few
from provision.models.fitting.left_out import network_errors
from provision.models.fitting.profile import fit_profile
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.bands import ErrorBands, Spot

COUNTS = (LEAST_POINTS, 5, 8)
DRAWS = 3
COVERED = 95
SIXTEEN, MORE, SEED = 16, 3, 0
DESIGNS = {
    "by the rule": None,
    "at random": lambda points, at: True,
    "on the two smallest slices": lambda points, at: points.compute_slices[at] <= 2,
    "with batches up to 4": lambda points, at: points.batch[at] <= 4,
    "on the largest slice": lambda points, at: points.compute_slices[at] == 7,
}
"""Which points may be chosen; None for the rule of `provision fit --points`."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", help="folder of the tables, or one that holds prof_data/")
    parser.add_argument("--designs", action="store_true", help="judge fits to 16 points, badly chosen ones too")
    results.add_results(parser)
    options = parser.parse_args()
    profiles = read_profiles(options.directory)
    if options.designs:
        designs(profiles, options.results)
        return
    rows = []
    for count in COUNTS:
        for rule in ("rule", "random"):
            judged = {dnn: _judged(dnn, profile.points, count, rule) for dnn, profile in profiles.items()}
            rows.append([count, rule, *_summary(judged)])
    columns = ["points", "chosen by", "mean error %", "p95 %", "covered %", "length %", "width 95 %", "in turn %"]
    print_table(columns, rows)


def designs(profiles, folder) -> None:
    """Errors and bands of fits to SIXTEEN points of every design."""
    rows = []
    for name, wanted in DESIGNS.items():
        judged = np.concatenate([_banded(dnn, *profile, wanted) for dnn, profile in profiles.items()], axis=1)
        errors, inside, above, widths, lengths, mended = judged
        mended = mended[np.isfinite(mended)]
        rows.append([name, len(errors), 100 * errors.mean(), 100 * np.percentile(errors, 95), 100 * inside.mean(),
                     100 * above.mean(), 100 * np.median(widths), 100 * lengths.mean(), 100 * mended.mean(),
                     100 * np.percentile(mended, 95)])
    columns = ["chosen", "points", "mean", "p95", "inside90", "above", "width", "length", "mended", "mended_p95"]
    print_table(columns, rows)
    results.write(folder, "few-designs", columns, rows, seeds=[SEED])


def _banded(dnn, keys, points, wanted) -> np.ndarray:
    """(6, points that judge): relative errors, whether inside and above their bands, upper ends of bands minus 1,
    lengths of bands, and errors after MORE further points (NaN at these)."""
    measured = np.flatnonzero(points.measured)
    random = np.random.default_rng(SEED)
    if wanted is None:
        chosen = measured[FAMILIES["closed-network"].choose(points.take(measured), SIXTEEN, population(dnn))]
    else:
        chosen = random.choice([at for at in measured if wanted(points, at)], SIXTEEN, replace=False)
    fit = fit_profile(dnn, points, "closed-network", chosen)
    # No point besides the sixteen may help: the fit is handed on as if they were the whole table.
    alone = fit._replace(fitted=np.arange(SIXTEEN), judged=np.arange(SIXTEEN))
    few = points.take(fit.fitted)
    profiles = [key[0] for key in keys]
    batches = sorted(set(points.batch[measured].astype(int).tolist()))
    seen = network_errors(gpu_type(GPU), [profiles[at] for at in fit.fitted], few, alone, batches,
                          offered=tuple(dict.fromkeys(profiles)))
    bands = ErrorBands(source="", command="", models={dnn: seen})
    offered = (points.batch <= fit.model.max_batch) & (points.processes <= fit.model.max_processes)
    kept = offered[fit.judged]
    ends = [bands.band(dnn, Spot(profiles[at], int(points.batch[at])), 0.9) for at in fit.judged[kept]]
    low, high = np.array([(one.low, one.high) for one in ends]).T
    ratio = points.latency_ms[fit.judged[kept]] / fit.predicted_ms[kept]
    return np.array([fit.errors[kept], (low <= ratio) & (ratio <= high), ratio > high, high - 1, high - low,
                     _mended(points, fit.fitted, fit.judged[kept])])


def _mended(points, fitted, judged) -> np.ndarray:
    """(judged,) relative errors of a fit to MORE further points of a table, NaN at these."""
    rest = np.setdiff1d(np.flatnonzero(points.measured), fitted)
    further = rest[fit_few(points, fitted).telling(points.take(rest), MORE)]
    some = points.take(judged)
    errors = np.abs(fit_few(points, np.append(fitted, further)).latency_ms(some) / some.latency_ms - 1)
    return np.where(np.isin(judged, further), np.nan, errors)


def _judged(dnn, points, count, rule) -> np.ndarray:
    """Relative errors, excess over the prediction in deviations, and lengths of the intervals, on points left out."""
    known, measured = population(dnn), np.flatnonzero(points.measured)
    found = []
    for seed in range(1 if rule == "rule" else DRAWS):
        random = np.random.default_rng(seed)
        fitted = (
            measured[FAMILIES["closed-network"].choose(points.take(measured), count, known)]
            if rule == "rule" else random.choice(measured, count, replace=False)
        )
        left = points.take(np.setdiff1d(measured, fitted))
        model = fit_few(points, fitted, known)
        predicted_ms, deviations = model.latency_ms(left), model.deviations(left)
        over = np.log(left.latency_ms / predicted_ms) / deviations
        found.append([np.abs(predicted_ms / left.latency_ms - 1), over, np.exp(WIDTH * deviations) - 1])
    return np.concatenate(found, axis=1)


def _summary(judged) -> list[object]:
    """What a row of the table says, in percent and widths."""
    errors, over, lengths = np.concatenate(list(judged.values()), axis=1)
    turns = []
    for dnn, (_, mine, _) in judged.items():
        others = np.concatenate([one[1] for name, one in judged.items() if name != dnn])
        turns.append(np.mean(mine <= np.percentile(others, COVERED)))
    return [
        100 * errors.mean(), 100 * np.percentile(errors, 95), 100 * np.mean(over <= WIDTH), 100 * lengths.mean(),
        np.percentile(over, COVERED), 100 * np.mean(turns),
    ]


if __name__ == "__main__":
    main()
