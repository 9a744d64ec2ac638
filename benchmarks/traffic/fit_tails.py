"""Fits of ``measured_tails``: the lowest line over queues' P99 that no measured P99 exceeds."""

import numpy as np
from measured_tails import Tail

STRETCHES = np.linspace(0.5, 2.5, 21)
"""A queue's P99 counts by half at least; what is then missing does not grow with it."""

FIXED_SHARE = {"rnnt": 1.0}
"""Models whose batches take their time whatever their size: RNN-T decodes until its longest sequence ends."""

UNKNOWN_QUANTILE = 0.99
"""The part of all measurements that the stretch for unknown models covers."""


def fit_tail(fixed_share: float, queue_ms: np.ndarray, measured_ms: np.ndarray) -> Tail:
    """The Tail that covers all measurements with the least mean logarithm of its predictions.

    Parameters
    ----------
    fixed_share
        That of the model, with which the queues were replayed.
    queue_ms, measured_ms
        (measurements,) P99 of the queue and as measured.
    """
    overheads_ms = np.maximum((measured_ms - STRETCHES[:, None] * queue_ms).max(axis=1), 0.0)
    predicted_ms = STRETCHES[:, None] * queue_ms + overheads_ms[:, None]
    best = np.log(predicted_ms).mean(axis=1).argmin()
    return Tail(fixed_share=fixed_share, stretch=float(STRETCHES[best]), overhead_ms=float(overheads_ms[best]))


def fit_tails(families: np.ndarray, queue_ms: np.ndarray, measured_ms: np.ndarray) -> dict[str, Tail]:
    """A Tail for every family of models that was measured.

    Parameters
    ----------
    families
        (measurements,) the model of each.
    queue_ms, measured_ms
        (measurements,) P99 of the queue and as measured.
    """
    of = {name: families == name for name in sorted(set(families.tolist()))}
    return {
        name: fit_tail(FIXED_SHARE.get(name, 0.0), queue_ms[rows], measured_ms[rows]) for name, rows in of.items()
    }


def unknown_tail(queue_ms: np.ndarray, measured_ms: np.ndarray) -> Tail:
    """The Tail of a model that nobody measured: a multiple of a queue's P99 that covers most measurements.

    ``queue_ms`` are those of queues in which every batch takes as long as a full one.
    """
    return Tail(fixed_share=1.0, stretch=float(np.quantile(measured_ms / queue_ms, UNKNOWN_QUANTILE)), overhead_ms=0.0)
