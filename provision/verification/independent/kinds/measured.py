"""Measured tables: requests/s and batch latency per profile, batch size and number of processes (ParvaGPU)."""

import numpy as np
from numpy.typing import NDArray

from ..records import Slice, Tree, UndecidedError

Floats = NDArray[np.float64]


def times(data: Tree, piece: Slice) -> list[tuple[Floats, Floats, float | None]]:
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
