"""Reads the tables in a folder. The columns of a table tell whether it has measurements of models or rates over time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from provision.instances.files.csv_cells import header
from provision.instances.files.demand import COLUMNS, TIMES, Demand, read_demand
from provision.instances.importers.csv_table import NEEDED, import_csv, unit_ms
from provision.models.base.errors import InputError
from provision.models.fitting.waves import between_error
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.measured_segments import MeasuredModel, MeasuredSegments

UNIT = r"(_?\(?ms|(_|_?\()(us|µs|μs|usec|microseconds|s|sec|seconds))\)?"
ALIASES = {
    "batch": r"batch(_?size)?|batchgr(ö|oe)(ß|ss)e|bs|b",
    "latency_ms": rf"((p99|avg|mean)_?)?(lat(ency)?|latenz)({UNIT})?(_?p99)?|p99({UNIT})?|time{UNIT}|ms",
    "profile": r"(mig_?)?profile|mig",
    "processes": r"proc(esse)?s|instances|mps",
    "throughput_rps": r"throughput(_?rps)?|rps|qps|inferences/second",
    "model": r"modell?(_?name)?|dnn|network",
    "memory_gib": r"mem(ory)?_gib",
    "spread_ms": r"(spread|std(dev)?)_ms",
}
"""The pattern of the names that the column of a field may have, in lower case and with underscores for spaces."""
EXPECTED = "a table of measurements has columns batch and latency_ms, one of rates has a column of times"
MEASURED = "measured.yaml"
"""The name of the file to which the measurements of a folder are written."""


@dataclass
class Tables:
    """The content of a folder: ``measured`` models of a GPU type, ``demand`` over time, and ``notes`` on the files."""

    measured: MeasuredSegments | None = None
    demand: Demand | None = None
    notes: list[str] = field(default_factory=list)


def read_tables(folder: Path, gpu: str) -> Tables:
    """Read the CSV files of a folder; measurements are of the GPU type ``gpu``.

    Raises
    ------
    InputError
        If a table cannot be used, two tables measure a model of the same name, or no table measures anything although
        one was left out.
    """
    models: dict[str, MeasuredModel] = {}
    found, left_out = Tables(), []
    for path in sorted(folder.glob("*.csv")):
        columns = measured_columns(names := header(path))
        if set(NEEDED) <= set(columns):
            table = import_csv(path, gpu, path.stem, columns, WHOLE)
            if twice := sorted(models.keys() & table.models):
                raise InputError(f"{path}: model {twice[0]!r} stands in another table too; rename one")
            models |= table.models
            taken = ", ".join(f"{column} as {name}" + _converted(column) for name, column in columns.items()
                              if name != column)
            as_what = f" ({taken})" if taken else ""
            found.notes.append(f"{path.name}: measurements of {', '.join(table.models)}{as_what}")
        elif COLUMNS[0] in names or any(name.lower() in TIMES for name in names):
            found.demand = read_demand(path)
            found.notes.append(f"{path.name}: rates of {', '.join(found.demand.workloads)} over time")
        else:
            found.notes.append(f"{path.name}: left out; {EXPECTED}")
            left_out.append(InputError(f"{path}: has the columns {', '.join(names)}; {EXPECTED}; rename them, or move "
                                       "the file elsewhere"))
    if left_out and not models:
        raise left_out[0]
    if models:
        found.measured = MeasuredSegments(
            version=1, name="measured", kind="measured-segments", gpu=gpu, source="own measurements", models=models,
            between_batches=between_error(models),
        )
    return found


def _converted(column: str) -> str:
    """What is done to the numbers of a column, in words; empty if nothing is."""
    factor = unit_ms(column)
    return "" if factor == 1 else f", times {factor:g}"


def measured_columns(names: list[str]) -> dict[str, str]:
    """The name of each field's column in a table; if several columns fit a field, the first."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[\s_]+", "_", name.strip().lower())
        for field_, pattern in ALIASES.items():
            if re.fullmatch(pattern, plain):
                found.setdefault(field_, name)
    return found
