"""Reads profile tables, ParvaGPU's or a user's, as points to fit; also reads and writes lists of points to measure."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from provision.instances.files.csv_cells import CsvRow, number, numbered_rows, parsed, text, whole
from provision.instances.files.files import FilePath, read_text
from provision.instances.importers.csv_table import NEEDED, import_csv, parse_columns
from provision.instances.importers.parvagpu import GPU, PROFILE_COLUMNS, profile_names
from provision.models.base.errors import InputError
from provision.models.base.register import did_you_mean
from provision.models.fitting.profile_points import Key, ProfilePoints, profile_points
from provision.models.hardware.gpu import gpu_type

POINT_COLUMNS = ("profile", "batch", "processes")
MOST_FACTOR = 1.5
"""The largest ratio between the latency column and the batch time that follows from the throughput."""

ROUNDING_S = 0.001
"""The value of the last digit of the latency column, in seconds."""


class Profile(NamedTuple):
    """The rows of one model: ``keys`` are (profile name, batch, processes), ``points`` the same rows as arrays."""

    keys: tuple[Key, ...]
    points: ProfilePoints


def read_profiles(path: FilePath, gpu: str = GPU) -> dict[str, Profile]:
    """Read profiles by model from a table, or from all tables of a folder or of its ``prof_data``.

    Tables have ParvaGPU's columns, or the columns of ``provision import csv`` (profile, batch, processes, latency_ms,
    model).

    In ParvaGPU's tables a batch takes 1000 * batch / throughput of one process, in ms. The latency column has fewer
    digits; it only has to agree with this time. Zeros mean out of memory. Slices are named by their profile, and on
    ParvaGPU's GPU type also by their size in GPCs. Raises InputError if there is no table, or a table cannot be used.
    """
    found: dict[str, Profile] = {}
    for table in _tables(Path(path)):
        profiles = _own(table, gpu) if _is_own(table) else {table.stem: _profile(table, gpu)}
        if twice := sorted(found.keys() & profiles):
            raise InputError(f"{table}: {twice[0]} stands in another table too; keep one")
        found |= profiles
    return found


def read_points(path: FilePath, gpu: str = GPU) -> list[Key]:
    """Read points, as (profile name, batch, processes), from lines like ``1g.10gb,8,2`` or ``1,8,2``. Raises InputError
    if the file cannot be read or has no points, or a line is not a point of the GPU type.
    """
    lines = [(line, text.strip()) for line, text in enumerate(read_text(path).splitlines(), start=1)]
    points = [_point(path, line, text, gpu) for line, text in lines if text and text != ",".join(POINT_COLUMNS)]
    if not points:
        raise InputError(f"{path}: has no points; write lines like 1g.10gb,8,2 for {', '.join(POINT_COLUMNS)}")
    return points


def points_text(keys: Iterable[Key]) -> str:
    """The text of a file that lists points to measure, as ``read_points`` reads it."""
    return "".join(",".join(map(str, row)) + "\n" for row in (POINT_COLUMNS, *keys))


def _tables(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    tables = sorted((path / "prof_data").glob("*.csv")) or sorted(path.glob("*.csv"))
    if not tables:
        raise InputError(f"{path}: no *.csv in there nor in its prof_data; name the folder of the profile tables")
    return tables


def _is_own(path: Path) -> bool:
    """Whether a table's header has the columns of ``provision import csv``."""
    header = read_text(path).partition("\n")[0]
    return set(NEEDED) <= {name.strip() for name in header.split(",")}


def _own(path: Path, gpu: str) -> dict[str, Profile]:
    """The profiles by model of a user's own table; if it has no column ``model``, the model has the file's name."""
    models = import_csv(path, gpu, path.stem, parse_columns(""), interpolated=False).models
    return {
        name: Profile(
            tuple(row[:3] for row in model.points),
            profile_points(gpu_type(gpu), model.rows, [row.latency_ms for row in model.points]),
        )
        for name, model in models.items()
    }


def _profile(path: FilePath, gpu: str) -> Profile:
    """The profile in one of ParvaGPU's tables, in which no point may occur twice."""
    rows = {}
    for line, row in numbered_rows(path, PROFILE_COLUMNS):
        key, latency_ms = _row(path, line, row, gpu)
        if key in rows:
            raise InputError(f"{path}:{line}: {_words(key)} stand in there twice; keep one")
        rows[key] = latency_ms
    if np.isnan(list(rows.values())).all():
        raise InputError(f"{path}: no row has a throughput above 0; put measurements in")
    return Profile(tuple(rows), profile_points(gpu_type(gpu), rows, rows.values()))


def _row(path: FilePath, line: int, row: CsvRow, gpu: str) -> tuple[Key, float]:
    """The key and the batch latency in ms (NaN if out of memory) of a row, whose throughput and latency must agree."""
    batch, processes = (whole(path, line, row, column) for column in PROFILE_COLUMNS[1:3])
    per_process_rps, latency_s = (number(path, line, row, column) for column in PROFILE_COLUMNS[3:])
    key = _key(path, line, text(path, line, row, PROFILE_COLUMNS[0]), batch, processes, gpu)
    if per_process_rps == 0 and latency_s == 0:
        return key, np.nan
    batch_s = batch / per_process_rps if per_process_rps else np.inf
    if not batch_s / MOST_FACTOR - ROUNDING_S <= latency_s <= batch_s * MOST_FACTOR + ROUNDING_S:
        raise InputError(
            f"{path}:{line}: Throughput {per_process_rps:g} makes a batch of {batch} take {batch_s:.3g} s, which does "
            f"not go with Latency {latency_s:g}; give requests/s of one process and seconds"
        )
    return key, 1000 * batch_s


def _point(path: FilePath, line: int, point: str, gpu: str) -> Key:
    """The key in a line of a file of points."""
    cells = [cell.strip() for cell in point.split(",")]
    if len(cells) != len(POINT_COLUMNS):
        raise InputError(f"{path}:{line}: {point!r} is no {','.join(POINT_COLUMNS)}; write a line like 1g.10gb,8,2")
    batch, processes = (parsed(path, line, *cell) for cell in zip(POINT_COLUMNS[1:], cells[1:], strict=True))
    return _key(path, line, cells[0], batch, processes, gpu)


def _key(path: FilePath, line: int, profile: str, batch: float, processes: float, gpu: str) -> Key:
    """A point with its profile's full name; on ParvaGPU's GPU type a profile may be given by its size in GPCs."""
    sizes = {str(size): name for size, name in profile_names().items()} if gpu == GPU else {}
    name, known = sizes.get(profile, profile), gpu_type(gpu).profiles
    if name not in known:
        there = [f"{size} ({one})" for size, one in sizes.items()] or list(known) or ["another --gpu"]
        raise InputError(
            f"{path}:{line}: {gpu} has no MIG profile {profile!r}; use one of {', '.join(there)}"
            f"{did_you_mean(profile, known)}"
        )
    for what, count in (("batch", batch), ("processes", processes)):
        if count < 1 or count != int(count):
            raise InputError(f"{path}:{line}: {what} {count:g} must be a whole number above 0; correct it")
    return name, int(batch), int(processes)


def _words(key: Key) -> str:
    return "{}, batch {}, {} processes".format(*key)
