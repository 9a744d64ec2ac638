"""``provision import``: public files of other systems as instances, performance data and plans."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.commands.common import add_force, write_out
from provision.commands.import_token_tables import add_tables
from provision.commands.import_tokens import add_formats
from provision.instances.files.demand import write_demand
from provision.instances.files.files import check_writable
from provision.instances.importers.completion import KNOWN_GPU
from provision.instances.importers.csv_table import FIELDS, import_csv, parse_columns
from provision.instances.importers.doubts import doubts
from provision.instances.importers.igniter_profile import import_igniter
from provision.instances.importers.mlperf import import_mlperf
from provision.instances.importers.mlperf_results import parse_batches
from provision.instances.importers.model_analyzer import import_model_analyzer
from provision.instances.importers.parvagpu import import_deployment, import_scenario, import_tables, sharing
from provision.instances.importers.perf_analyzer import import_perf_analyzer
from provision.instances.importers.servegen import import_servegen
from provision.instances.read import read
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.models.performance.measured_segments import MeasuredSegments


def add_import(parser: ArgumentParser) -> None:
    """Declare the verb's formats and their arguments."""
    formats = parser.add_subparsers(title="formats", dest="format", metavar="FORMAT", required=True)
    _add(formats, "parvagpu", _parvagpu, "profile tables, with --slo-row a whole scenario", "DIR")
    _add(formats, "parvagpu-deployment", _deployment, "a deployment map, as a plan", "CSV")
    _add(formats, "igniter", _igniter, "a profile, as performance data fitted to it", "JSONL")
    _add(formats, "perf-analyzer", _perf_analyzer, "files MODEL_PROFILE_bBATCH_pPROCESSES.csv, as a table", "PATH")
    _add(formats, "model-analyzer", _model_analyzer, "metrics-model-inference.csv, as a table", "CSV")
    _add(formats, "servegen", _servegen, "rates of the busiest clients, as workloads of shipped models", "CSV")
    _add(formats, "csv", _csv, "own measurements, a row per batch with its latency, as a table", "FILE")
    _add(formats, "mlperf", _mlperf, "results of MLPerf Inference, as a table", "PATH")
    _add_tables(formats)
    add_formats(formats)
    add_tables(formats)
    for name in ("perf-analyzer", "model-analyzer"):
        formats.choices[name].add_argument("--gpu", required=True, metavar="G", help="measured on")
        formats.choices[name].add_argument(
            "--percentile", type=int, default=99, metavar="P", help="of the latency (default: 99)"
        )
    formats.choices["model-analyzer"].add_argument(
        "--profile", default=WHOLE, metavar="P", help=f"MIG profile it was measured on (default: {WHOLE})"
    )
    scenario = formats.choices["parvagpu"]
    scenario.add_argument("--slo-row", type=int, metavar="N", help="row of SLO/*.csv, from 1 (S1 is 1)")
    scenario.add_argument(
        "--safety", type=float, default=1.0, metavar="S", help="part of SLO/2 to use (default: 1)"
    )
    scenario.add_argument("--price", type=float, metavar="P", help="price of a GPU per hour")
    scenario.add_argument(
        "--share-slices", action="store_true", help="let workloads share slices, by the fitted network that ships"
    )
    servegen = formats.choices["servegen"]
    servegen.add_argument("--demand", required=True, metavar="F", help="write the rates over time here (.csv)")
    servegen.add_argument("--clients", type=int, default=40, metavar="N", help="how many (default: 40)")
    servegen.add_argument("--first", type=int, default=0, metavar="N", help="the first window (default: 0)")
    servegen.add_argument("--windows", type=int, default=144, metavar="N", help="how many (default: 144, a day)")
    formats.choices["igniter"].add_argument("--gpu", default="v100", metavar="G", help="measured on (default: v100)")
    formats.choices["parvagpu-deployment"].add_argument("--instance", required=True, metavar="I")


def _add_tables(formats: Any) -> None:
    """Declare what own measurements and MLPerf's results need beside the file."""
    own, mlperf = formats.choices["csv"], formats.choices["mlperf"]
    for one in (own, mlperf):
        one.add_argument("--gpu", required=True, metavar="TYPE", help="measured on")
    own.add_argument("--model", metavar="NAME", help="what was measured, where no column does (default: FILE's name)")
    own.add_argument(
        "--profile", default=WHOLE, metavar="P", help=f"MIG profile, where no column says so (default: {WHOLE})"
    )
    own.add_argument(
        "--columns", default="", metavar="FIELD=COLUMN,...", help=f"names of the columns of {', '.join(FIELDS)}"
    )
    further = own.add_mutually_exclusive_group()
    further.add_argument("--measured-only", action="store_true", help="do not plan batches between the measured ones")
    further.add_argument(
        "--complete", action="store_true",
        help="add what was not measured, at the upper end of an interval: a network fitted to 3 points per model or "
        f"more, with the shipped ones as the prior ({KNOWN_GPU})",
    )
    mlperf.add_argument(
        "--system", required=True, action="append", metavar="S", help="take this system's rows (once per profile)"
    )
    mlperf.add_argument(
        "--scenario", choices=("offline", "server"), default="offline",
        help="whose throughput is a point's; server is the safe one where the batch is the server's (default: offline)",
    )
    mlperf.add_argument(
        "--check", action="append", default=[], metavar="S",
        help="another system with this GPU: how far its throughput lies from the points is stated as their error",
    )
    mlperf.add_argument(
        "--batches", default="", metavar="MODEL=BxS,...", help="batch and streams, which LoadGen's logs do not say"
    )
    mlperf.add_argument("--devices", type=int, metavar="N", help="GPUs or slices of the systems, if not in their names")


def _add(formats: Any, name: str, run: Callable[[Namespace], int], text: str, path: str) -> None:
    parser = formats.add_parser(name, help=text, description=text)
    parser.add_argument("path", metavar=path)
    parser.add_argument("--out", required=True, metavar="F", help="file to write (.json, else YAML)")
    add_force(parser)
    parser.set_defaults(run=run)


def _parvagpu(options: Namespace) -> int:
    check_writable(options.out, options.force)
    if options.slo_row is None:
        return write_out(options, import_tables(options.path))
    if not 0 < options.safety <= 1:
        raise InputError(f"--safety {options.safety:g}: must be above 0 and at most 1; correct it")
    if options.price is not None and not 0 <= options.price < float("inf"):
        raise InputError(f"--price {options.price:g}: must be finite and not negative; correct it")
    scenario = import_scenario(options.path, options.slo_row, options.safety, options.price)
    return write_out(options, sharing(scenario) if options.share_slices else scenario)


def _igniter(options: Namespace) -> int:
    check_writable(options.out, options.force)
    return write_out(options, import_igniter(options.path, options.gpu))


def _perf_analyzer(options: Namespace) -> int:
    check_writable(options.out, options.force)
    table, dropped = import_perf_analyzer(options.path, options.gpu, options.percentile)
    for line in dropped:
        print(line, file=sys.stderr)
    return _write_table(options, table)


def _model_analyzer(options: Namespace) -> int:
    check_writable(options.out, options.force)
    table, left_out = import_model_analyzer(options.path, options.gpu, options.profile, options.percentile)
    if left_out:
        print(f"{left_out} rows left out: not one request in flight per instance", file=sys.stderr)
    return _write_table(options, table)


def _csv(options: Namespace) -> int:
    check_writable(options.out, options.force)
    columns, given = parse_columns(options.columns), (options.gpu, options.model or Path(options.path).stem)
    table = import_csv(options.path, *given, columns, options.profile, not options.measured_only, options.complete)
    if options.complete:
        judged = "3 points of a model are too few to judge by" if table.error is None else (
            f"measured points left out in turn: mean error {table.error.mean:.1%}, p95 {table.error.p95:.1%}"
        )
        print(f"{sum(len(one.points) for one in table.models.values())} points with those of fitted networks; {judged}")
    if table.between_batches is not None:
        error = table.between_batches
        print(
            f"between batches: mean error {error.mean:.1%}, p95 {error.p95:.1%}, over {error.points} measured batches, "
            f"each predicted from its neighbours; plans take {error.margin:.1%} longer there"
        )
    return _write_table(options, table)


def _write_table(options: Namespace, table: MeasuredSegments) -> int:
    """Write measured tables, with what looks wrong with them."""
    for line in doubts(table):
        print(f"warning: {line}", file=sys.stderr)
    return write_out(options, table)


def _mlperf(options: Namespace) -> int:
    check_writable(options.out, options.force)
    if options.devices is not None and options.devices < 1:
        raise InputError(f"--devices {options.devices}: must be at least 1; correct it")
    chosen = "".join(f" --{name} {one}" for name in ("system", "check") for one in getattr(options, name))
    table = import_mlperf(
        options.path, options.gpu, options.system, scenario=options.scenario, check=options.check,
        batches=parse_batches(options.batches), devices=options.devices,
        command=f"provision import mlperf {options.path} --gpu {options.gpu} --scenario {options.scenario}{chosen}",
    )
    if table.error is not None:
        print(f"throughput per GPU of {', '.join(options.check)}: {table.error.mean:.1%} away on average, at most "
              f"{table.error.max:.1%}, over {table.error.points} models")
    return write_out(options, table)


def _deployment(options: Namespace) -> int:
    check_writable(options.out, options.force)
    return write_out(options, import_deployment(options.path, read(options.instance)))


def _servegen(options: Namespace) -> int:
    for path in (options.out, options.demand):
        check_writable(path, options.force)
    instance, demand = import_servegen(options.path, options.clients, options.first, options.windows)
    write_demand(demand, options.demand, options.force)
    print(f"{instance.source}; demand written to {options.demand}")
    return write_out(options, instance)
