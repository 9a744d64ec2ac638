"""``provision profile``: measure models on the present GPU: alone, in several processes, or beside a neighbour."""

import itertools
from typing import Annotated, Literal

from pydantic import Field

from provision.commands.verb import Writing
from provision.draw.output import rows_of
from provision.draw.progress import counting
from provision.instances.files.csv_cells import csv_text
from provision.instances.files.files import write_text
from provision.instances.read import write
from provision.models.base.arguments import local, operand, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Positive
from provision.profiling.device import Device, device_of_environment
from provision.profiling.measure import COLUMNS, Point, measure, row, segments

SHOWN = ("model", "batch", "processes", "neighbour", "latency_ms", "gpu_ms", "throughput_rps")
CPU = Device("cpu", "whole")
Sizes = tuple[Annotated[int, Field(ge=1, le=4096)], ...]


class Profile(Writing):
    models: tuple[str, ...] = operand("MODEL", "torchvision:resnet50 or package.module:factory", nargs="+")
    batches: Sizes = local((1, 2, 4, 8, 16, 32, 64), "B,B", "batch sizes")
    processes: Sizes = local((1,), "P,P", "numbers of processes")
    beside: str | None = local(None, "MODEL:BATCH", "with this neighbour in a process of its own")
    seconds: Annotated[Positive, Field(lt=3600)] = local(3.0, "S", "per point")
    device: Literal["cuda", "cpu"] = local("cuda", None, "cpu tries a callable out")
    out: str = written("write the measurements here (.csv)", default=...)
    table: str | None = written("and what ran alone as performance data (.json, else YAML)")

    def run(self) -> int:
        if self.table and self.device == "cpu":
            raise InputError("--table: a CPU is no GPU type; leave it out with --device cpu")
        points = _points(self)
        device = device_of_environment() if self.device == "cuda" else CPU
        rows = []
        with counting("profiling", len(points)) as advance:
            for point in points:
                rows.append(row(device, point, measure(point, self.device, self.seconds)))
                write_text(self.out, csv_text(COLUMNS, rows), force=self.force or len(rows) > 1)
                advance(1)
        if self.table:
            source = f"measured by provision profile on {device.gpu} {device.profile}"
            write(segments(rows, f"profiled-{device.gpu}", source), self.table, self.force)
        told = [dict(zip(COLUMNS, one, strict=True)) for one in rows]
        return self.answer({"points": told, "file": self.out, "table_file": self.table},
                           [rows_of(told, SHOWN, lambda value: value or None), *self.files_told])


def _points(options: Profile) -> list[Point]:
    """The points to measure."""
    return [
        Point(model, batch, number, _neighbour(options.beside))
        for model, number, batch in itertools.product(options.models, options.processes, options.batches)
    ]


def _neighbour(text: str | None) -> tuple[str, int] | None:
    """The pair (model, batch) in ``MODEL:BATCH``; None if no text is given."""
    if text is None:
        return None
    model, _, batch = text.rpartition(":")
    if not (":" in model and batch.isdigit() and int(batch) > 0):
        raise InputError(f"--beside {text}: write MODEL:BATCH, as torchvision:vgg19:8")
    return model, int(batch)
