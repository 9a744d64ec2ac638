"""Laws of interference: the performance models of shared GPUs in one common form for planning.

A replica at an operating point runs beside n - 1 neighbours, whose demands for two resources sum up to C and P. It
needs
  (base + kernels delay(n) + cache_ms C^(1/r) + power_ms P^(1/r)) / clock(P + its own)
of the time that its SLO and rate leave it. With iGniter's model (TPDS 2022, eqs. 1-11) the resources are the L2 cache
and power, and power only lowers the clock: r = 1 and power_ms = 0. With co-location data they are the two resources
that the fit found: ``cache`` and ``power_w`` are then the demands d^r for each, and kernels and clock have no effect.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Record, Records
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance import colocation, igniter
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.shared_gpus import shares_of, units_of

RESOURCES = 2
"""The number of shared resources that the search for sets of replicas supports."""


class Grid(NamedTuple):
    """All operating points of a model, as arrays (units, batches).

    ``base_ms`` to ``power_w`` are as in the law. ``alone_ms`` is the time of a batch alone; it is infinite where no
    clock remains. While one batch runs, the next is loaded for ``load_ms``. A batch occupies its replica ``after_ms``
    longer than it runs; the value is negative where the other times include the loading. ``burden`` estimates the
    relative slowdown of the point's neighbours.
    """

    batch: Floats
    base_ms: Floats
    kernels: Floats
    cache_ms: Floats
    power_ms: Floats
    cache: Floats
    power_w: Floats
    alone_ms: Floats
    load_ms: Floats
    after_ms: Floats
    burden: Floats


GPU = np.dtype([(name, np.float64) for name in (
    "unit_share", "root", "delay_slope_ms", "delay_intercept_ms", "idle_w", "cap_w", "clock_loss", "usual_cache",
    "usual_w", "slows_cache", "slows_w")])
"""The scalars of a GPU type in the law.

``root`` is 1 / r. ``clock_loss`` is the part of the clock that is lost per W above the power cap. ``usual_cache`` and
``usual_w`` are typical demands of a replica for the two resources. ``slows_cache`` and ``slows_w`` are how much a unit
of each demand slows a neighbour, as a fraction. These four only guide searches.
"""

Law = tuple[dict[str, Grid], Records]
"""How models slow each other down on a GPU type: the Grid of each model, and one record GPU."""


def law_of(data: PerformanceFile, models: Collection[str], partly_filled: bool
           ) -> tuple[dict[str, Grid], Records, int, int]:
    """The Law of performance data, with the grids of those ``models`` that the data knows, or of one model if it knows
    none; the GPU's units, and the most replicas that it holds.

    If batches may be ``partly_filled``, the demands of a point are the highest of all batches up to its own batch.

    Raises
    ------
    InputError
        If co-location data has more than two resources.
    """
    known = [model for model in data.models if model in models] or list(data.models)[:1]
    if isinstance(data, igniter.IgniterProfiles):
        grids, gpu = _igniter_law(data, known, partly_filled)
    elif isinstance(data, colocation.Colocation):
        grids, gpu = _colocation_law(data, known)
    else:
        raise NotImplementedError(f"no law of interference for performance data {data.name}")
    limit = units_of(float(gpu[0].unit_share))
    return ({model: Grid(*np.broadcast_arrays(*grid)) for model, grid in grids.items()}, gpu, limit,
            min(limit, gpu_type(data.gpu).slice_mps_clients(WHOLE)))


def slowed_ms(gpu: Record, busy_ms: Floats, power_w: Floats) -> Floats:
    """Times in ms at the clock that replicas with a power of ``power_w`` W above idle leave, from times at full clock;
    infinite where no clock remains.
    """
    clock = 1 - gpu.clock_loss * np.maximum(gpu.idle_w + power_w - gpu.cap_w, 0)
    return np.divide(busy_ms, clock, out=np.full_like(busy_ms, np.inf), where=clock > 0)


def _igniter_law(data: igniter.IgniterProfiles, models: Collection[str], partly_filled: bool) -> Law:
    """iGniter's model as a Law."""
    hardware = data.hardware
    clock_loss = -hardware.clock_slope_mhz_per_w / hardware.max_clock_mhz
    gpu = _record(hardware.unit_share, 1.0, hardware.scheduling_slope_ms, hardware.scheduling_intercept_ms,
                  hardware.idle_power_w, hardware.power_cap_w, clock_loss, 0.1, 30.0, 0.2, clock_loss)
    sensitivity = float(np.mean([one.cache_sensitivity for one in data.models.values()]))
    grids = {}
    for model in models:
        terms = igniter.solo_terms(data, model, *_axes(hardware.unit_share, data.max_batch))
        if partly_filled:
            terms = igniter.most_demanding(terms, axis=1)
        base_ms = terms.scheduling_ms + terms.active_ms
        grids[model] = Grid(
            batch=terms.batch,
            base_ms=base_ms,
            kernels=terms.kernels,
            cache_ms=terms.active_ms * terms.cache_sensitivity,
            power_ms=np.zeros_like(base_ms),
            cache=terms.cache,
            power_w=terms.power_w,
            alone_ms=slowed_ms(gpu[0], base_ms, terms.power_w),
            load_ms=terms.load_ms,
            after_ms=terms.feedback_ms,
            burden=sensitivity * terms.cache + clock_loss * terms.power_w,
        )
    return grids, gpu


def _colocation_law(data: colocation.Colocation, models: Collection[str]) -> Law:
    """A co-location file as a Law. If it has fewer than two resources, the demands and slopes of the others are 0.

    A smaller batch never demands more, so partly filled batches need no care.
    """
    if data.resources > RESOURCES:
        raise InputError(
            f"performance data {data.name}: models have {data.resources} shared resources; plans can be searched with "
            f"up to {RESOURCES}, so fit again with fewer"
        )
    terms = {model: colocation.solo_terms(data, model, *_axes(data.unit_share, data.max_batch)) for model in models}
    lacking = [(0, 0), (0, 0), (0, RESOURCES - data.resources)]
    demand = {model: np.pad(one.demand, lacking) for model, one in terms.items()}
    slope_ms = {model: np.pad(one.slope_ms, lacking) for model, one in terms.items()}
    slows = np.mean([slope_ms[model] / one.solo_ms[..., None] for model, one in terms.items()], axis=(0, 1, 2))
    usual = np.mean(list(demand.values()), axis=(0, 1, 2))
    grids = {
        model: Grid(
            batch=one.batch,
            base_ms=one.solo_ms,
            kernels=np.zeros_like(one.solo_ms),
            cache_ms=slope_ms[model][..., 0],
            power_ms=slope_ms[model][..., 1],
            cache=demand[model][..., 0],
            power_w=demand[model][..., 1],
            alone_ms=one.solo_ms,
            load_ms=one.overlap_ms,
            after_ms=-one.overlap_ms,
            burden=demand[model] ** (1 / data.norm_order) @ slows,
        )
        for model, one in terms.items()
    }
    # A 0 means that no replica demands the resource, so any scale is right.
    guides = (np.where(pair > 0, pair, 1.0) for pair in (usual, slows))
    return grids, _record(data.unit_share, 1 / data.norm_order, *np.zeros(5), *np.concatenate([*guides]))


def _record(*scalars: float) -> Records:
    """(1,) the record GPU with some values."""
    return np.rec.array([scalars], GPU)


def _axes(unit_share: float, max_batch: int) -> tuple[Floats, Floats]:
    """All batches, and all SM shares as a column."""
    return np.arange(1.0, max_batch + 1), shares_of(unit_share)[:, None]
