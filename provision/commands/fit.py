"""``provision fit``: fit latency models to tables of profiles or of pairs side by side, and tell their errors."""

import sys
from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import provision
from provision import InputError, draw, gpu_type, write
from provision.commands.verb import Writing
from provision.draw.figures import write_figure
from provision.draw.output import Rows
from provision.draw.progress import counting
from provision.instances.files.files import refused, write_text
from provision.instances.importers.importer import poor_fit
from provision.instances.importers.pairs import read_alone, read_beside, read_pairs
from provision.instances.importers.parvagpu import GPU
from provision.instances.importers.parvagpu_profiles import Profile, points_text, read_points, read_profiles
from provision.models.base.arguments import local, operand, written
from provision.models.base.objects import known
from provision.models.fitting import colocation
from provision.models.fitting.families import FAMILIES
from provision.models.fitting.few_points import propose, propose_further
from provision.models.fitting.files import check_kind, performance_data
from provision.models.fitting.profile import Fit as Fitted
from provision.models.fitting.profile import choose, fit_profile
from provision.models.fitting.profile_points import Indices
from provision.models.performance.fitted_networks import FittedError, fitted_error, relative_errors

COLUMNS = ("DNN", "mean error %", "p95 error %", "max error %", "points fitted", "points judged")
FORMATS = dict.fromkeys(("points", "points_file", "propose", "png"), ("parvagpu",)) | {
    "out": ("parvagpu", "colocation"), "pairs": ("colocation",), "gpu": ("colocation", "parvagpu")}
"""Options that not all formats have, with those that have them."""


class Fit(Writing):
    more_help: ClassVar[str] = "; on points left out when only some are fitted."
    path: str | None = operand("DIR", "a table (CSV), or the folder of several", None, nargs="?")
    format: Literal["parvagpu", "gpulets", "colocation"] = local(
        "parvagpu", None, "parvagpu: profile tables (default); gpulets: a table of pairs, for the interference of "
        "gpu-lets; colocation: a table of models alone, and with --pairs side by side")
    pairs: str | None = local(None, "F", "colocation: the table of models side by side (CSV)")
    gpu: str | None = local(None, "G", f"the GPU type measured on (default: {GPU}; colocation: v100)")
    model: str = local("closed-network", None, "the model to fit", choices=FAMILIES)
    points: int | None = local(None, "N", "fit N points per DNN that a rule chooses, judge the rest")
    points_file: str | None = local(None, "F", "fit these, lines of profile,batch,processes; judge the rest")
    propose: int | None = local(None, "N", "say which N points to measure next; without DIR: of a new DNN")
    out: str | None = written("write performance data (--propose: the points) here")
    png: str | None = written("draw predictions and errors (.png or .svg)", what="picture")

    @property
    def gpu_name(self) -> str:
        """The name of the GPU type of profile tables."""
        return gpu_type(self.gpu or GPU).name

    def run(self) -> int:
        if self.path is None and (self.propose is None or self.format != "parvagpu"):
            raise InputError("fit: name the DIR of the tables, or ask for --propose N")
        for name, formats in FORMATS.items():
            if self.format not in formats and getattr(self, name) is not None:
                meant = "profile tables" if "parvagpu" in formats else f"--format {formats[0]}"
                raise InputError(f"--{name.replace('_', '-')} is for {meant}; leave it out with --format {self.format}")
        if self.format == "gpulets":
            return _fit_gpulets(self, known(self.path))
        if self.format == "colocation":
            if self.pairs is None:
                raise InputError("fit --format colocation: give the table of models side by side, --pairs F")
            return _fit_colocation(self, known(self.path), self.pairs)
        if sum(one is not None for one in (self.points, self.points_file, self.propose)) > 1:
            raise InputError("--points, --points-file and --propose: use one of them")
        if self.propose is not None:
            return _propose(self, self.propose)
        if self.out:
            check_kind(self.model)
        profiles = read_profiles(known(self.path), self.gpu_name)
        fits = _fits(profiles, self)
        judged = "in-sample, on the points fitted" if self.in_sample else "held out, on all points not fitted"
        if self.out:
            _write(profiles, fits, judged, self, self.out)
        if self.png:
            figure = draw.fit_plot.fit_figure(profiles, fits, f"{self.model}, {judged}")
            write_figure(figure, self.png, self.force)
        errors = {dnn: _errors([fit]) for dnn, fit in fits.items()}
        overall = _errors(fits.values())
        for dnn, error in errors.items():
            for line in poor_fit(error["mean_error"], f"{dnn}: the fit"):
                print(f"warning: {line}", file=sys.stderr)
        points = {dnn: [profiles[dnn].keys[at] for at in fit.fitted] for dnn, fit in fits.items()}
        content = {"model": self.model, "format": self.format, "in_sample": self.in_sample, "models": errors,
                   "overall": overall, "fitted": None if self.in_sample else points, "out": self.out}
        rows = [(dnn, *one.values()) for dnn, one in (errors | {"all": overall}).items()]
        table = Rows(COLUMNS, [[dnn, *(f"{100 * error:.2f}" for error in row[:3]), *row[3:]] for dnn, *row in rows])
        return self.answer(content, [table, f"{self.model}: errors {judged}", *self.files_told])

    @property
    def in_sample(self) -> bool:
        """Whether the fit is judged on the points fitted."""
        return self.points is None and self.points_file is None


def _propose(options: Fit, count: int) -> int:
    """Print or write the points to measure: first of a new DNN, or next of those that were measured."""
    gpu = gpu_type(options.gpu_name)
    if options.png:
        raise InputError(f"--propose goes without {options.png}: it draws nothing")
    about = {"gpu": gpu.name, "model": options.model}
    if options.path is None:
        keys = propose(gpu, options.model, count)
        if options.out:
            write_text(options.out, points_text(keys), options.force)
        return options.answer(about | {"points": keys, "out": options.out},
                              options.files_told or points_text(keys).rstrip())
    if options.model != "closed-network" or options.out:
        raise InputError("--propose with DIR: is for closed networks and prints; leave --model and --out out")
    found = {dnn: propose_further(gpu, list(profile.keys), profile.points, count, dnn)
             for dnn, profile in read_profiles(options.path, gpu.name).items()}
    rows = [[dnn, *key] for dnn, keys in found.items() for key in keys]
    return options.answer(about | {"points": found}, [Rows(("DNN", "profile", "batch", "processes"), rows)])


def _fits(profiles: Mapping[str, Profile], options: Fit) -> dict[str, Fitted]:
    """The Fit of every DNN to the points that are listed or chosen, or to all."""
    path = options.points_file
    listed = None if path is None else set(read_points(path, options.gpu_name))
    for name, batch, processes in (listed or set()).difference(*(one.keys for one in profiles.values())):
        raise InputError(f"{path}: no table of {options.path} has a row for {name}, batch {batch}, {processes} "
                         "processes; take that point out")

    def chosen(dnn: str, profile: Profile) -> Indices | None:
        if listed is not None:
            return [at for at, key in enumerate(profile.keys) if key in listed]
        return None if options.points is None else choose(dnn, profile.points, options.model, options.points)

    with counting(f"fitting {options.model}", len(profiles)) as advance:
        found = {}
        for dnn, profile in profiles.items():
            found[dnn] = fit_profile(dnn, profile.points, options.model, chosen(dnn, profile))
            advance(1)
        return found


def _write(profiles: Mapping[str, Profile], fits: Mapping[str, Fitted], judged: str, options: Fit, out: str) -> None:
    """Write the performance data, with its source and the command line, without paths of this machine."""
    source = f"Tables in {Path(known(options.path)).name}"
    about = {"name": Path(out).stem, "gpu": options.gpu_name, "source": source}
    if options.model == "closed-network":
        chosen = f" --points {options.points}" if options.points else " --points-file F" if options.points_file else ""
        about |= {"command": f"provision fit DIR --format {options.format} --model {options.model}{chosen}",
                  "fitted": date.today().isoformat(),
                  "source": f"{source}, fitted by provision {provision.__version__}; errors {judged}."}
    with refused(out):
        write(performance_data(options.model, profiles, fits, **about), out, options.force)


def _errors(fits: Collection[Fitted]) -> dict[str, Any]:
    """The errors over all points on which the fits were judged, by name, and the numbers of points."""
    error = fitted_error(np.concatenate([fit.errors for fit in fits]))
    return {
        "mean_error": error.mean,
        "p95_error": error.p95,
        "max_error": error.max,
        "points_fitted": sum(len(fit.fitted) for fit in fits),
        "points_judged": error.points,
    }


MODEL = "pairwise"
LEAST_PAIRS = 10
"""The least number of pairs: enough to fit all coefficients and to judge the fit."""


def _fit_gpulets(options: Fit, path: str) -> int:
    """Fit seven tenths of the pairs, judge the fit on the others, and print both; returns the exit code."""
    utilisations, slowdown = read_pairs(path)
    if len(slowdown) < LEAST_PAIRS:
        raise InputError(f"{path}: {len(slowdown)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    fitted = np.arange(len(slowdown)) % 10 < 7
    l2_own, l2_other, dram_own, dram_other = utilisations[:, fitted]
    model = colocation.fit_pairwise(l2_own, l2_other, dram_own, dram_other, slowdown[fitted])
    error = fitted_error(relative_errors(model.slowdown(*utilisations[:, ~fitted]), slowdown[~fitted]))
    errors = {"mean_error": error.mean, "p95_error": error.p95, "max_error": error.max}
    counts = {"points_fitted": int(fitted.sum()), "points_judged": error.points}
    shown = ", ".join(f"{name.replace('_', ' ')} {100 * value:.2f} %" for name, value in errors.items())
    return options.answer(
        {"model": MODEL, "coefficients": model.model_dump(), "overall": errors | counts},
        [Rows(("coefficient", "value"), [*model.model_dump().items()]),
         f"{MODEL}: {shown}, on the {error.points} pairs of {len(slowdown)} that were not fitted"])


PAIR_GPU = "v100"
PAIR_COLUMNS = ("DNN", "alone: mean error %", "p95 error %", "pairs: mean error %", "p95 error %", "latencies judged")


def _fit_colocation(options: Fit, path: str, pairs_path: str) -> int:
    """Fit, judge the fit on held-out pairs, and write the performance data; returns the exit code."""
    gpu, out = gpu_type(options.gpu or PAIR_GPU).name, options.out
    runs, pairs = read_alone(path), read_beside(pairs_path)
    apart = colocation.kept_apart(pairs)
    if len(apart) < LEAST_PAIRS or not apart.any():
        raise InputError(f"{pairs_path}: {len(apart)} pairs; give at least {LEAST_PAIRS} to fit and to judge by")
    unseen = pairs.take(apart)
    about: dict[str, Any] = {
        "name": Path(out).stem if out else "colocation", "fitted": date.today().isoformat(),
        "source": f"Tables {Path(path).name} and {Path(pairs_path).name}, fitted by provision {provision.__version__}; "
                  "errors on pairs kept apart.",
        "command": "provision fit ALONE --format colocation --pairs PAIRS",
    }
    with refused(path):
        data = colocation.judged(colocation.fit(runs, pairs.take(~apart), gpu, **about), runs, unseen)
    overall = fitted_error(colocation.errors(data, unseen).ravel())
    if out:
        with refused(out):
            write(data, out, options.force)
    models = data.model_dump(mode="json")["models"]
    content = {
        "model": data.kind,
        "models": {name: {"alone": one["solo_error"], "pairs": one["pair_error"]} for name, one in models.items()},
        "overall": overall.model_dump(), "pairs_fitted": len(data.fitted_pairs), "pairs_judged": overall.points // 2,
        "out": out,
    }
    rows = [
        [name, *_percent(one.solo_error), *_percent(one.pair_error), one.pair_error.points if one.pair_error else 0]
        for name, one in data.models.items()
    ]
    return options.answer(content, [
        Rows(PAIR_COLUMNS, [*rows, ["all", "", "", *_percent(overall), overall.points]]),
        f"{data.kind}: fitted to {len(data.fitted_pairs)} pairs; alone judged on batch sizes left out, pairs on the "
        f"{overall.points // 2} kept apart", *options.files_told])


def _percent(error: FittedError | None) -> tuple[str, str]:
    """The mean and the 95th percentile of an error in percent, as text; empty if nothing was judged."""
    return (f"{100 * error.mean:.2f}", f"{100 * error.p95:.2f}") if error else ("", "")
