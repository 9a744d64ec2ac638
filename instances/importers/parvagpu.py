"""Imports ParvaGPU's public files: profile tables, scenarios and deployment maps."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, parsed, whole
from provision.instances.files.files import FilePath, read_text, refused
from provision.instances.importers.importer import Imported, Importer, Source
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Flag, Fraction, NonNegative
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.catalogue import load_performance
from provision.models.performance.measured_segments import MeasuredModel, MeasuredSegments
from provision.models.performance.operating_points import Member
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workload import FleetEntry, Workload

GPU = "a100-80gb"
NETWORKS = "parvagpu-a100"
SOURCE = "ParvaGPU artefact, doi 10.5281/zenodo.13329588"
PROFILE_COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Throughput", "Latency")
DEPLOYMENT_COLUMNS = (
    "Num instance", "Num GPU", "Model", "Placement", "Instance size", "Batch size", "Num proc",
)


def profile_names() -> dict[int, str]:
    """Plain MIG profiles of the A100-80GB by their size in GPCs, as ParvaGPU names them."""
    profiles = gpu_type(GPU).profiles.values()
    return {profile.compute: profile.name for profile in profiles if profile.variant == "plain"}


def import_tables(folder: FilePath, models: Collection[str] | None = None) -> MeasuredSegments:
    """Make measured segments from ``prof_data/*.csv``; rows of zeros (out of memory) are left out.

    Parameters
    ----------
    folder
        The folder that holds ``prof_data``.
    models
        Names of the models to keep; None for all.

    Raises
    ------
    InputError
        If a file is missing or has other columns, or a cell is not a number.
    """
    tables = {path.stem: _table(path) for path in _profiles(folder) if models is None or path.stem in models}
    with refused(folder):
        return MeasuredSegments(
            version=1, name="parvagpu-tables", kind="measured-segments", gpu=GPU, source=SOURCE, models=tables
        )


def import_scenario(folder: FilePath, row: int, safety: float, price_per_hour: float | None = None) -> Instance:
    """Make the instance of one scenario: row ``row`` (from 1) of the SLO tables, with SLOs rounded down to whole ms.

    The columns of the tables are the profiled models in alphabetical order.
    """
    models = [path.stem for path in _profiles(folder)]
    tables = [Path(folder) / "SLO" / name for name in ("SLO_latency.csv", "SLO_req_rate.csv")]
    slos, rates = (_row(path, row) for path in tables)
    if not len(models) == len(slos) == len(rates):
        raise InputError(
            f"{folder}: {len(models)} profiled models, {len(slos)} SLOs and {len(rates)} rates in row {row}; "
            "the tables need one column per model"
        )
    chosen = [
        (model, slo, rate)
        for model, slo, rate in zip(models, slos, rates, strict=True)
        if slo is not None and rate is not None
    ]
    if not chosen:
        raise InputError(f"{tables[0]}:{row}: no model has an SLO and a rate; choose another --slo-row")
    with refused(f"{tables[0]}:{row}"):
        return Instance(
            version=1,
            name=f"parvagpu-row-{row}",
            source=f"{SOURCE}, scenario {row}",
            policy=Policy(latency_budget="half_slo", safety=safety),
            fleet=(FleetEntry(gpu=GPU, price_per_hour=price_per_hour),),
            performance=import_tables(folder, {model for model, _, _ in chosen}),
            workloads=tuple(
                Workload(name=model, model=model, slo_ms=float(math.floor(slo)), rate_rps=rate)
                for model, slo, rate in chosen
            ),
        )


def sharing(scenario: Instance) -> Instance:
    """The scenario with slices that workloads may share, and the shipped closed networks as performance data."""
    policy = scenario.policy.model_copy(update={"share_slices": True})
    return scenario.replace(
        name=f"{scenario.name}-shared",
        policy=policy,
        performance=(*scenario.performance, load_performance(NETWORKS)),
    )


def import_deployment(path: FilePath, instance: Instance) -> Plan:
    """Make a plan from a deployment map; a row's GPU is number ``Num GPU`` of machine ``Num instance``.

    A workload's rate is divided among its rows in proportion to their throughput. Placements are taken as they are,
    right or wrong; the verifier judges them. Raises InputError if the file cannot be read, a cell is wrong, or a model
    is not a workload of the instance.
    """
    rows = list(numbered_rows(path, DEPLOYMENT_COLUMNS))
    cells = [_cells(path, line, row, instance) for line, row in rows]
    capacity = [_throughput(instance, *cell[3:]) for cell in cells]
    gpus: dict[tuple[int, int], list[Slice]] = {}
    for (line, _), cell, share in zip(rows, cells, _shares([cell[3] for cell in cells], capacity), strict=True):
        with refused(f"{path}:{line}"):
            gpus.setdefault(cell[:2], []).append(_slice(instance, share, *cell[2:]))
    return Plan(
        version=1,
        instance=instance.name,
        method="parvagpu deployment map",
        gpus=tuple(PlannedGpu(gpu=GPU, mig=True, slices=tuple(slices)) for slices in gpus.values()),
    )


def _cells(path: FilePath, line: int, row: CsvRow, instance: Instance) -> tuple[int, int, int, str, str, int, int]:
    """Machine, GPU, start, workload, profile, batch and processes in a row of a deployment map."""
    workload = (row["Model"] or "").strip()
    if workload not in instance.workload:
        known = ", ".join(instance.workload)
        problem = f"Model {workload!r} is no workload of {instance.name}"
        raise InputError(f"{path}:{line}: {problem}; there are {known}")
    machine, gpu, start, size, batch, processes = (
        whole(path, line, row, column) for column in DEPLOYMENT_COLUMNS if column != "Model"
    )
    return machine, gpu, start, workload, profile_names().get(size, f"{size}g"), batch, processes


def _slice(instance: Instance, share: float, start: int, workload: str, profile: str, batch: int,
           processes: int) -> Slice:
    rate = instance.planned_rps(instance.workload[workload]) * share
    replica = Replica(workload=workload, batch=batch, processes=processes, rate_rps=rate)
    return Slice(profile=profile, start=start, replicas=(replica,))


def _throughput(instance: Instance, workload: str, profile: str, batch: int, processes: int) -> float:
    """The throughput of a map's row in requests/s; 0 if its operating point is unknown."""
    model = instance.workload[workload].model
    data = instance.performance_of(GPU, model, profile)
    prediction = data.predict(profile, [Member(model, batch, processes, 1.0)])[0] if data else None
    return prediction.throughput_rps if prediction else 0.0


def _shares(workloads: Sequence[str], capacity: Sequence[float]) -> list[float]:
    """The fraction of its workload's rate that each row carries.

    Fractions are in proportion to ``capacity``; the rows of a workload without any known capacity carry equal
    fractions.
    """
    total: defaultdict[str, float] = defaultdict(float)
    rows = Counter(workloads)
    for workload, one in zip(workloads, capacity, strict=True):
        total[workload] += one
    return [
        one / total[workload] if total[workload] else 1 / rows[workload]
        for workload, one in zip(workloads, capacity, strict=True)
    ]


def _profiles(folder: FilePath) -> list[Path]:
    """The profile tables in a folder, sorted by model."""
    paths = sorted((Path(folder) / "prof_data").glob("*.csv"))
    if not paths:
        raise InputError(f"{folder}: no prof_data/*.csv in there; name the folder that holds prof_data")
    return paths


def _table(path: FilePath) -> MeasuredModel:
    """The measured rows of one model; throughput is per process in the file, and of all processes in the result."""
    profiles = profile_names()
    points = []
    for line, row in numbered_rows(path, PROFILE_COLUMNS):
        size, batch, processes = (whole(path, line, row, column) for column in PROFILE_COLUMNS[:3])
        per_process, latency_s = (number(path, line, row, column) for column in PROFILE_COLUMNS[3:])
        if size not in profiles:
            raise InputError(f"{path}:{line}: Mig instance {size} is no A100 size; use 1, 2, 3, 4 or 7")
        if per_process > 0 and latency_s > 0:
            points.append((profiles[size], batch, processes, per_process * processes, latency_s * 1000))
    if not points:
        raise InputError(f"{path}: no row with a throughput and a latency above 0")
    with refused(path):
        return MeasuredModel(points=points)


def _row(path: FilePath, row: int) -> list[float | None]:
    """The numbers in one row (counted from 1) of a table without header; None for N/A."""
    lines = read_text(path).splitlines()
    if not 1 <= row <= len(lines):
        raise InputError(f"--slo-row {row}: {path} has rows 1 to {len(lines)}; choose one of these")
    cells = [cell.strip() for cell in lines[row - 1].split(",")]
    return [None if cell == "N/A" else parsed(path, row, "SLO or rate", cell) for cell in cells]


class ParvaGpu(Source):
    """A folder of ParvaGPU's artefact."""

    path: str = operand("DIR", "the file to read")
    slo_row: int | None = local(None, "N", "row of SLO/*.csv, from 1 (S1 is 1)")
    safety: Fraction = local(1.0, "S", "part of SLO/2 to use")
    price: NonNegative | None = local(None, "P", "price of a GPU per hour")
    share_slices: Flag = local(False, None, "let workloads share slices, by the fitted network that ships")

    def read(self) -> Imported:
        """Read the tables, or a scenario."""
        if self.slo_row is None:
            return Imported(import_tables(self.path))
        scenario = import_scenario(self.path, self.slo_row, self.safety, self.price)
        return Imported(sharing(scenario) if self.share_slices else scenario)


IMPORTER = Importer("profile tables, with --slo-row a whole scenario", ParvaGpu)
