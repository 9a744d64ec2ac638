"""Proposes the few points of a DNN that should be measured first, or next, since profiling costs GPU time."""

import numpy as np

from provision.models.base.errors import InputError
from provision.models.fitting.closed_network import roomy
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.few_points import LEAST_POINTS, fit_few
from provision.models.fitting.profile_points import Key, ProfilePoints, profile_points
from provision.models.hardware.gpu import GpuType

BATCHES = 2 ** np.arange(9)
PROCESSES = np.arange(1, 6)


def propose(gpu: GpuType, family: str, count: int, dnn: str | None = None) -> list[Key]:
    """The points to measure of a new DNN, sorted by profile.

    Candidates are those of `_grid` at which every known DNN fits into the memory. A point that runs out of memory would
    tell little.

    Parameters
    ----------
    gpu
        The GPU type.
    family
        The name of the Family to fit.
    count
        The number of points.
    dnn
        The name of the DNN if its network ships; its own network is then not used.

    Raises
    ------
    InputError
        If there are fewer candidates than ``count``, or ``count`` is too small for a fit (``few_points``).
    """
    (keys, points), known = _grid(gpu), population(dnn)
    likely = np.flatnonzero(roomy(points, known))
    if not LEAST_POINTS <= count <= len(likely):
        raise InputError(f"--propose {count}: choose from {LEAST_POINTS} to {len(likely)} points")
    chosen = FAMILIES[family].choose(points.take(likely), count, known)
    return [keys[likely[at]] for at in sorted(chosen)]


def propose_further(gpu: GpuType, keys: list[Key], measured: ProfilePoints, count: int, dnn: str | None = None
                    ) -> list[Key]:
    """The points to measure next: those that would narrow the bands of a closed network most that is fitted to the
    points measured so far, the most telling first.

    Candidates are those of `_grid` that were not measured and at which the fitted network fits into the memory.

    Parameters
    ----------
    gpu, count, dnn
        See `propose`.
    keys, measured
        The points measured so far.

    Raises
    ------
    InputError
        If too few points were measured, or there are fewer candidates than ``count``.
    """
    taken = np.flatnonzero(measured.measured)
    if len(taken) < LEAST_POINTS:
        raise InputError(f"--propose: {len(taken)} points of {dnn} were measured; measure {LEAST_POINTS} first")
    fitted, (every, points) = fit_few(measured, taken, population(dnn)), _grid(gpu)
    fits = fitted.network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    open_points = np.flatnonzero(fits & np.array([key not in keys for key in every]))
    if not 1 <= count <= len(open_points):
        raise InputError(f"--propose {count}: choose from 1 to {len(open_points)} points of {dnn}")
    return [every[open_points[at]] for at in fitted.telling(points.take(open_points), count)]


def _grid(gpu: GpuType) -> tuple[list[Key], ProfilePoints]:
    """All points on plain MIG profiles with batch sizes up to 256 and up to 5 processes."""
    profiles = [profile.name for profile in gpu.profiles.values() if profile.variant == "plain"]
    keys = [(profile, int(batch), int(count)) for profile in profiles for batch in BATCHES for count in PROCESSES]
    return keys, profile_points(gpu, keys, np.full(len(keys), np.nan))
