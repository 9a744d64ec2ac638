"""The questions from which ``provision init`` learns what a first instance has, with an answer proposed for each.

Proposals come from the tables in a folder, whose columns tell whether they have measurements of models or rates over
time. The instance is written as text, with comments that explain the values.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from provision.instances.files.csv_cells import header
from provision.instances.files.demand import COLUMNS, TIMES, Demand, read_demand
from provision.instances.importers.csv_table import NEEDED, import_csv, measured_columns, read_as
from provision.models.base.errors import InputError
from provision.models.base.register import one_of
from provision.models.fitting.waves import between_error
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.hardware.prices import ON_DEMAND, list_prices
from provision.models.performance.catalogue import PerformanceFile, load_performance, shipped_performance
from provision.models.performance.measured_segments import MeasuredModel, MeasuredSegments
from provision.models.performance.operating_points import OperatingPoints

KINDS = ("measured-segments", "closed-network", "igniter")
"""The kinds of shipped data that need only a rate and an SLO for a model, in the order of preference."""
ROOM = 5.0
"""The proposed SLO as a multiple of the fastest batch time, so that a batch has time to fill and to wait."""

MOST_BATCH = 256
"""The largest batch size that is considered; larger batches are measured only for their throughput."""
WORDS = ("true", "false", "null", "yes", "no", "on", "off")
"""The words that YAML does not read as text."""

TEXT = """\
# Written by provision init. Change what is not so; then:
#   provision solve {path} --out plan.json      the plan, proven
#   provision what-if {path} --vary rate=0.8:1.4:0.1
# provision schema instance has every field there is.
version: 2
name: {name}

# The GPUs there are. price: a provider's list price that ships (provision gpus); or price_per_hour: what you pay.
# count: how many there are at that price; without it, as many as needed. mig: false leaves a GPU whole.
fleet:
{fleet}

# How models behave on them: shipped data, or files beside this one.
performance: [{performance}]

# What is served. slo_ms: the latency that 99 of 100 requests must keep, waiting included; proposed is five times the
# shortest batch, rounded up. rate_rps: requests per second at the peak.
workloads:
{workloads}
"""


@dataclass(frozen=True)
class Served:
    """A workload of the instance that ``provision init`` writes."""

    model: str
    rate_rps: float
    slo_ms: float


def shipped_for(gpu: str) -> PerformanceFile | None:
    """The shipped data of a GPU type that ``provision init`` can use; None if there is none."""
    return min((data for data in _usable() if data.gpu == gpu), key=lambda data: KINDS.index(data.kind), default=None)


def serves(data: PerformanceFile, model: str) -> bool:
    """Whether the data has operating points of a model with batch sizes up to MOST_BATCH."""
    return any((batches <= MOST_BATCH).any() for batches in (points.batch for points in _points(data, model)))


def types_with_data() -> list[str]:
    """The GPU types for which ``provision init`` can write an instance from shipped data alone."""
    return sorted({data.gpu for data in _usable()})


def _usable() -> list[PerformanceFile]:
    """The shipped data that ``provision init`` can use."""
    return [data for data in map(load_performance, shipped_performance()) if data.kind in KINDS]


def proposed(data: PerformanceFile, model: str) -> Served:
    """A proposed workload in round numbers, which the operating point of a model with the shortest batch time can
    carry.
    """
    points = min(_points(data, model), key=lambda points: float(np.min(points.latency_ms)))
    fastest = int(np.argmin(points.latency_ms))
    return Served(model, _round(float(points.throughput_rps[fastest]) / 2, down=True),
                  _round(ROOM * float(points.latency_ms[fastest]), down=False))


def _points(data: PerformanceFile, model: str) -> list[OperatingPoints]:
    """The operating points of a model, for every slice on which it has some."""
    profiles = [WHOLE, *gpu_type(data.gpu).profiles]
    return [points for profile in profiles if len((points := data.operating_points(model, profile)).batch)]


def _round(value: float, down: bool) -> float:
    """The nearest number not above the value (``down``) or not below it that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * step for step in (1, 2, 5, 10)]
    return max(one for one in steps if one <= value) if down else min(one for one in steps if one >= value)


def fleet_text(gpu: str, data: Sequence[PerformanceFile]) -> str:
    """The text of a fleet entry: with MIG off if only whole GPUs were measured, and with a list price if one ships."""
    mine = [one for one in data if one.gpu == gpu]
    partitioned = any(len(one.operating_points(model, profile).batch) for one in mine for model in one.models
                      for profile in gpu_type(gpu).profiles)
    mig = ", mig: false" if gpu_type(gpu).mig and mine and not partitioned else ""
    found = [price.provider for price in list_prices(gpu) if price.tier == ON_DEMAND]
    price = f"price: {found[0]}}}" if found else "price_per_hour: 1.00}   # write what it costs you"
    return f"  - {{gpu: {gpu}{mig}, {price}"


def instance_text(path: str, name: str, gpus: Sequence[str], data: Sequence[PerformanceFile], files: Sequence[str],
                  served: Sequence[Served]) -> str:
    """The text of an instance with comments; ``files`` are the names or paths of its performance data."""
    return TEXT.format(
        path=path, name=name, performance=", ".join(files), fleet="\n".join(fleet_text(gpu, data) for gpu in gpus),
        workloads="\n".join(
            f"  - {{name: {_quoted(one.model)}, model: {_quoted(one.model)}, slo_ms: {one.slo_ms:g}, "
            f"rate_rps: {one.rate_rps:g}}}" for one in served
        ),
    )


def _quoted(name: str) -> str:
    """A name as YAML text, in quotes if YAML would read it as something else."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return name if plain.isalnum() and plain[0].isalpha() and plain.lower() not in WORDS else f"'{name}'"


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
