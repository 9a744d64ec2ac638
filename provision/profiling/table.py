"""Makes rows of a CSV file from measurements, and performance data from those of replicas alone on their slice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from provision.instances.files.files import validate
from provision.models.base.errors import InputError
from provision.models.performance.measured_segments import MeasuredSegments
from provision.profiling.measure import Measured, Point

if TYPE_CHECKING:
    from provision.profiling.device import Device

COLUMNS = (
    "gpu", "profile", "sm_percent", "model", "batch", "processes", "neighbour", "neighbour_batch",
    "latency_ms", "gpu_ms", "throughput_rps", "batches",
)


def row(device: Device, point: Point, measured: Measured | None) -> tuple[object, ...]:
    """A measurement as a row of COLUMNS; if memory ran out, the throughput is 0."""
    beside, beside_batch = point.neighbour or ("", "")
    found = astuple(measured) if measured else (0, "", 0, 0)
    place = (device.gpu, device.profile, device.sm_percent)
    return (*place, point.model, point.batch, point.processes, beside, beside_batch, *found)


def segments(rows: Iterable[Sequence[Any]], name: str, source: str) -> MeasuredSegments:
    """Make measured segments from the rows that were measured alone on a slice with all of its SMs.

    Raises
    ------
    InputError
        If there are no such rows, or they are of several GPU types.
    """
    alone = [one for one in (dict(zip(COLUMNS, cells, strict=True)) for cells in rows)
             if not one["neighbour"] and one["sm_percent"] == 100 and one["throughput_rps"] > 0]
    gpus = {one["gpu"] for one in alone}
    if len(gpus) != 1:
        raise InputError("profile: nothing was measured alone with all SMs, so there is no table to write")
    models: dict[str, dict[str, list[object]]] = {}
    for one in alone:
        point = (one["profile"], one["batch"], one["processes"], one["throughput_rps"], one["latency_ms"])
        models.setdefault(one["model"].rpartition(":")[2], {"points": []})["points"].append(point)
    content = {"version": 1, "name": name, "kind": "measured-segments", "gpu": gpus.pop(), "source": source,
               "models": models}
    return validate(MeasuredSegments, content, "profile")
