"""Intervals of networks fitted to few points, judged on ParvaGPU's A100 tables where they were not fitted.

Run as ``python benchmarks/few_points.py DIR``; DIR holds prof_data/. For every DNN the points of the rule (as
``provision fit --propose 3`` does for an unknown DNN), and points drawn at random, are fitted with the networks of the
other DNNs as the prior; the rest judges. ``covered`` is the part of the left-out latencies that stay below the upper
end. The width with which 95 % would stay below is told for every DNN as the other DNNs' points give it, which is how a
new DNN is met.
"""

import argparse

import numpy as np

from provision.commands.common import print_table
from provision.instances.importers.parvagpu_profiles import read_profiles
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.few_points import LEAST_POINTS, WIDTH, fit_few

COUNTS = (LEAST_POINTS, 5, 8)
DRAWS = 3
COVERED = 95


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", help="folder of the tables, or one that holds prof_data/")
    profiles = read_profiles(parser.parse_args().directory)
    rows = []
    for count in COUNTS:
        for rule in ("rule", "random"):
            judged = {dnn: _judged(dnn, profile.points, count, rule) for dnn, profile in profiles.items()}
            rows.append([count, rule, *_summary(judged)])
    columns = ["points", "chosen by", "mean error %", "p95 %", "covered %", "length %", "width 95 %", "in turn %"]
    print_table(columns, rows)


def _judged(dnn, points, count, rule):
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


def _summary(judged):
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
