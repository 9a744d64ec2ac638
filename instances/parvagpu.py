"""Import of ParvaGPU's public files: profile tables, scenarios and deployment maps."""

import csv
import math
from pathlib import Path

from provision.models.errors import InputError
from provision.models.gpu import gpu_type
from provision.models.instance import Instance
from provision.models.measured_segments import MeasuredModel, MeasuredSegments
from provision.models.operating_points import Member
from provision.models.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.workload import FleetEntry, Policy, Workload

GPU = "a100-80gb"
SOURCE = "ParvaGPU artefact, doi 10.5281/zenodo.13329588"
PROFILE_COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Throughput", "Latency")
DEPLOYMENT_COLUMNS = (
    "Num instance", "Num GPU", "Model", "Placement", "Instance size", "Batch size", "Num proc",
)


def profile_names():
    """Plain MIG profiles of the A100-80GB by their size in GPCs, as ParvaGPU names them."""
    profiles = gpu_type(GPU).profiles.values()
    return {profile.compute: profile.name for profile in profiles if profile.variant == "plain"}


def import_tables(folder, models=None):
    """Measured segments from ``prof_data/*.csv``; rows of zeros (out of memory) are left out.

    Parameters
    ----------
    folder
        The folder that holds ``prof_data``.
    models
        Names of the models to keep; None for all.

    Raises
    ------
    InputError
        When a file is missing, has other columns or a cell that is no number.
    """
    paths = sorted((Path(folder) / "prof_data").glob("*.csv"))
    if not paths:
        raise InputError(f"{folder}: no prof_data/*.csv in there; name the folder that holds prof_data")
    tables = {path.stem: _table(path) for path in paths if models is None or path.stem in models}
    return MeasuredSegments(
        version=1, name="parvagpu-tables", kind="measured-segments", gpu=GPU, source=SOURCE, models=tables
    )


def import_scenario(folder, row, safety, price_per_hour=None):
    """The instance of one scenario: row ``row`` (from 1) of the SLO tables, SLOs cut to whole ms.

    The columns of the tables are the profiled models in alphabetical order.
    """
    folder = Path(folder)
    slos, rates = (_row(folder / "SLO" / name, row) for name in ("SLO_latency.csv", "SLO_req_rate.csv"))
    models = sorted(path.stem for path in (folder / "prof_data").glob("*.csv"))
    if not len(models) == len(slos) == len(rates):
        raise InputError(
            f"{folder}: {len(models)} profiled models, {len(slos)} SLOs and {len(rates)} rates in row {row}; "
            "the tables need one column per model"
        )
    chosen = [(model, slo, rate) for model, slo, rate in zip(models, slos, rates, strict=True) if slo is not None]
    return Instance(
        version=1,
        name=f"parvagpu-row-{row}",
        source=f"{SOURCE}, scenario {row}",
        policy=Policy(safety=safety),
        fleet=(FleetEntry(gpu=GPU, price_per_hour=price_per_hour),),
        performance=import_tables(folder, {model for model, _, _ in chosen}),
        workloads=tuple(
            Workload(name=model, model=model, slo_ms=float(math.floor(slo)), rate_rps=rate)
            for model, slo, rate in chosen
        ),
    )


def import_deployment(path, instance):
    """A deployment map as a plan: GPU ``Num GPU`` of machine ``Num instance``, rates by throughput.

    Placements are taken as they stand, however wrong: judging them is the verifier's task.
    """
    rows = _rows(path, DEPLOYMENT_COLUMNS)
    profiles = profile_names()
    gpus, capacity = {}, {}
    for number, row in enumerate(rows, start=2):
        model = row["Model"].strip()
        if model not in instance.workload:
            raise InputError(f"{path}:{number}: Model {model!r} is no workload of {instance.name}")
        machine, gpu, start, size, batch, processes = (
            _whole(path, number, row, column) for column in DEPLOYMENT_COLUMNS if column != "Model"
        )
        profile = profiles.get(size, f"{size}g")
        capacity.setdefault(model, []).append(_throughput(instance, model, profile, batch, processes))
        gpus.setdefault((machine, gpu), []).append((start, profile, model, batch, processes))
    shares = {model: iter(_shares(one)) for model, one in capacity.items()}
    planned = tuple(
        PlannedGpu(gpu=GPU, mig=True, slices=tuple(_slice(instance, shares, *cell) for cell in cells))
        for cells in gpus.values()
    )
    return Plan(version=1, instance=instance.name, method="parvagpu deployment map", gpus=planned)


def _slice(instance, shares, start, profile, model, batch, processes):
    rate = instance.planned_rps(instance.workload[model]) * next(shares[model])
    replica = Replica(workload=model, batch=batch, processes=processes, rate_rps=rate)
    return Slice(profile=profile, start=start, replicas=(replica,))


def _throughput(instance, workload, profile, batch, processes):
    """Requests/s of a map's row, 0 when its operating point is unknown."""
    model = instance.workload[workload].model
    data = instance.performance_of(GPU, model)
    prediction = data.predict(profile, [Member(model, batch, processes, 1.0)])[0] if data else None
    return prediction.throughput_rps if prediction else 0.0


def _shares(capacities):
    """Parts of a workload's rate in proportion to capacity; equal when nothing is known."""
    total = sum(capacities)
    return [one / total if total else 1 / len(capacities) for one in capacities]


def _table(path):
    """One model's measured rows; throughput is per process in the file, of all processes in the result."""
    profiles = profile_names()
    points = []
    for number, row in enumerate(_rows(path, PROFILE_COLUMNS), start=2):
        size, batch, processes = (_whole(path, number, row, column) for column in PROFILE_COLUMNS[:3])
        per_process, latency_s = (_number(path, number, row, column) for column in PROFILE_COLUMNS[3:])
        if size not in profiles:
            raise InputError(f"{path}:{number}: Mig instance {size} is no A100 size; use 1, 2, 3, 4 or 7")
        if per_process > 0 and latency_s > 0:
            points.append((profiles[size], batch, processes, per_process * processes, latency_s * 1000))
    if not points:
        raise InputError(f"{path}: no row with a throughput and a latency above 0")
    return MeasuredModel(points=points)


def _rows(path, columns):
    """Rows of a CSV file that must have these columns."""
    try:
        with open(path, newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines, strict=True)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: column {missing[0]!r} is missing; expected {', '.join(columns)}")
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from None


def _row(path, row):
    """Numbers of one row (from 1) of a table without header; None for N/A."""
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not 1 <= row <= len(lines):
        raise InputError(f"--slo-row {row}: {path} has rows 1 to {len(lines)}")
    cells = [cell.strip() for cell in lines[row - 1].split(",")]
    return [None if cell == "N/A" else _parsed(path, row, "SLO or rate", cell) for cell in cells]


def _number(path, number, row, column):
    return _parsed(path, number, column, row[column])


def _whole(path, number, row, column):
    value = _number(path, number, row, column)
    if value != int(value):
        raise InputError(f"{path}:{number}: {column} {row[column]!r} is not a whole number")
    return int(value)


def _parsed(path, number, column, cell):
    """A finite, non-negative number from a cell."""
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise InputError(f"{path}:{number}: {column} {cell!r} is not a number") from None
    if not 0 <= value < math.inf:
        raise InputError(f"{path}:{number}: {column} {cell!r} must be finite and not negative")
    return value
