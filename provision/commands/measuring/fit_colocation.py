"""``provision fit --format colocation``: fit a model of co-located DNNs to four fifths of the measured pairs."""


from datetime import date
from pathlib import Path
from typing import Any

import provision
from provision.commands.common import print_json, print_table
from provision.instances.files.files import check_writable, refused
from provision.instances.importers.colocation import read_alone, read_beside
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.fitting.colocation import errors, fit, judged, kept_apart
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.colocation import Colocation
from provision.models.performance.error import fitted_error
from provision.models.performance.fitted_networks import FittedError

GPU = "v100"
LEAST_PAIRS = 10
COLUMNS = ("DNN", "alone: mean error %", "p95 error %", "pairs: mean error %", "p95 error %", "latencies judged")


def run(path: str, pairs_path: str, gpu_name: str | None, out: str | None, force: bool, as_json: bool) -> int:
    """Fit, judge the fit on held-out pairs, print the errors, and write the performance data unless ``out`` is
    None; returns the exit code.
    """
    gpu = gpu_type(gpu_name or GPU).name
    if out:
        check_writable(out, force)
    runs, pairs = read_alone(path), read_beside(pairs_path)
    apart = kept_apart(pairs)
    if len(apart) < LEAST_PAIRS or not apart.any():
        raise InputError(f"{pairs_path}: {len(apart)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    unseen = pairs.take(apart)
    about = {"name": Path(out).stem if out else "colocation", **_provenance(path, pairs_path)}
    with refused(path):
        data = judged(fit(runs, pairs.take(~apart), gpu, **about), runs, unseen)
    overall = fitted_error(errors(data, unseen).ravel())
    if out:
        with refused(out):
            write(data, out, force)
    if as_json:
        print_json(_summary(data, overall, out))
    else:
        _print(data, overall, out)
    return 0


def _provenance(path: str, pairs_path: str) -> dict[str, Any]:
    """The fields of performance data that tell its source, without paths of this machine."""
    tables = f"{Path(path).name} and {Path(pairs_path).name}"
    return {
        "source": f"Tables {tables}, fitted by provision {provision.__version__}; errors on pairs kept apart.",
        "command": "provision fit ALONE --format colocation --pairs PAIRS",
        "fitted": date.today().isoformat(),
    }


def _summary(data: Colocation, overall: FittedError, out: str | None) -> dict[str, Any]:
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


def _print(data: Colocation, overall: FittedError, out: str | None) -> None:
    """Print the errors of every model and of all models together."""
    rows = [
        [name, *_percent(one.solo_error), *_percent(one.pair_error), one.pair_error.points if one.pair_error else 0]
        for name, one in data.models.items()
    ]
    print_table(COLUMNS, [*rows, ["all", "", "", *_percent(overall), overall.points]])
    print(
        f"{data.kind}: fitted to {len(data.fitted_pairs)} pairs; alone judged on batch sizes left out, pairs on the "
        f"{overall.points // 2} kept apart"
    )
    if out:
        print(f"written to {out}")


def _percent(error: FittedError | None) -> tuple[str, str]:
    """The mean and the 95th percentile of an error in percent, as text; empty if nothing was judged."""
    return (f"{100 * error.mean:.2f}", f"{100 * error.p95:.2f}") if error else ("", "")
