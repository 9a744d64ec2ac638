"""Errors of all families of latency models on ParvaGPU's A100 tables, side by side in one run.

(a) all points fitted, judged in-sample; (b) and (c) 16 and 11 points per DNN chosen by the family's rule, judged on all
others; (d) the same 16 points for every family, those of the closed network; (e) 16 points proposed as for a DNN that
nobody has measured, some of which then run out of memory. In (b) to (e) the closed network's rule and prior know the
shipped networks of the other DNNs, never that of the DNN itself; the other families' fits know nothing but the points.
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import results

from provision.draw.output import print_table
from provision.instances.importers.parvagpu import GPU
from provision.instances.importers.parvagpu_profiles import read_profiles
from provision.models.fitting.families import FAMILIES
from provision.models.fitting.few_points import propose
from provision.models.fitting.profile import choose, fit_profile
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.fitted_networks import fitted_error

OURS = "closed-network"
MANY, FEW = 16, 11
COLUMNS = ("family", "points", "mean", "p95", "worst")


def _chosen(count, rule=None) -> Callable[..., Sequence[int]]:
    """Points of the rule of a family, by default of the family fitted."""
    return lambda dnn, profile, family: choose(dnn, profile.points, rule or family, count)


def _proposed(dnn, profile, family) -> list[int]:
    """Rows of the points proposed without a look at the DNN's table."""
    proposed = set(propose(gpu_type(GPU), family, MANY, dnn))
    return [at for at, key in enumerate(profile.keys) if key in proposed]


RUNS = {
    "(a) all": lambda dnn, profile, family: None,
    f"(b) {MANY} points": _chosen(MANY),
    f"(c) {FEW} points": _chosen(FEW),
    f"(d) {MANY}, same": _chosen(MANY, OURS),
    f"(e) {MANY}, unseen": _proposed,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", help="folder of the tables, or one that holds prof_data/")
    results.add_results(parser)
    options = parser.parse_args()
    profiles = read_profiles(options.directory)
    rows = [[family, run, *_errors(profiles, family, rule)] for family in FAMILIES for run, rule in RUNS.items()]
    print_table(COLUMNS, rows)
    results.write(options.results, "latency-models", COLUMNS, rows)


def _errors(profiles, family, rule) -> tuple[float, float, float]:
    """Errors of a family over all judged points of all DNNs in percent: mean, 95th percentile, worst."""
    fits = [
        fit_profile(dnn, profile.points, family, rule(dnn, profile, family)) for dnn, profile in profiles.items()
    ]
    error = fitted_error(np.concatenate([fit.errors for fit in fits]))
    return 100 * error.mean, 100 * error.p95, 100 * error.max


if __name__ == "__main__":
    main()
