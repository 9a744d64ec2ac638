"""What neighbours demand and what batches suffer from it, from measured pairs: alternating least squares.

With the times alone known, the excess of a batch beside a neighbour is a sum over resources of what the batch suffers
times what the neighbour demands. With either held fixed the other is a non-negative least-squares problem per model, so
they are found in turn. Relative errors are squared; each ordered combination of two models counts alike, however many
pairs of it were measured.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

PULL = 0.002
"""Pull of sensitivities and demands to 0, in squared relative error; decides where few pairs leave them open."""
SWEEPS = 200


class Beside(NamedTuple):
    """Batches beside one neighbour, as arrays of one length.

    ``own`` and ``other`` number the models of the batch and of the neighbour, whose s b / (b + h) is ``load``.
    """

    own: np.ndarray
    other: np.ndarray
    alone_ms: np.ndarray
    latency_ms: np.ndarray
    load: np.ndarray


def fit_interference(runs: Beside, models: int, resources: int) -> np.ndarray:
    """(models, 4, resources) stretch, wait (ms), base and load demand; the largest demand of a resource is 1."""
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
    """(rows,) square roots of weights that let each combination count alike; the mean weight is 1."""
    _, which, counts = np.unique(combination, return_inverse=True, return_counts=True)
    return np.sqrt(len(combination) / len(counts) / counts[which])


def _one_side(
    model: np.ndarray, terms: np.ndarray, others: np.ndarray, excess: np.ndarray, weight: np.ndarray, count: int
) -> np.ndarray:
    """(models, terms, resources) coefficients of one side, those of the other side being in ``others``."""
    found = np.zeros((count, terms.shape[1], others.shape[1]))
    size = terms.shape[1] * others.shape[1]
    for one in np.unique(model):
        here = model == one
        columns = (terms[here][:, :, None] * others[here][:, None, :]).reshape(-1, size) * weight[here][:, None]
        rows = np.vstack([columns, np.sqrt(PULL) * np.eye(size)])
        solution, _ = nnls(rows, np.r_[excess[here] * weight[here], np.zeros(size)])
        found[one] = solution.reshape(found.shape[1:])
    return found
