"""gpu-lets (ATC 2022): models take turns on a part of a GPU, beside at most one other part.

A batch of b on a share s takes ``fixed + per_request b / s^scaling``, times the factor of section 4.4 for what the
other part runs. The exponent is an assumption of the data. The L2 and DRAM utilisations of a part are those on the
whole GPU times the share.
"""

import numpy as np
from numpy.typing import NDArray

from ..records import Replica, Slice, Tree, UndecidedError

Floats = NDArray[np.float64]


def parts(piece: Slice) -> dict[tuple[int, int], list[int]]:
    """The indices of the replicas on each part of the GPU. Replicas with the same ``turn`` share a part; others have
    their own.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for at, replica in enumerate(piece.replicas):
        found.setdefault((0, replica.turn) if replica.turn is not None else (1, at), []).append(at)
    return found


def _utilisations(model: Tree, replica: Replica) -> tuple[Floats, Floats]:
    """L2 and DRAM utilisation on the replica's part, for batches of 1 up to its own."""
    batch = np.arange(1, replica.batch + 1)
    whole = model["fixed_ms"] + model["per_request_ms"] * batch
    cache = (model["l2_fixed_ms"] + model["l2_per_request_ms"] * batch) / whole
    memory = (model["dram_fixed_ms"] + model["dram_per_request_ms"] * batch) / whole
    return cache * replica.share, memory * replica.share


def times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
    """The execution times of all replicas, beside the batch of the other part that slows them down most."""
    sides = parts(piece)
    shares = sorted({piece.replicas[members[0]].share for members in sides.values()})
    cut = sorted(piece.replicas[members[0]].share for members in sides.values())
    if not any(_fits(cut, split) for split in data["splits"]):
        raise UndecidedError(f"the GPU cannot be cut into parts of {shares}")
    if any(one.processes != 1 or one.batch > max(data["batches"]) for one in piece.replicas):
        raise UndecidedError(f"only one process per replica and batches up to {max(data['batches'])} are described")
    factor = data["interference"]
    used = [_utilisations(data["models"][one.model], one) for one in piece.replicas]
    found: list[tuple[Floats, Floats, float | None]] = []
    for at, replica in enumerate(piece.replicas):
        model = data["models"][replica.model]
        batch = np.arange(1, replica.batch + 1)
        taken: Floats = model["fixed_ms"] + model["per_request_ms"] * batch / replica.share ** data["scaling"]
        others = [k for members in sides.values() if at not in members for k in members]
        if others:
            cache, memory = used[at]
            beside = max(float((factor["l2_other"] * used[k][0] + factor["dram_other"] * used[k][1]).max())
                         for k in others)
            own = factor["l2_own"] * cache + factor["dram_own"] * memory + factor["constant"]
            taken = taken * np.maximum(own + beside, 1)
        found.append((taken, taken, float(model["memory_gib"])))
    return found


def _fits(cut: list[float], split: list[float]) -> bool:
    """Whether a split of the GPU contains all of the parts ``cut``."""
    left = list(split)
    for share in cut:
        near = [one for one in left if abs(one - share) < 1e-9]
        if not near:
            return False
        left.remove(near[0])
    return True
