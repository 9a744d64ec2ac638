"""``provision.what_if``: solves an instance with other rates, SLOs, prices or fleets, and returns a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision.models.problem.executor import executor_of
from provision.models.problem.instance import Instance
from provision.sweeps.grid import made, points_of
from provision.sweeps.run import run
from provision.sweeps.table import Rows


def what_if(
    instance: Instance, vary: Mapping[str, Sequence[float | str] | str], one_at_a_time: bool = False,
    workers: int | None = None, dask: str | None = None,
    method: str = "auto", time_limit_s: float = 60.0, seed: int = 0,
) -> Rows:
    """Solve variations of an instance; returns a row for each.

    Parameters
    ----------
    instance
        The instance to vary.
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
        return Rows(run(instance, points, settings, executor=executor))
