"""Runs a sweep: solves every point and verifies its plan.

Neighbouring points form a chunk, and an executor may run several chunks at once. The points of a chunk are solved one
after another. Each search begins with the plan of the point before, mended if it is not valid. The number of workers
does not change the chunks, and so it does not change the table.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from provision.instances.files.files import FilePath
from provision.instances.read import read
from provision.models.base.clock import present_stop
from provision.models.base.errors import InputError, MethodError
from provision.models.plans.result import Result
from provision.models.problem.executor import IN_PROCESS, Executor, executor_of, shared
from provision.models.problem.instance import Instance
from provision.solving.methods import method as find_method
from provision.solving.solve import solve
from provision.sweeps.parameters import changed, find, made, points_of
from provision.sweeps.table import Rows, TableRow

Settings = Mapping[str, Any]
"""The keyword arguments of ``solve``: method, time_limit_s, seed."""

CHUNK = 8
PLAIN = {"auto": {"slack": "no"}}
"""The parameters of methods in sweeps. ``auto`` need not distribute slack, since tables show only costs."""
NOT_APPLICABLE = "not applicable"
FAILED = "failed"
"""The status of a point at which the method returned something that cannot be: a defect of the method."""
COLUMNS = ("status", "objective", "bound", "gap", "gpus", "gpcs", "cost_per_hour", "plan_gpus", "reason")


def untold(row: TableRow) -> None:
    """Tell nobody of a row."""


def run(
    instance: Instance,
    points: Sequence[dict[str, float | str]],
    settings: Settings,
    done: Mapping[int, list[TableRow]] | None = None,
    tell: Callable[[int, list[TableRow]], None] = lambda number, rows: None,
    executor: Executor = IN_PROCESS,
    solved: Callable[[TableRow], None] = untold,
) -> list[TableRow]:
    """Solve the points of a sweep.

    Parameters
    ----------
    instance
        The instance that is varied.
    points
        The points, each a dictionary ``{name: value}``, as ``grid.points_of`` makes them.
    settings
        Keyword arguments of ``solve``: method, time_limit_s, seed.
    done
        The rows of chunks that are done already, ``{chunk number: rows}``.
    tell
        A function that is called with (chunk number, rows) when a chunk is done; chunks may end in any order.
    executor
        Where chunks are solved. A chunk whose workers died is solved in this process.
    solved
        A function that is called there with each row; in a chunk the last point comes first.

    Returns
    -------
    list of dict
        One row per point, in order: the parameters, then COLUMNS. A point that is impossible for the instance, for
        example without data, or that the method cannot solve has the status ``not applicable`` and a reason; one at
        which the method contradicts itself has the status ``failed`` and a reason.

    Raises
    ------
    InputError
        Before any work: if a parameter is unknown, or if no point can be solved at all; the message then tells why the
        first point cannot.
    """
    for name in {name: None for point in points for name in point}:
        find(name, instance)
    if points and all(_refused(instance, point, settings) for point in points):
        raise InputError(_refused(instance, points[0], settings))
    chunks = [points[at : at + CHUNK] for at in range(0, len(points), CHUNK)]
    found = dict(done or {})
    left = [number for number in range(len(chunks)) if number not in found]
    for where in (executor, IN_PROCESS):
        given = where.share(instance)
        tasks = [(number, given, chunks[number], settings, solved) for number in left if number not in found]
        for _, (number, rows) in where.results(chunk_rows, tasks):
            found[number] = rows
            tell(number, rows)
    return [row for number in range(len(chunks)) for row in found[number]]


def digest(instance: Instance, points: Sequence[dict[str, float | str]], settings: Settings) -> str:
    """The SHA-256, in hexadecimal, of everything on which a table depends."""
    text = json.dumps([instance.digest, points, sorted(settings.items())], default=str)
    return sha256(text.encode()).hexdigest()


def chunk_rows(
    number: int, given: Any, points: Sequence[dict[str, float | str]], settings: Settings,
    tell: Callable[[TableRow], None] = untold,
) -> tuple[int, list[TableRow]]:
    """(number, the rows of a chunk). The points are solved from the last to the first, since a plan for higher rates is
    valid for lower rates too.
    """
    rows: list[TableRow] = []
    instance, last = shared(given), None
    for point in reversed(points):
        found = {**point, **dict.fromkeys(COLUMNS)}
        if why := _refused(instance, point, settings):
            found |= {"status": NOT_APPLICABLE, "reason": why}
        else:
            try:
                result = solved(changed(instance, point), settings, start=last, **PLAIN.get(settings["method"], {}))
                last, found = result.plan or last, found | row(result)
            except MethodError as error:
                last, found = None, found | {"status": FAILED, "reason": str(error)}
        rows.append(found)
        tell(found)
    return number, rows[::-1]


def _refused(instance: Instance, point: Mapping[str, float | str], settings: Settings) -> str:
    """The reason why the method cannot solve a point; empty if it can."""
    try:
        find_method(settings["method"]).check(changed(instance, point))
    except InputError as error:
        return error.lines[0]
    return ""


def solved(instance: Instance, settings: Settings, **rest: Any) -> Result:
    """Solve an instance; unlike in ``solve``, Ctrl-C does not return the best plan so far.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, which should end the whole sweep and not just the present point.
    """
    result = solve(instance, **settings, replay=False, **rest)
    if result.termination == "stopped" or present_stop().asked:
        raise KeyboardInterrupt
    return result


def row(result: Result) -> TableRow:
    """The row of a table for a Result, by column."""
    summary = result.summary()
    counts = Counter(gpu.gpu for gpu in result.plan.gpus) if result.plan else {}
    summary["plan_gpus"] = " ".join(f"{name}:{counts[name]}" for name in sorted(counts))
    return {column: summary[column] for column in COLUMNS}


def what_if(instance: Instance | FilePath, vary: Mapping[str, Sequence[float | str] | str],
            one_at_a_time: bool = False, workers: int | None = None, dask: str | None = None, method: str = "auto",
            time_limit_s: float = 60.0, seed: int = 0) -> Rows:
    """Solve variations of an instance; returns a row for each.

    Parameters
    ----------
    instance
        The Instance to vary, its shipped name or its path.
    vary
        The values by name of the parameter (see ``provision.sweeps.parameters``): ``{"rate": [0.8, 1.0, 1.2]}`` or
        ``{"rate": "0.8:1.2:0.2", "price.t4": "0.4,0.5"}``.
    one_at_a_time
        Whether each parameter is varied while the others are as in the instance, instead of all combinations.
    workers
        Number of processes here; None or 1 for this process.
    dask
        The address of a Dask scheduler, as ``tcp://host:8786``; its workers then solve the points.
    method, time_limit_s, seed
        Method, time limit and seed of ``solve`` for each point.

    Returns
    -------
    Rows
        A list with one dict per point: its parameters, then status, objective, bound, gap, GPUs and cost;
        ``to_frame()`` gives a pandas frame.

    Raises
    ------
    InputError
        If a parameter is unknown or cannot take a value, or a cluster cannot be reached.
    """
    settings = {"method": method, "time_limit_s": time_limit_s, "seed": seed}
    points = points_of(made(vary, one_at_a_time))
    with executor_of(workers, dask) as executor:
        return Rows(run(read(instance), points, settings, executor=executor))
