"""Co-location, fitted to measured pairs: the equations of docs/co-location.md."""

import numpy as np
from numpy.typing import NDArray

from ..nvidia import gpu_type
from ..records import Replica, Slice, Tree, UndecidedError
from .memory import stated_gib

Floats = NDArray[np.float64]


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


def times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
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
