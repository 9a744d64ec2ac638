"""Import of MLPerf Inference results: throughput of the offline scenario, a row per system and model.

Columns as in the result tables that submitters' configurations are joined to: ``system``, ``model``, ``devices``,
``batch``, ``streams`` (processes that run batches side by side) and ``offline_sps``, the samples per second of all
devices. Nobody measures batch latency offline; devices are kept full there, so that a batch takes
batch x streams / throughput of one device.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from provision.instances.files.csv_cells import number, numbered_rows, text
from provision.instances.files.files import refused
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments

if TYPE_CHECKING:
    from provision.instances.files.files import FilePath

COLUMNS = ("system", "model", "devices", "batch", "offline_sps")
PROFILE = re.compile(r"MIG_\d+x(\d+g\.\d+gb)")
"""The slices of a system with MIG, in its name: ``MIG_56x1g.10gb``."""


def import_mlperf(path: FilePath, gpu: str, systems: list[str]) -> MeasuredSegments:
    """Measured segments of a GPU type.

    Parameters
    ----------
    path
        The CSV file of results.
    gpu
        The GPU type that the systems have; their names do not say it in one way.
    systems
        Names of the systems to take, each with slices of another profile.

    Raises
    ------
    InputError
        When a system is not in the file, a row cannot be used, or two systems measured the same.
    """
    rows = list(numbered_rows(path, COLUMNS))
    known = sorted({row["system"] for _, row in rows})
    for name in systems:
        if name not in known:
            raise InputError(f"{path}: no system {name!r}; there is {', '.join(known)}{did_you_mean(name, known)}")
    points: dict[str, list[MeasuredPoint]] = {}
    for line, row in rows:
        if row["system"] in systems:
            values = [number(path, line, row, column) for column in COLUMNS[2:]]
            streams = number(path, line, row, "streams") if row.get("streams") else 1
            if min(*values, streams) <= 0:
                raise InputError(f"{path}:{line}: devices, batch and offline_sps should be above 0; remove the row")
            devices, batch, all_rps = values
            rps = all_rps / devices
            latency_ms = 1000 * batch * streams / rps
            point = MeasuredPoint(_profile(row["system"], gpu), int(batch), int(streams), rps, latency_ms)
            points.setdefault(text(path, line, row, "model"), []).append(point)
    source = f"MLPerf Inference, offline scenario, {', '.join(systems)}; latency is batch over throughput."
    with refused(path):
        models = {name: MeasuredModel(points=table) for name, table in points.items()}
        return MeasuredSegments(
            version=1, name=f"mlperf-{gpu}", kind="measured-segments", gpu=gpu, source=source, models=models
        )


def _profile(system: str, gpu: str) -> str:
    """The profile of a system's slices."""
    found = PROFILE.search(system)
    if found and found[1] not in gpu_type(gpu).profiles:
        raise InputError(f"{system}: {gpu} has no profile {found[1]}; name the GPU type that was measured")
    return found[1] if found else WHOLE
