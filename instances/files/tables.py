"""Tables of workloads and plans in Parquet or Arrow files, for instances too large to write down as YAML.

A table of workloads has a row per workload; a table of a plan has a row per replica, and a row without a workload for
every slice that has none. Columns are checked as a whole by Arrow's kernels: no row is looked at in Python before the
table is known to be right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticUndefined

from provision.instances.files.files import FilePath, reason, replacing
from provision.models.base.errors import InputError, optional
from provision.models.base.register import did_you_mean
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.workload import LEAST_RPS, Workload

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
"""The ending of Parquet files; all other tables are in Arrow's own file format."""
HEAD = b"provision"
"""The key of a plan's other fields in the metadata of its table."""
BATCH = 65_536
"""Rows that are turned into records at a time."""


class Column(NamedTuple):
    """A column: its type in words, whether every row has a value, and the least and the largest value allowed."""

    type: str
    needed: bool = True
    least: float | None = None
    most: float | None = None
    above: bool = False
    """Whether ``least`` itself is not allowed."""


MOST = 10**9
"""The largest whole number in files."""
TEXT, NUMBER, WHOLE, FLAG = "text", "number", "whole number", "true or false"
WORKLOADS = {
    "name": Column(TEXT), "model": Column(TEXT), "slo_ms": Column(NUMBER, least=0, above=True),
    "rate_rps": Column(NUMBER, least=0), "min_replicas": Column(WHOLE, False, 0, 100),
    "max_replicas": Column(WHOLE, False, 1, 10**6), "max_share_per_gpu": Column(NUMBER, False, 0, 1, above=True),
}
"""The columns of a table of workloads; those that are not needed may be left out."""
PLANS = {
    "gpu": Column(WHOLE, True, 0, MOST), "type": Column(TEXT), "mig": Column(FLAG),
    "slice": Column(WHOLE, True, 0, MOST), "profile": Column(TEXT), "start": Column(WHOLE, True, 0, MOST),
    "workload": Column(TEXT, False),
    "batch": Column(WHOLE, False, 1, MOST), "processes": Column(WHOLE, False, 1, MOST),
    "sm_share": Column(NUMBER, False, 0, 1, above=True), "rate_rps": Column(NUMBER, False, 0),
    "turn": Column(WHOLE, False, 0, MOST), "model": Column(TEXT, False), "node": Column(TEXT, False),
}
"""The columns of a table of a plan."""
PLAIN = PLANS | WORKLOADS
REPLICA, SLICE, GPU = (set(one.model_fields) for one in (Replica, Slice, PlannedGpu))
"""The names of the fields of the parts of plans."""
CONTROL, LONGEST_NAME = r"[\x00-\x1f\x7f]", 200
"""The characters that names must not have, and the most characters of a name, as in YAML."""


def read_workloads(path: FilePath) -> tuple[Workload, ...]:
    """The workloads of a table. Raises InputError when it cannot be read, or columns, types, values or names are wrong.
    """
    table = _checked(path, _read(path), WORKLOADS)
    _refuse_contradictions(path, table)
    _refuse_twice(path, table)
    defaults = {name: field.get_default() for name, field in Workload.model_fields.items()}
    given = {name for name in WORKLOADS if table.column(name).null_count < table.num_rows}
    filled = _filled(table.select([name for name in WORKLOADS if name in given]), defaults)
    return tuple(Workload.of_checked(defaults | row, given) for row in _rows(filled))


def write_workloads(workloads: Sequence[Workload], path: FilePath, force: bool = False) -> None:
    """Write workloads as a table. Raises InputError when the file exists and ``force`` is not set, or cannot be
    written, or a workload has what tables lack.
    """
    plain = set(WORKLOADS)
    for one in workloads:
        more = one.model_dump(exclude_defaults=True).keys() - plain
        if more:
            raise InputError(f"{path}: workload {one.name!r} has {min(more)}, for which tables have no column; "
                             "write YAML")
    _write(path, WORKLOADS, ({name: getattr(one, name) for name in WORKLOADS} for one in workloads), {}, force)


def read_plan_table(path: FilePath) -> Plan:
    """The plan in a table. Raises InputError when it cannot be read, or columns, types or values are wrong."""
    table = _read(path)
    try:
        head = json.loads((table.schema.metadata or {})[HEAD])
    except (KeyError, ValueError):
        raise InputError(f"{path}: is no table of a plan: nothing says which instance it is for; write one with "
                         "`provision solve --out`") from None
    table = _checked(path, table, PLANS)
    _refuse_disorder(path, table)
    _refuse_gaps(path, table)
    rows = _rows(_filled(table, {name: field.get_default() for name, field in Replica.model_fields.items()}))
    gpus = tuple(_gpu(list(several)) for _, several in groupby(rows, itemgetter("gpu")))
    return Plan(**head, gpus=gpus)


def write_plan_table(plan: Plan, path: FilePath, force: bool = False) -> None:
    """Write a plan as a table. Raises InputError when the file exists and ``force`` is not set, or cannot be written.
    """
    head = plan.model_dump(mode="json", exclude={"gpus"}, exclude_none=True)
    _write(path, PLANS, _plan_rows(plan), head, force)


def _plan_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield a row per replica, and a row for every slice without replicas."""
    for at, gpu in enumerate(plan.gpus):
        for number, piece in enumerate(gpu.slices):
            place = {"gpu": at, "type": gpu.gpu, "mig": gpu.mig, "slice": number, "profile": piece.profile,
                     "start": piece.start, "node": gpu.node}
            for one in piece.replicas or (None,):
                yield place | ({} if one is None else dict(one))


def _gpu(rows: list[dict[str, Any]]) -> PlannedGpu:
    """The GPU that the rows of its replicas and empty slices describe."""
    slices = []
    for _, several in groupby(rows, itemgetter("slice")):
        of_slice = list(several)
        replicas = tuple(Replica.of_checked({name: row[name] for name in Replica.model_fields}, REPLICA)
                         for row in of_slice if row["workload"] is not None)
        slices.append(Slice.of_checked({"profile": of_slice[0]["profile"], "start": of_slice[0]["start"],
                                        "replicas": replicas}, SLICE))
    return PlannedGpu.of_checked({"gpu": rows[0]["type"], "mig": rows[0]["mig"], "slices": tuple(slices),
                                  "node": rows[0]["node"]}, GPU)


def _read(path: FilePath) -> pa.Table:
    """The table in a file."""
    with optional():
        import pyarrow as pa
        from pyarrow import feather, parquet
    try:
        if os.fspath(path).endswith(PARQUET):
            return parquet.read_table(path)
        return feather.read_table(path)
    except (OSError, pa.ArrowException) as error:
        text = str(reason(error)).partition("\n")[0]
        raise InputError(f"{path}: cannot be read as a table: {text}; give a Parquet or Arrow file") from None


def _checked(path: FilePath, table: pa.Table, columns: dict[str, Column]) -> pa.Table:
    """The table with all columns, those left out as nulls.

    Raises
    ------
    InputError
        With everything that is wrong, one line each.
    """
    import pyarrow as pa

    wrong = [f"{path}: no column {name!r}; it has: {', '.join(table.column_names)}"
             for name, one in columns.items() if one.needed and name not in table.column_names]
    wrong += [f"{path}: unknown column {name!r}{did_you_mean(name, list(columns))}; columns are: {', '.join(columns)}"
              for name in table.column_names if name not in columns]
    wrong += [f"{path}: column {name!r} stands twice; keep one"
              for name in dict.fromkeys(table.column_names) if table.column_names.count(name) > 1]
    if not wrong:
        faults = {name: _fault(table.column(name), columns[name]) for name in table.column_names}
        wrong = [f"{path}: {name}: {text}" for name, text in faults.items() if text]
    if wrong:
        raise InputError(*wrong)
    if not table.num_rows:
        raise InputError(f"{path}: has no rows; give at least one")
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    table = table.select(list(columns))
    for at, one in enumerate(columns.values()):
        if one.type == NUMBER:
            table = table.set_column(at, table.column_names[at], _floats(table.column(at)))
    return table


def _fault(column: pa.ChunkedArray, wanted: Column) -> str:
    """What is wrong with a column, with its first wrong row; empty if it is right."""
    import pyarrow as pa
    from pyarrow import compute

    given = column.type
    if pa.types.is_dictionary(given):
        given = given.value_type
    able = {TEXT: pa.types.is_string(given) or pa.types.is_large_string(given),
            NUMBER: pa.types.is_floating(given) or pa.types.is_integer(given), WHOLE: pa.types.is_integer(given),
            FLAG: pa.types.is_boolean(given)}
    if not able[wanted.type] and not (pa.types.is_null(given) and not wanted.needed):
        return f"should be of type {wanted.type} (is {column.type})"
    if wanted.needed and column.null_count:
        return f"row {_first(compute.is_null(column))} has no value; fill it"
    if pa.types.is_null(given):
        return ""
    if wanted.type == TEXT:
        texts = column.cast(pa.string())
        bad = compute.or_(compute.match_substring_regex(texts, CONTROL), compute.greater(
            compute.utf8_length(texts), LONGEST_NAME))
        bad = compute.or_(bad, compute.equal(compute.utf8_length(texts), 0))
    else:
        bad = _beyond(column, wanted)
    if bad is None or not compute.any(bad).as_py():
        return ""
    at = _first(bad)
    return f"row {at}: {column[at].as_py()!r} should be {_asked(wanted)}"


def _beyond(column: pa.ChunkedArray, wanted: Column) -> Any:
    """(rows,) whether a number is out of its range, or is none; None where any is allowed."""
    from pyarrow import compute

    if wanted.type == FLAG or wanted.least is None:
        return None
    low, numbers = compute.less_equal if wanted.above else compute.less, _floats(column)
    bad = compute.or_(compute.invert(compute.is_finite(numbers)), low(numbers, float(wanted.least)))
    return bad if wanted.most is None else compute.or_(bad, compute.greater(numbers, float(wanted.most)))


def _floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as floats; whole numbers above 2**53 are rounded."""
    return column.cast("float64", safe=False)


def _asked(wanted: Column) -> str:
    """What a value should be, in words."""
    if wanted.type == TEXT:
        return f"text of 1 to {LONGEST_NAME} characters without control characters"
    most = "" if wanted.most is None else f" and at most {wanted.most:g}"
    return f"a {wanted.type} {'above' if wanted.above else 'of at least'} {wanted.least:g}{most}"


def _first(flags: Any) -> int:
    """The index of the first flag that is set."""
    from pyarrow import compute

    return int(compute.index(compute.fill_null(flags, False), True).as_py())


def _refuse_contradictions(path: FilePath, table: pa.Table) -> None:
    """Refuse rates that are too small but not 0, and a largest number of replicas below the smallest."""
    from pyarrow import compute

    rates = _floats(table.column("rate_rps"))
    small = compute.and_(compute.greater(rates, 0.0), compute.less(rates, LEAST_RPS))
    if compute.any(small).as_py():
        at = _first(small)
        raise InputError(f"{path}: rate_rps: row {at}: should be 0 or at least {LEAST_RPS:g} (got {rates[at]})")
    both = compute.less(table.column("max_replicas").cast("int64"), compute.fill_null(
        table.column("min_replicas").cast("int64"), 1))
    if compute.any(both).as_py():
        raise InputError(f"{path}: max_replicas: row {_first(both)}: is below min_replicas; raise it")


def _refuse_twice(path: FilePath, table: pa.Table) -> None:
    """Refuse a name that stands twice."""
    from pyarrow import compute

    names = table.column("name")
    counts = compute.value_counts(names)
    twice = counts.filter(compute.greater(counts.field("counts"), 1))
    if len(twice):
        name = twice[0]["values"].as_py()
        first = compute.index(names, name).as_py()
        raise InputError(f"{path}: name: {name!r} stands twice, first in row {first}; give every workload its own name")


def _refuse_disorder(path: FilePath, table: pa.Table) -> None:
    """Refuse a plan's table whose GPUs and slices are not in ascending order."""
    gpu, piece = (table.column(name).cast("int64").to_numpy() for name in ("gpu", "slice"))
    back = (gpu[1:] < gpu[:-1]) | ((gpu[1:] == gpu[:-1]) & (piece[1:] < piece[:-1]))
    if back.any():
        raise InputError(f"{path}: gpu: row {int(back.argmax()) + 1} comes after later slices; sort rows by gpu and "
                         "slice")


def _refuse_gaps(path: FilePath, table: pa.Table) -> None:
    """Refuse replicas of a plan's table without batch or rate."""
    from pyarrow import compute

    for name in ("batch", "rate_rps"):
        gaps = compute.and_(compute.is_valid(table.column("workload")), compute.is_null(table.column(name)))
        if compute.any(gaps).as_py():
            raise InputError(f"{path}: {name}: row {_first(gaps)} has no value; fill it")


def _filled(table: pa.Table, defaults: dict[str, Any]) -> pa.Table:
    """The table with default values in place of nulls."""
    from pyarrow import compute

    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if column.null_count and defaults.get(name) not in (None, PydanticUndefined):
            table = table.set_column(at, name, compute.fill_null(column.cast(_types()[PLAIN[name].type]),
                                                                 defaults[name]))
    return table


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as dicts, some batches at a time."""
    for batch in table.to_batches(max_chunksize=BATCH):
        for values in zip(*map(_values, batch.columns), strict=True):
            yield dict(zip(table.column_names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; equal texts are one object."""
    import pyarrow as pa

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return list(column.to_pylist())
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [None if at is None else texts[at] for at in encoded.indices.to_pylist()]


def _write(path: FilePath, columns: dict[str, Column], rows: Iterator[dict[str, Any]], head: dict[str, Any],
           force: bool) -> None:
    """Write rows as a table, some at a time, atomically."""
    with optional():
        import pyarrow as pa
        from pyarrow import parquet
    schema = pa.schema([(name, _types()[one.type]) for name, one in columns.items()],
                       metadata={HEAD: json.dumps(head).encode()} if head else None)
    with replacing(path, force) as temporary:
        parts = (pa.RecordBatch.from_pylist(several, schema) for several in _several(rows))
        if os.fspath(path).endswith(PARQUET):
            with parquet.ParquetWriter(temporary, schema) as writer:
                for part in parts:
                    writer.write_batch(part)
        else:
            with pa.OSFile(os.fspath(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for part in parts:
                    writer.write_batch(part)


def _types() -> dict[str, pa.DataType]:
    """Arrow's types of columns."""
    import pyarrow as pa

    return {TEXT: pa.string(), NUMBER: pa.float64(), WHOLE: pa.int64(), FLAG: pa.bool_()}


def _several(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows, up to BATCH at a time."""
    several: list[dict[str, Any]] = []
    for row in rows:
        several.append(row)
        if len(several) == BATCH:
            yield several
            several = []
    if several:
        yield several
