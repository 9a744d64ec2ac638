"""iGniter's equations 1 to 11: models run beside each other under MPS, each on a share of the SMs."""

import numpy as np
from numpy.typing import NDArray

from ..records import Replica, Slice, Tree, UndecidedError
from .memory import stated_gib

Floats = NDArray[np.float64]


def _alone(model: Tree, replica: Replica) -> tuple[Floats, Floats, Floats]:
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


def times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The batch times of all replicas. Each neighbour counts with the most power, and the most cache, of any of its
    batches.
    """
    hardware, models = data["hardware"], data["models"]
    if any(one.processes != 1 or one.batch > data["max_batch"] for one in piece.replicas):
        raise UndecidedError(f"only one process per replica and batches up to {data['max_batch']} are described")
    alone = [_alone(models[one.model], one) for one in piece.replicas]
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
