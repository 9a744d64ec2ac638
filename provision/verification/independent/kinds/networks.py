"""Closed networks: processes on a MIG slice alternate between their host and the slice, which they share.

A batch of b on c compute slices, with P processes on the slice (launch, host, gpu, ...: the file's coefficients)::

    S = unbatched(b = 1) (gpu_fixed + gpu_per_item b^exponent) (u + (1 - u) ((1 - w) / c + w / m))     time on the slice
    Z = host_per_item b + (L^5 + S^5)^(1/5) - S,   L = launch (1 + contention (P - 1))                 time on the host

u is the unscaled share, w the bandwidth share, and m the power of two at or above c. If P processes of one model are
always busy, the batch time T is the larger root of (T - Z - S) (T - P S) = q S (Z + P S - T), where q is the
``queueing`` coefficient. For q = 0 that is the larger asymptote, for q = 1 Schweitzer's approximation.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ..nvidia import compute_slices
from ..records import Replica, Slice, Tree, UndecidedError

Floats = NDArray[np.float64]


def coefficients(data: Tree, piece: Slice, replica: Replica) -> Tree:
    """The coefficients of a replica's model. Raises UndecidedError if the coefficients do not describe the replica."""
    if piece.profile not in data["profiles"]:
        raise UndecidedError(f"no coefficients on {piece.profile}")
    found: Tree = data["models"][replica.model]["coefficients"]
    if replica.batch > found["max_batch"] or replica.processes > found["max_processes"]:
        point = f"batch {replica.batch} with {replica.processes} processes"
        raise UndecidedError(f"{replica.model}: {point} was not fitted")
    if replica.batch not in data["batches"] or replica.share != 1:
        raise UndecidedError(f"{replica.model}: batch {replica.batch} at SM share {replica.share:.4g} is not described")
    return found


def work_ms(data: Tree, piece: Slice, replica: Replica, processes: int) -> tuple[Floats, Floats]:
    """The host times Z and the slice times S, in ms, of batches of 1 up to the replica's size, with ``processes`` on
    the slice.
    """
    of = coefficients(data, piece, replica)
    compute = compute_slices(piece.gpu_type, piece.profile)
    batches = np.arange(1, replica.batch + 1, dtype=float)
    unscaled, wide = of["unscaled_share"], of["bandwidth_share"]
    memory = 2 ** math.ceil(math.log2(compute))
    slowness = unscaled + (1 - unscaled) * ((1 - wide) / compute + wide / memory)
    slice_ms = (of["gpu_fixed_ms"] + of["gpu_per_item_ms"] * batches ** of["batch_exponent"]) * slowness
    slice_ms[0] *= of["unbatched_ratio"]
    launch_ms = of["launch_ms"] * (1 + of["launch_contention"] * (processes - 1))
    host_ms = of["host_per_item_ms"] * batches + (launch_ms**5 + slice_ms**5) ** 0.2 - slice_ms
    return host_ms, slice_ms


def memory_gib(data: Tree, piece: Slice, replica: Replica) -> float:
    """The memory of all processes of a replica, in GiB."""
    of = coefficients(data, piece, replica)
    return float(replica.processes * (of["memory_fixed_gib"] + of["memory_per_item_gib"] * replica.batch))


def times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The batch times of all replicas with all processes busy: by the closed network for a single replica, else upper
    bounds.

    The bound is for processor sharing and holds for every course of events: in a time t, another process whose batches
    have the times Z and S uses the slice beside a batch for at most ``min(S_own, S (1 + floor(t / (Z + S))))``.
    """
    if len(piece.replicas) == 1:
        (replica,) = piece.replicas
        host, work = work_ms(data, piece, replica, replica.processes)
        mixed = float(coefficients(data, piece, replica)["queueing"])
        alone, full = host + work, (replica.processes - mixed) * work
        crossing = 4 * mixed * (replica.processes - 1) * work**2
        taken = (alone + full + np.sqrt((alone - full) ** 2 + crossing)) / 2
        return [(taken, taken, memory_gib(data, piece, replica))]
    everyone = sum(one.processes for one in piece.replicas)
    works = [work_ms(data, piece, one, everyone) for one in piece.replicas]
    found: list[tuple[Floats, Floats, float | None]] = []
    for at, replica in enumerate(piece.replicas):
        others = [works[k] for k, one in enumerate(piece.replicas) for _ in range(one.processes - (k == at))]
        taken = np.array([_bound_ms(host, work, others) for host, work in zip(*works[at], strict=True)])
        found.append((taken, taken, memory_gib(data, piece, replica)))
    return found


def _bound_ms(host: float, work: float, others: list[tuple[Floats, Floats]]) -> float:
    """The shortest time in which a batch surely ends, whatever batches the others run."""
    longest = [(float(slice_ms.max()), float((host_ms + slice_ms).min())) for host_ms, slice_ms in others]
    taken = host + work
    while True:
        beside = sum(min(work, most * (1 + taken // least)) for most, least in longest)
        if host + work + beside <= taken * (1 + 1e-12):
            return taken
        taken = host + work + beside


def routed_ms(data: Tree, piece: Slice, fill_ms: list[float], saturated: bool) -> list[float]:
    """The longest batch times on a shared slice at the routed rates and at all lower rates, in ms (rules without
    randomness).

    A batch waits for ``fill_ms`` to fill. So a rate r forms batches of f = 1 + floor(r fill), at most the planned size.
    The utilisation U is the sum of r S(f) / f over the replicas. A batch takes Z + S / (1 - U), but at most Z + P S.
    Because U falls where f rises, every replica counts with the rate, up to its own, that has the largest U.
    """
    everyone = sum(one.processes for one in piece.replicas)
    works = [work_ms(data, piece, one, everyone) for one in piece.replicas]
    steps = [_steps(one, work, fill) for one, (_, work), fill in zip(piece.replicas, works, fill_ms, strict=True)]
    most = [max((rate * work / formed for formed, rate, work in found), default=0.0) for found in steps]
    longest = []
    for at, (host, _) in enumerate(works):
        others = sum(most) - most[at]
        taken = 0.0
        for formed, rate, work in steps[at]:
            busy = others + rate * work / formed
            bound = host[formed - 1] + everyone * work
            open_ms = host[formed - 1] + work / (1 - busy) if busy < 1 else math.inf
            taken = max(taken, bound if saturated else min(bound, open_ms))
        longest.append(float(taken))
    return longest


def _steps(replica: Replica, work: Floats, fill_ms: float) -> list[tuple[int, float, float]]:
    """For every batch size that some rate up to the routed one forms: the size, the largest such rate per ms, and the
    slice time.
    """
    rate = replica.rate_rps / 1000
    most = min(replica.batch, 1 + math.floor(rate * fill_ms * (1 + 1e-12)))
    return [(formed, rate if formed == most else min(rate, formed / fill_ms), float(work[formed - 1]))
            for formed in range(1, most + 1)]
