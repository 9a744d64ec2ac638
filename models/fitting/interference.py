"""Fits the sensitivities of batches and the demands of neighbours to measured pairs, by alternating least squares.

The times alone are known. The excess time of a batch beside a neighbour is a sum over resources of the batch's
sensitivity times the neighbour's demand. If one of the two factors is fixed, the other is a non-negative least-squares
problem for every model; the two problems are solved in turn. The fit minimises the weighted sum of squared relative
errors. The weights make each ordered combination of two models count equally, however many of its pairs were measured.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

PULL = 0.002
"""The weight of the penalty that pulls coefficients to 0, in squared relative error; it decides if too few pairs
determine a coefficient.
"""
SWEEPS = 200


class Beside(NamedTuple):
    """Measured batches, each beside one neighbour, as arrays of the same length.

    ``own`` and ``other`` are the numbers of the models of the batch and of the neighbour; ``load`` is s b / (b + h) of
    the neighbour, with its SM share s, its batch size b, and h of the formula in
    `provision.models.performance.colocation`.
    """

    own: np.ndarray
    other: np.ndarray
    alone_ms: np.ndarray
    latency_ms: np.ndarray
    load: np.ndarray


def fit_interference(runs: Beside, models: int, resources: int) -> np.ndarray:
    """(models, 4, resources), the fitted stretch, wait (ms), base demand and load demand of every model.

    Demands are scaled so that the largest demand of every resource is 1.
    """
    wait_scale_ms = 1 / np.mean(1 / runs.alone_ms)
    suffers = np.column_stack([np.ones_like(runs.alone_ms), wait_scale_ms / runs.alone_ms])
    demands = np.column_stack([np.ones_like(runs.load), runs.load])
    excess = runs.latency_ms / runs.alone_ms - 1
    weight = _even(runs.own * models + runs.other) * runs.alone_ms / runs.latency_ms
    draw = np.random.default_rng(0)
    felt, asked = (draw.uniform(0.15, 0.3, (models, 2, resources)) for _ in range(2))
    for _ in range(SWEEPS):
        asking = np.einsum("nt,ntk->nk", demands, asked[runs.other])
        felt = _one_side(runs.own, suffers, asking, excess, weight, models)
        feeling = np.einsum("nt,ntk->nk", suffers, felt[runs.own])
        asked = _one_side(runs.other, demands, feeling, excess, weight, models)
    largest = np.maximum(asked.sum(axis=1).max(axis=0), np.finfo(float).tiny)
    felt[:, 1] *= wait_scale_ms
    return np.concatenate([felt * largest, asked / largest], axis=1)


def _even(combination: np.ndarray) -> np.ndarray:
    """(rows,), the square root of the weight of each row.

    All rows of one combination of models together have the same weight as those of any other. The mean weight is 1.
    """
    _, which, counts = np.unique(combination, return_inverse=True, return_counts=True)
    return np.sqrt(len(combination) / len(counts) / counts[which])


def _one_side(model: np.ndarray, terms: np.ndarray, others: np.ndarray, excess: np.ndarray, weight: np.ndarray,
              count: int) -> np.ndarray:
    """(models, terms, resources), the sensitivities or the demands that fit best while the other factor is fixed
    (``others``).
    """
    found = np.zeros((count, terms.shape[1], others.shape[1]))
    size = terms.shape[1] * others.shape[1]
    for one in np.unique(model):
        here = model == one
        columns = (terms[here][:, :, None] * others[here][:, None, :]).reshape(-1, size) * weight[here][:, None]
        rows = np.vstack([columns, np.sqrt(PULL) * np.eye(size)])
        solution, _ = nnls(rows, np.r_[excess[here] * weight[here], np.zeros(size)])
        found[one] = solution.reshape(found.shape[1:])
    return found
