"""Proposes the few points of a new DNN that should be measured, since profiling costs GPU time."""

from __future__ import annotations

import numpy as np

from provision.models.base.errors import InputError
from provision.models.fitting.closed_network import roomy
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.few_points import LEAST_POINTS
from provision.models.fitting.profile_points import profile_points
from provision.models.hardware.gpu import GpuType

BATCHES = 2 ** np.arange(9)
PROCESSES = np.arange(1, 6)


def propose(gpu: GpuType, family: str, count: int, dnn: str | None = None) -> list[tuple[str, int, int]]:
    """The points to measure, as (profile name, batch, processes), sorted by profile.

    Candidates are all points on plain MIG profiles with batch sizes up to 256 and up to 5 processes at which every
    known DNN fits into the memory. A point that runs out of memory would tell little.

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
    profiles = [profile.name for profile in gpu.profiles.values() if profile.variant == "plain"]
    keys = [(profile, int(batch), int(count)) for profile in profiles for batch in BATCHES for count in PROCESSES]
    points, known = profile_points(gpu, keys, np.full(len(keys), np.nan)), population(dnn)
    likely = np.flatnonzero(roomy(points, known))
    if not LEAST_POINTS <= count <= len(likely):
        raise InputError(f"--propose {count}: choose from {LEAST_POINTS} to {len(likely)} points")
    chosen = FAMILIES[family].choose(points.take(likely), count, known)
    return [keys[likely[at]] for at in sorted(chosen)]

