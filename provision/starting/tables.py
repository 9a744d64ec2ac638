"""Reads the tables in a folder. The columns of a table tell whether it has measurements of models or rates over time.
"""

from dataclasses import dataclass, field
from pathlib import Path

from provision.instances.files.csv_cells import header
from provision.instances.files.demand import COLUMNS, TIMES, Demand, read_demand
from provision.instances.importers.csv_table import NEEDED, import_csv, measured_columns, read_as
from provision.models.base.errors import InputError
from provision.models.fitting.waves import between_error
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.measured_segments import MeasuredModel, MeasuredSegments

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
    """Read the CSV files of a folder; measurements are of the GPU type ``gpu``. Raises InputError if a table cannot be
    used, two tables measure a model of the same name, or no table measures anything although one was left out.
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
            taken = read_as(columns)
            found.notes.append(f"{path.name}: measurements of {', '.join(table.models)}" + (taken and f" ({taken})"))
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
