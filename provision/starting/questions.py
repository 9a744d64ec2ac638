"""The questions from which ``provision init`` learns what a first instance has.

Reads the tables in a folder. The columns of a table tell whether it has measurements of models or rates over time.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from provision.instances.files.csv_cells import header
from provision.instances.files.demand import COLUMNS, TIMES, Demand, read_demand
from provision.instances.importers.csv_table import NEEDED, import_csv, measured_columns, read_as
from provision.models.base.errors import InputError
from provision.models.base.register import one_of
from provision.models.fitting.waves import between_error
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.measured_segments import MeasuredModel, MeasuredSegments
from provision.starting.instance_text import Served, proposed, serves, shipped_for, types_with_data

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


MOST_RPS = 1e9


def asked(question: str, proposed: str) -> str:
    """The user's answer to a question; the proposed one if it is empty. Raises InputError if stdin has ended."""
    print(f"{question} [{proposed}]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline() if sys.stdin else ""
    if not answer:
        print(file=sys.stderr)
        raise InputError("nobody answers on stdin; add --yes to take what is proposed, and --gpu and --model to choose")
    return answer.strip() or proposed


def as_proposed(question: str, proposed: str) -> str:
    """The proposed answer, whatever the question."""
    return proposed


def listed(text: str) -> list[str]:
    """The names in a text with commas between them."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def performance_of(gpus: list[str], tables: Tables | None) -> list[PerformanceFile]:
    """The measurements in the folder; if there are none, the shipped data of the GPU types. Raises InputError if a GPU
    type has no data.
    """
    if tables and tables.measured:
        return [tables.measured]
    found = {gpu: shipped_for(gpu) for gpu in gpus}
    for gpu, data in found.items():
        if data is None:
            raise InputError(f"{gpu}: no data ships for it, and no table of measurements is in the folder; put a CSV "
                             f"with columns batch and latency_ms there, or use one of {', '.join(types_with_data())}")
    return [data for data in found.values() if data]


def workloads_of(models: str | None, data: list[PerformanceFile], tables: Tables | None,
                 ask: Callable[[str, str], str]) -> list[Served]:
    """The workloads: models with the rates and SLOs that the user gave or that were proposed."""
    of_model = {model: one for one in reversed(data) for model in one.models}
    peaks = dict(zip(tables.demand.workloads, tables.demand.rates_rps.max(axis=0).tolist(), strict=True)) if (
        tables and tables.demand) else {}
    measured = bool(tables and tables.measured)
    fit = [name for name, one in of_model.items() if measured or serves(one, name)]
    first = [name for name in peaks if name in of_model] or fit
    few = ",".join(first if measured or peaks else first[:1])
    names = listed(models or ask(f"models to serve ({', '.join(of_model)})", few))
    for name in names:
        if name not in of_model:
            raise InputError(f"model {name!r}: no data describes it; {one_of(name, of_model)}")
    begun = [proposed(of_model[name], name) for name in names]
    return [
        Served(one.model, _number(ask, f"{one.model}: requests per second at the peak",
                                  peaks.get(one.model) or one.rate_rps),
               _number(ask, f"{one.model}: latency SLO in ms", one.slo_ms))
        for one in begun
    ]


def _number(ask: Callable[[str, str], str], question: str, proposed: float) -> float:
    """The positive number that answers a question."""
    answer = ask(question, f"{proposed:g}")
    try:
        value = float(answer)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_RPS:
        raise InputError(f"{question}: {answer!r} is no number above 0; begin again")
    return value
