"""Kinds of data in tables or coefficients: measured tables (ParvaGPU), iGniter's equations 1 to 11 for models beside
each other under MPS, each on a share of the SMs, and co-location, fitted to measured pairs (docs/co-location.md). The
memory of a process is linear between the points in a file.
"""

import numpy as np
from numpy.typing import NDArray

from ..nvidia import gpu_type
from ..records import Replica, Slice, Tree, UndecidedError

Floats = NDArray[np.float64]
MIB_PER_GIB = 1024


def stated_gib(model: Tree, batch: int) -> float | None:
    """The GiB of a process with batches of this size; None if the file states none."""
    points = model.get("memory_mib") or []
    if not points:
        return None
    below = [point for point in points if point[0] <= batch]
    above = [point for point in points if point[0] >= batch]
    if not below:
        mib = float(points[0][1])
    elif not above:
        mib = float(below[-1][1]) * batch / below[-1][0]
    else:
        (small, less), (large, more) = below[-1], above[0]
        mib = float(less) if large == small else less + (more - less) * (batch - small) / (large - small)
    return mib / MIB_PER_GIB


def measured_times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The batch times of the only replica on a slice.

    A batch size that was not measured takes the longer time of the two measured sizes around it; with
    ``between_batches`` it is interpolated linearly and lengthened by the margin. A size below all measured ones takes
    as long as the smallest.
    """
    if len(piece.replicas) != 1:
        raise UndecidedError("measured tables do not say what several replicas on a slice do to each other")
    (replica,) = piece.replicas
    if replica.share != 1:
        raise UndecidedError(f"measured tables do not describe an SM share of {replica.share:.4g}")
    rows = sorted(
        (int(batch), float(latency), 1000 * int(batch) * int(processes) / float(rps))
        for profile, batch, processes, rps, latency in data["models"][replica.model]["points"]
        if profile == piece.profile and int(processes) == replica.processes
    )
    between = data.get("between_batches")
    sizes = [batch for batch, *_ in rows]
    if not rows or replica.batch > sizes[-1] or (replica.batch not in sizes and
                                                 (between is None or replica.batch < sizes[0])):
        raise UndecidedError(f"batch {replica.batch} with {replica.processes} processes on {piece.profile} "
                             f"of {replica.model} was not measured")
    batches = np.arange(1, replica.batch + 1)
    margin = 1 + float(between["margin"]) if between else None
    columns = (np.array([row[1] for row in rows]), np.array([row[2] for row in rows]))
    answer, hold = (_filled(batches, np.array(sizes), column, margin) for column in columns)
    return [(answer, hold, None)]


def _filled(batches: NDArray[np.int64], sizes: NDArray[np.int64], column: Floats, margin: float | None) -> Floats:
    """A time for each of ``batches``, from the times ``column`` of the measured batch ``sizes``, by the rules in
    ``times``. Without a ``margin``, times are not interpolated.
    """
    above = np.searchsorted(sizes, batches)
    below = np.maximum(np.where(sizes[above] == batches, above, above - 1), 0)
    if margin is None:
        return np.maximum(column[above], column[below])
    exact = (sizes[above] == batches) | (batches < sizes[0])
    return np.where(exact, column[above], margin * np.interp(batches, sizes, column))


def _alone_on_share(model: Tree, replica: Replica) -> tuple[Floats, Floats, Floats]:
    """The active time (eq. 11, ms), power (W) and L2 utilisation of a replica without neighbours.

    Each is an array with one element per batch size, from 1 to the replica's batch.
    """
    batch = np.arange(1, replica.batch + 1, dtype=float)
    work = model["k1_ms"] * batch**2 + model["k2_ms"] * batch + model["k3_ms"]
    active = work / (replica.share + model["k4_share"]) + model["k5_ms"]
    ability = 1000 * batch / active
    power = model["power_w_per_rps"] * ability + model["power_base_w"]
    cache = model["cache_per_rps"] * ability + model["cache_base"]
    return active, power, cache


def igniter_times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The batch times of all replicas. Each neighbour counts with the most power, and the most cache, of any of its
    batches.
    """
    hardware, models = data["hardware"], data["models"]
    if any(one.processes != 1 or one.batch > data["max_batch"] for one in piece.replicas):
        raise UndecidedError(f"only one process per replica and batches up to {data['max_batch']} are described")
    alone = [_alone_on_share(models[one.model], one) for one in piece.replicas]
    many = len(piece.replicas)
    waiting = hardware["scheduling_slope_ms"] * many + hardware["scheduling_intercept_ms"] if many > 1 else 0.0
    bus = hardware["pcie_gb_per_s"] * 1e6  # bytes per ms
    found: list[tuple[Floats, Floats, float | None]] = []
    for at, replica in enumerate(piece.replicas):
        model = models[replica.model]
        active, power, _ = alone[at]
        others = [one for k, one in enumerate(alone) if k != at]
        demand = hardware["idle_power_w"] + power + sum(float(watt.max()) for _, watt, _ in others)
        over = np.maximum(demand - hardware["power_cap_w"], 0)
        clock = hardware["max_clock_mhz"] + hardware["clock_slope_mhz_per_w"] * over
        if (clock <= 0).any():
            raise UndecidedError("the power that eq. 10 asks for leaves no clock in eq. 9")
        slower = 1 + model["cache_sensitivity"] * sum(float(used.max()) for _, _, used in others)
        launched = model["kernels"] * (model["kernel_delay_ms"] + waiting)
        run = (launched + active * slower) * hardware["max_clock_mhz"] / clock
        batch = np.arange(1, replica.batch + 1)
        hold = run + model["feedback_bytes"] * batch / bus
        found.append((hold + model["load_bytes"] * batch / bus, hold, stated_gib(model, replica.batch)))
    return found


def _alone_ms(solo: Tree, replica: Replica, sms: int) -> Floats:
    """The times alone of batches of 1 up to the replica's size: fixed parts, parts divided by the share, and whole
    waves.
    """
    batch = np.arange(1, replica.batch + 1, dtype=float)
    shared = (solo["fixed_work_ms"] + solo["request_work_ms"] * batch) / replica.share
    taken: Floats = solo["fixed_ms"] + solo["request_ms"] * batch + shared
    for wave in solo.get("waves") or []:
        # The tolerance keeps a wave that fits exactly from counting as two by rounding.
        taken = taken + wave["ms"] * np.ceil(batch * wave["sms_per_request"] / (replica.share * sms) - 1e-9)
    return taken


def _demand(model: Tree, replica: Replica, half: float) -> Floats:
    """The demand of a replica for each shared resource at its planned batch; smaller batches demand less."""
    load = replica.share * replica.batch / (replica.batch + half)
    return np.array(model["base_demand"], float) + np.array(model["load_demand"], float) * load


def colocation_times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The batch times of all replicas beside neighbours with their planned batches; smaller batches demand less."""
    if any(one.processes != 1 or one.batch > data["max_batch"] for one in piece.replicas):
        raise UndecidedError(f"only one process per replica and batches up to {data['max_batch']} are described")
    known = gpu_type(piece.gpu_type)
    if known is None:
        raise UndecidedError(f"SMs of {piece.gpu_type} are not known")
    order = float(data.get("norm_order", 2))
    models = [data["models"][one.model] for one in piece.replicas]
    demands = [_demand(model, one, data["half_load_batch"]) for model, one in zip(models, piece.replicas, strict=True)]
    found: list[tuple[Floats, Floats, float | None]] = []
    for at, (model, replica) in enumerate(zip(models, piece.replicas, strict=True)):
        beside = [one for k, one in enumerate(demands) if k != at]
        joined = np.sum([one**order for one in beside], axis=0) ** (1 / order) if beside else np.zeros(len(demands[at]))
        alone = _alone_ms(model["solo"], replica, known.sms)
        stretch, wait = np.array(model["stretch"], float), np.array(model["wait_ms"], float)
        taken = alone * (1 + stretch @ joined) + wait @ joined
        batch = np.arange(1, replica.batch + 1)
        found.append((taken, taken - model.get("overlap_ms", 0.0) * batch, stated_gib(model, replica.batch)))
    return found
