"""What if traffic, SLOs, prices or the fleet were different: one call from an instance to the table of a sweep."""

from provision.sweeps.grid import made, points_of
from provision.sweeps.run import run


def what_if(instance, vary, one_at_a_time=False, workers=1, method="auto", time_limit_s=60.0, seed=0):
    """Solve variations of an instance.

    Parameters
    ----------
    instance
        The Instance.
    vary
        Values by parameter (``provision.sweeps.parameters``): ``{"rate": [0.8, 1.0, 1.2]}`` or
        ``{"rate": "0.8:1.2:0.2", "price.t4": "0.4,0.5"}``.
    one_at_a_time
        Vary each parameter with the others as they are, not every combination.
    workers
        Processes to solve with.
    method, time_limit_s, seed
        As for ``solve``, for each point.

    Returns
    -------
    list of dict
        One row per point: its parameters, then status, objective, bound, gap, GPUs and cost.

    Raises
    ------
    InputError
        For an unknown parameter or a value that it cannot take.
    """
    settings = {"method": method, "time_limit_s": time_limit_s, "seed": seed}
    return run(instance, points_of(made(vary, one_at_a_time)), settings, workers=workers)
