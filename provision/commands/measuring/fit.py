"""``provision fit``: fit latency models to profile tables and tell their errors; or propose which points to measure
first.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

import provision
from provision import draw
from provision.commands.common import add_force, add_json, print_json, print_table
from provision.commands.measuring import fit_colocation, fit_pairs
from provision.draw.figures import check_picture, write_figure
from provision.instances.files.files import check_writable, refused, write_text
from provision.instances.importers.doubts import poor_fit
from provision.instances.importers.parvagpu import GPU
from provision.instances.importers.parvagpu_profiles import points_text, read_points, read_profiles
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.fitting.families import FAMILIES
from provision.models.fitting.files import check_kind, performance_data
from provision.models.fitting.profile import choose, fit_profile
from provision.models.fitting.proposal import propose
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.error import fitted_error

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.instances.importers.parvagpu_profiles import Key, Profile
    from provision.models.fitting.profile import Fit
    from provision.models.fitting.profile_points import Indices

COLUMNS = ("DNN", "mean error %", "p95 error %", "max error %", "points fitted", "points judged")


def add_fit(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = f"{str(parser.description)[:-1]}; on points left out when only some are fitted."
    parser.add_argument("path", nargs="?", metavar="DIR", help="a table (CSV), or the folder of several")
    parser.add_argument(
        "--format",
        choices=["parvagpu", "gpulets", "colocation"],
        default="parvagpu",
        help="parvagpu: profile tables (default); gpulets: a table of pairs, for the interference of gpu-lets; "
        "colocation: a table of models alone, and with --pairs side by side",
    )
    parser.add_argument("--pairs", metavar="F", help="colocation: the table of models side by side (CSV)")
    parser.add_argument("--gpu", metavar="G", help=f"the GPU type measured on (default: {GPU}; colocation: v100)")
    parser.add_argument("--model", choices=FAMILIES, default="closed-network", help="default: closed-network")
    points = parser.add_mutually_exclusive_group()
    points.add_argument(
        "--points", type=int, metavar="N", help="fit N points per DNN that a rule chooses, judge the rest"
    )
    points.add_argument(
        "--points-file", metavar="F", help="fit these, lines of profile,batch,processes; judge the rest"
    )
    points.add_argument("--propose", type=int, metavar="N", help="no DIR: say which N points to measure of a new DNN")
    parser.add_argument("--out", metavar="F", help="write performance data (--propose: the points) here")
    parser.add_argument("--png", metavar="F", help="draw predictions and errors (.png or .svg)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    if options.path is None and options.propose is None:
        raise InputError("fit: name the DIR of the tables, or ask for --propose N")
    if options.format == "gpulets":
        return fit_pairs.run(options)
    if options.format == "colocation":
        return fit_colocation.run(options)
    fit_pairs.refuse(options, {"pairs": fit_pairs.COLOCATION})
    options.gpu = gpu_type(options.gpu or GPU).name
    if options.propose is not None:
        return _propose(options)
    _check(options)
    profiles = read_profiles(options.path, options.gpu)
    fits = _fits(profiles, options)
    if options.out:
        _write(profiles, fits, options)
    if options.png:
        figure = draw.fit_plot.fit_figure(profiles, fits, f"{options.model}, {_judged(options)}")
        write_figure(figure, options.png, options.force)
    for dnn, fit in fits.items():
        for line in poor_fit(_errors([fit])["mean_error"], f"{dnn}: the fit"):
            print(f"warning: {line}", file=sys.stderr)
    if options.json:
        print_json(_summary(profiles, fits, options))
    else:
        _print(fits, options)
    return 0


def _check(options: Namespace) -> None:
    """Refuse options that cannot work, before any fit begins."""
    if options.out:
        check_kind(options.model)
        check_writable(options.out, options.force)
    if options.png:
        check_picture(options.png, options.force)
    if options.out and options.out == options.png:
        raise InputError(f"{options.out}: named by --out and by --png; give each a name of its own")


def _propose(options: Namespace) -> int:
    """Print or write the points to measure."""
    for name in ("path", "png"):
        if getattr(options, name):
            raise InputError(f"--propose goes without {getattr(options, name)}: it is for a DNN not yet measured")
    keys = propose(gpu_type(options.gpu), options.model, options.propose)
    if options.out:
        write_text(options.out, points_text(keys), options.force)
    if options.json:
        print_json({"gpu": options.gpu, "model": options.model, "points": keys, "out": options.out})
    else:
        print(f"written to {options.out}" if options.out else points_text(keys).rstrip())
    return 0


def _fits(profiles: Mapping[str, Profile], options: Namespace) -> dict[str, Fit]:
    """The Fit of every DNN."""
    listed = set(_listed(profiles, options)) if options.points_file else None
    console = Console(stderr=True)
    steps = track(
        profiles.items(), f"fitting {options.model}", console=console, transient=True, disable=not console.is_terminal
    )
    return {
        dnn: fit_profile(dnn, profile.points, options.model, _chosen(dnn, profile, listed, options))
        for dnn, profile in steps
    }


def _chosen(dnn: str, profile: Profile, listed: Collection[Key] | None, options: Namespace) -> Indices | None:
    """The indices of the points of a DNN that are fitted; None for all points."""
    if listed is not None:
        return [at for at, key in enumerate(profile.keys) if key in listed]
    return None if options.points is None else choose(dnn, profile.points, options.model, options.points)


def _listed(profiles: Mapping[str, Profile], options: Namespace) -> list[Key]:
    """The points in the points file; a point that is in none of the tables is refused."""
    known = {key for profile in profiles.values() for key in profile.keys}
    points = read_points(options.points_file, options.gpu)
    for profile, batch, processes in points:
        if (profile, batch, processes) not in known:
            raise InputError(
                f"{options.points_file}: no table of {options.path} has a row for {profile}, batch {batch}, "
                f"{processes} processes; take that point out"
            )
    return points


def _write(profiles: Mapping[str, Profile], fits: Mapping[str, Fit], options: Namespace) -> None:
    """Write the performance data, with its source."""
    about = {"name": Path(options.out).stem, "gpu": options.gpu, "source": f"Tables in {Path(options.path).name}"}
    if options.model == "closed-network":
        about |= {"command": _command(options), "fitted": date.today().isoformat()}
        about["source"] += f", fitted by provision {provision.__version__}; errors {_judged(options)}."
    with refused(options.out):
        write(performance_data(options.model, profiles, fits, **about), options.out, options.force)


def _command(options: Namespace) -> str:
    """The command line, without paths of this machine."""
    chosen = f" --points {options.points}" if options.points else " --points-file F" if options.points_file else ""
    return f"provision fit DIR --format {options.format} --model {options.model}{chosen}"


def _in_sample(options: Namespace) -> bool:
    return options.points is None and options.points_file is None


def _judged(options: Namespace) -> str:
    """The points on which the errors are measured, in words."""
    return "in-sample, on the points fitted" if _in_sample(options) else "held out, on all points not fitted"


def _summary(profiles: Mapping[str, Profile], fits: Mapping[str, Fit], options: Namespace) -> dict[str, Any]:
    """The JSON object that ``--json`` prints."""
    return {
        "model": options.model,
        "format": options.format,
        "in_sample": _in_sample(options),
        "models": {dnn: _errors([fit]) for dnn, fit in fits.items()},
        "overall": _errors(fits.values()),
        "fitted": None if _in_sample(options) else {dnn: _keys(profiles[dnn], fit) for dnn, fit in fits.items()},
        "out": options.out,
    }


def _keys(profile: Profile, fit: Fit) -> list[Key]:
    """The keys of the points to which a model was fitted."""
    return [profile.keys[at] for at in fit.fitted]


def _errors(fits: Collection[Fit]) -> dict[str, Any]:
    """The errors over all points on which the fits were judged, by name, and the numbers of points."""
    error = fitted_error(np.concatenate([fit.errors for fit in fits]))
    return {
        "mean_error": error.mean,
        "p95_error": error.p95,
        "max_error": error.max,
        "points_fitted": sum(len(fit.fitted) for fit in fits),
        "points_judged": error.points,
    }


def _print(fits: Mapping[str, Fit], options: Namespace) -> None:
    """Print the errors of every DNN and of all DNNs together."""
    several = {dnn: [fit] for dnn, fit in fits.items()} | {"all": list(fits.values())}
    rows = [[dnn, *_errors(some).values()] for dnn, some in several.items()]
    print_table(COLUMNS, [[dnn, *(f"{100 * error:.2f}" for error in row[:3]), *row[3:]] for dnn, *row in rows])
    print(f"{options.model}: errors {_judged(options)}")
    for path in filter(None, (options.out, options.png)):
        print(f"written to {path}")
