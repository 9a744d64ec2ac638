"""Imports MLPerf Inference results as measured segments, with a point per system, model and batch size.

MLPerf's scenarios Offline and Server do not measure the latency of a batch; it is derived from rates. Offline keeps
devices busy, so that a batch takes batch * streams / throughput of one device. Server tells a rate that a device
carried under Poisson arrivals. The device's throughput is at least this rate, so a full batch takes at most batch *
streams / rate. The scenarios SingleStream and MultiStream send one query after another, and their latencies are
measured.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from provision.instances.files.files import FilePath, refused
from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.mlperf_results import Result, parse_batches, read_results
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.error import fitted_error, relative_errors
from provision.models.performance.fitted_networks import FittedError
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

PROFILE = re.compile(r"MIG_\d+x(\d+g\.\d+gb)")
"""The part of a system's name that tells its MIG slices, such as ``MIG_56x1g.10gb``."""
DIGITS = 8
"""Significant digits of numbers in the written file."""
Scenario = Literal["offline", "server"]


def import_mlperf(
    path: FilePath,
    gpu: str,
    systems: Sequence[str],
    *,
    scenario: Scenario = "offline",
    check: Sequence[str] = (),
    batches: Mapping[str, tuple[int, int]] | None = None,
    devices: int | None = None,
    command: str = "",
) -> MeasuredSegments:
    """Make measured segments of a GPU type from MLPerf's results.

    Parameters
    ----------
    path
        The CSV file of results, or a submitter's folder ``results``.
    gpu
        The GPU type of the systems; their names do not tell it in a uniform way.
    systems
        Names of the systems to use, each with slices of another profile.
    scenario
        ``offline``, or ``server`` if the batch sizes are those of the server's configuration.
    check
        Further systems with the same GPU; the difference of their throughput per device becomes the ``error``.
    batches, devices
        Passed to ``read_results``.
    command
        The command that made the file, to be written into it.

    Raises
    ------
    InputError
        If a system is not in the file, a row cannot be used, or two systems measured the same.
    """
    results = read_results(path, batches or {}, devices)
    known = sorted({result.system for result in results})
    for name in (*systems, *check):
        if name not in known:
            raise InputError(f"{path}: no system {name!r}; there is {', '.join(known)}{did_you_mean(name, known)}")
    taken = [result for result in results if result.system in systems]
    points: dict[str, list[MeasuredPoint]] = {}
    for result in taken:
        if (point := _point(result, gpu, scenario)) is not None:
            points.setdefault(result.model, []).append(point)
    if not points:
        raise InputError(f"{path}: no {scenario} result of {', '.join(systems)} has a batch; say it with --batches")
    origins = sorted({f" {result.origin}" for result in taken if result.origin})
    source = (
        f"MLPerf Inference{';'.join(origins)} (Apache-2.0): {scenario} scenario, {', '.join(systems)}. Latency is "
        "batch over throughput, and as measured where queries came one after another."
    )
    with refused(path):
        models = {name: MeasuredModel(points=table) for name, table in points.items()}
        return MeasuredSegments(
            version=1, name=f"mlperf-{gpu}", kind="measured-segments", gpu=gpu, source=source, models=models,
            command=command, error=_error(taken, [result for result in results if result.system in check]),
        )


def _point(result: Result, gpu: str, scenario: Scenario) -> MeasuredPoint | None:
    """The measured point of a result; None if the batch size or the scenario's rate is not known."""
    all_sps = result.offline_sps if scenario == "offline" or result.latency_ms is not None else result.server_sps
    if result.batch is None or all_sps is None:
        return None
    rps = all_sps / result.devices
    latency_ms = result.latency_ms or 1000 * result.batch * result.streams / rps
    rps, latency_ms = (float(f"{value:.{DIGITS}g}") for value in (rps, latency_ms))
    return MeasuredPoint(_profile(result.system, gpu), result.batch, result.streams, rps, latency_ms)


def _error(taken: Iterable[Result], checked: Iterable[Result]) -> FittedError | None:
    """The relative differences between the best offline throughput per device of two groups of systems.

    They are compared by model and profile; None if the groups have no model and profile in common.
    """
    best, others = _best(taken), _best(checked)
    same = sorted(best.keys() & others.keys())
    if not same:
        return None
    return fitted_error(relative_errors([best[key] for key in same], np.array([others[key] for key in same])))


def _best(results: Iterable[Result]) -> dict[tuple[str, str], float]:
    """The highest offline throughput per device, samples/s, by model and profile."""
    found: dict[tuple[str, str], float] = {}
    for result in results:
        if result.offline_sps is not None:
            match = PROFILE.search(result.system)
            key = result.model, match[1] if match else WHOLE
            found[key] = max(found.get(key, 0.0), result.offline_sps / result.devices)
    return found


def _profile(system: str, gpu: str) -> str:
    """The profile of a system's slices, from the system's name; the whole GPU if the name has no MIG slices."""
    found = PROFILE.search(system)
    if found and found[1] not in gpu_type(gpu).profiles:
        raise InputError(f"{system}: {gpu} has no profile {found[1]}; name the GPU type that was measured")
    return found[1] if found else WHOLE


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="measured on")
    parser.add_argument(
        "--system", required=True, action="append", metavar="S", help="take this system's rows (once per profile)"
    )
    parser.add_argument(
        "--scenario", choices=("offline", "server"), default="offline",
        help="whose throughput is a point's; server is the safe one where the batch is the server's (default: offline)",
    )
    parser.add_argument(
        "--check", action="append", default=[], metavar="S",
        help="another system with this GPU: how far its throughput lies from the points is stated as their error",
    )
    parser.add_argument(
        "--batches", default="", metavar="MODEL=BxS,...", help="batch and streams, which LoadGen's logs do not say"
    )
    parser.add_argument("--devices", type=int, metavar="N", help="GPUs or slices of the systems, if not in their names")


def _read(options: Namespace) -> Imported:
    if options.devices is not None and options.devices < 1:
        raise InputError(f"--devices {options.devices}: must be at least 1; correct it")
    chosen = "".join(f" --{name} {one}" for name in ("system", "check") for one in getattr(options, name))
    table = import_mlperf(
        options.path, options.gpu, options.system, scenario=options.scenario, check=options.check,
        batches=parse_batches(options.batches), devices=options.devices,
        command=f"provision import mlperf {options.path} --gpu {options.gpu} --scenario {options.scenario}{chosen}",
    )
    if table.error is None:
        return Imported(table)
    told = (f"throughput per GPU of {', '.join(options.check)}: {table.error.mean:.1%} away on average, at most "
            f"{table.error.max:.1%}, over {table.error.points} models")
    return Imported(table, (told,))


IMPORTER = Importer("results of MLPerf Inference, as a table", "PATH", _read, _add_arguments)
