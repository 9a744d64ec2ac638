"""``provision profile``: measure models on the present GPU: alone, in several processes, or beside a neighbour."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from provision.commands.common import add_force, add_json, counting, print_json, print_table
from provision.instances.files.csv_cells import csv_text
from provision.instances.files.files import check_writable, write_text
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.base.options import listed
from provision.profiling.device import Device, device_of_environment
from provision.profiling.measure import Point, measure
from provision.profiling.table import COLUMNS, row, segments

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

SHOWN = ("model", "batch", "processes", "neighbour", "latency_ms", "gpu_ms", "throughput_rps")
CPU = Device("cpu", "whole")
MOST = 4096
"""The largest batch size, and the largest number of processes."""


def add_profile(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="torchvision:resnet50 or package.module:factory")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64", metavar="B,B", help="default: 1,2,4,8,16,32,64")
    parser.add_argument("--processes", default="1", metavar="P,P", help="default: 1")
    parser.add_argument("--beside", metavar="MODEL:BATCH", help="with this neighbour in a process of its own")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="per point (default: 3)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries a callable out")
    parser.add_argument("--out", required=True, metavar="F", help="write the measurements here (.csv)")
    parser.add_argument("--table", metavar="F", help="and what ran alone as performance data (.json, else YAML)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    for path in filter(None, (options.out, options.table)):
        check_writable(path, options.force)
    if options.table == options.out:
        raise InputError(f"{options.out}: named by --out and by --table; give each a name of its own")
    if options.table and options.device == "cpu":
        raise InputError("--table: a CPU is no GPU type; leave it out with --device cpu")
    points = _points(options)
    device = device_of_environment() if options.device == "cuda" else CPU
    rows = []
    with counting("profiling", len(points)) as advance:
        for point in points:
            rows.append(row(device, point, measure(point, options.device, options.seconds)))
            write_text(options.out, csv_text(COLUMNS, rows), force=options.force or len(rows) > 1)
            advance(1)
    if options.table:
        source = f"measured by provision profile on {device.gpu} {device.profile}"
        write(segments(rows, f"profiled-{device.gpu}", source), options.table, options.force)
    if options.json:
        points_found = [dict(zip(COLUMNS, one, strict=True)) for one in rows]
        print_json({"points": points_found, "file": options.out, "table_file": options.table})
        return 0
    print_table(SHOWN, [[one[COLUMNS.index(name)] or None for name in SHOWN] for one in rows])
    for path in filter(None, (options.out, options.table)):
        print(f"written to {path}")
    return 0


def _points(options: Namespace) -> list[Point]:
    """The points to measure."""
    if not 0 < options.seconds < 3600:
        raise InputError(f"--seconds {options.seconds:g}: should be above 0 and below an hour")
    batches, processes = (listed(name, getattr(options, name), int, 1, MOST) for name in ("batches", "processes"))
    return [
        Point(model, batch, number, _neighbour(options.beside))
        for model, number, batch in itertools.product(options.models, processes, batches)
    ]


def _neighbour(text: str | None) -> tuple[str, int] | None:
    """The pair (model, batch) in ``MODEL:BATCH``; None if no text is given."""
    if text is None:
        return None
    model, _, batch = text.rpartition(":")
    if not (":" in model and batch.isdigit() and int(batch) > 0):
        raise InputError(f"--beside {text}: write MODEL:BATCH, as torchvision:vgg19:8")
    return model, int(batch)
