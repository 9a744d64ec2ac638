"""Fits co-location data: first the times alone, then interference to measured pairs; held-out pairs give the errors.
Also fits gpu-lets' linear model of interference (ATC 2022, section 4.4).

The sensitivities of batches and the demands of neighbours are fitted by alternating least squares. The times alone are
known. The excess time of a batch beside a neighbour is a sum over resources of the batch's sensitivity times the
neighbour's demand. If one of the two factors is fixed, the other is a non-negative least-squares problem for every
model; the two problems are solved in turn. The fit minimises the weighted sum of squared relative errors. The weights
make each ordered combination of two models count equally, however many of its pairs were measured.
"""

from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares, nnls

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.fitting.igniter import rounded
from provision.models.fitting.left_out import distributions
from provision.models.fitting.waves import SoloRuns, fit_solo, overlap_ms
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.bands import ErrorBands
from provision.models.performance.colocation import ColocatedModel, Colocation, SoloTime, Terms, solo_terms, together
from provision.models.performance.fitted_networks import FittedError, fitted_error, relative_errors
from provision.models.performance.gpulets import GpuletInterference

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


RESOURCES = 2
"""The number of shared resources. With one resource the errors on unseen pairs are nearly twice as large, with three
hardly smaller.
"""
HALF_LOAD_BATCH = 16.0
"""The batch size h at which half of ``load_demand`` is reached; values from 8 to 32 give nearly the same errors."""
UNIT_SHARE = 0.025
"""The unit of SM shares: two of a V100's 80 SMs."""
FOLDS = 5
"""One in FOLDS pairs is held out to judge a fit."""
JUDGED = "Alone: batch sizes that were left out of a fit in turn. Beside others: measured pairs that were not fitted."
"""A note in files: on which points the errors by batch size and SM share were computed."""
KEY_PREFIX, KEY_DIGITS = "p", 8
"""The prefix and the number of hexadecimal digits of a pair's key; without the prefix YAML could read a key as a
number.
"""


class Pairs(NamedTuple):
    """Measured pairs of models on one GPU: arrays (pairs, 2), whose second axis is over the two members."""

    model: np.ndarray
    batch: np.ndarray
    sm_share: np.ndarray
    latency_ms: np.ndarray

    def take(self, which: np.ndarray) -> "Pairs":
        """The pairs that a mask or indices select."""
        return Pairs(*(axis[which] for axis in self))

    @property
    def keys(self) -> np.ndarray:
        """(pairs,), the key of every pair (``pair_key``)."""
        rows = zip(self.model, self.batch, self.sm_share, strict=True)
        return np.array([pair_key(*(axis.tolist() for axis in row)) for row in rows])


def pair_key(models: list[str], batches: list[int], sm_shares: list[float]) -> str:
    """A short digest of the models, batch sizes and SM shares of a pair's two members; it does not depend on their
    order.
    """
    members = sorted(
        f"{model} {batch:g} {share:.4f}" for model, batch, share in zip(models, batches, sm_shares, strict=True)
    )
    return KEY_PREFIX + sha256("\n".join(members).encode()).hexdigest()[:KEY_DIGITS]


def kept_apart(pairs: Pairs) -> np.ndarray:
    """(pairs,), the mask of the pairs that are held out to judge a fit: one in FOLDS, chosen by the keys alone."""
    return fold_of(pairs) == 0


def fold_of(pairs: Pairs) -> np.ndarray:
    """(pairs,), the number of each pair's fold, from 0 to FOLDS - 1."""
    return np.array([int(key.removeprefix(KEY_PREFIX), 16) % FOLDS for key in pairs.keys])


def fit(runs: dict[str, SoloRuns], pairs: Pairs, gpu: str, unit_share: float = UNIT_SHARE, **about: Any) -> Colocation:
    """Fit a Colocation to measurements of models alone and of all given pairs; its errors are left empty (see
    ``judged``).

    Parameters
    ----------
    runs
        The runs alone, by model.
    pairs
        The measured pairs of these models; a pair may have the same model twice.
    gpu
        The GPU type.
    unit_share
        The unit of SM shares in plans.
    about
        ``name``, ``source`` and further fields that describe the data.

    Raises
    ------
    InputError
        If a model of a pair was not measured alone, or a model is in no pair.
    """
    _check(runs, pairs)
    solo = {name: fit_solo(one, gpu_type(gpu).sms) for name, one in runs.items()}
    bare = _colocation(solo, np.zeros((len(solo), 4, RESOURCES)), runs, gpu, unit_share, about)
    found = fit_interference(_beside(bare, pairs), len(solo), RESOURCES)
    return _colocation(solo, found, runs, gpu, unit_share, about | {"fitted_pairs": tuple(sorted(pairs.keys))})


def predicted_ms(data: Colocation, pairs: Pairs) -> np.ndarray:
    """(pairs, 2), the predicted latencies of the members of pairs, in ms."""
    return together(_terms(data, pairs), data.norm_order)[0]


def errors(data: Colocation, pairs: Pairs) -> np.ndarray:
    """(pairs, 2), the relative errors of the predicted latencies of pairs."""
    return relative_errors(predicted_ms(data, pairs), pairs.latency_ms)


def judged(data: Colocation, runs: dict[str, SoloRuns], unseen: Pairs) -> Colocation:
    """The data with its errors filled in: the errors of models alone by cross-validation over batch sizes, and the
    errors of pairs on the pairs ``unseen``.
    """
    logs = np.log(unseen.latency_ms / predicted_ms(data, unseen))
    models, bands = {}, {}
    for name, one in data.models.items():
        alone, here = solo_left_out(runs[name], data.sms), unseen.model == name
        bands[name] = distributions(alone, runs[name].batch, runs[name].sm_share, beside=False)
        if here.sum() > 1:
            bands[name] += distributions(logs[here], unseen.batch[here], unseen.sm_share[here], beside=True)
        models[name] = one.model_copy(update={
            "solo_error": _error(alone), "pair_error": _error(logs[here]) if here.any() else None})
    return data.model_copy(update={
        "models": models, "bands": ErrorBands(source=JUDGED, command=data.command, models=bands)})


def _error(logs: np.ndarray) -> FittedError:
    """The summary of errors that are given as logarithms of measured over predicted times."""
    return fitted_error(relative_errors(np.exp(-logs), np.ones(len(logs))))


def solo_left_out(runs: SoloRuns, sms: int) -> np.ndarray:
    """(runs,), the logarithms of measured over predicted times alone: each fold of the batch sizes is predicted by a
    fit to the other folds.
    """
    fold, found = runs.batch % FOLDS, np.empty(len(runs.batch))
    for one in np.unique(fold):
        apart = fold == one
        rest = runs.take(~apart) if not apart.all() else runs
        solo = fit_solo(rest, sms)
        asked = zip(runs.batch[apart].tolist(), runs.sm_share[apart].tolist(), strict=True)
        found[apart] = np.log(runs.latency_ms[apart] / [solo.ms(batch, share, sms) for batch, share in asked])
    return found


def _check(runs: dict[str, SoloRuns], pairs: Pairs) -> None:
    """Refuse models that were not measured alone or are in no pair."""
    paired = set(pairs.model.ravel().tolist())
    for name in sorted(paired - set(runs)):
        raise InputError(f"{name}: is in a pair but was not measured alone; add its rows to the table of single models")
    for name in sorted(set(runs) - paired):
        raise InputError(f"{name}: is in no pair; measure it beside another model, or take its rows out")


def _colocation(solo: dict[str, SoloTime], numbers: np.ndarray, runs: dict[str, SoloRuns], gpu: str, unit_share: float,
                about: dict[str, Any]) -> Colocation:
    """A Colocation with given coefficients; ``numbers``, (models, 4, resources), has stretch, wait, base demand and
    load demand.
    """
    models = {}
    for name, rows in zip(solo, numbers, strict=True):
        stretch, wait_ms, base, load = (tuple(map(rounded, row.tolist())) for row in rows)
        models[name] = ColocatedModel(
            solo=solo[name],
            stretch=stretch,
            wait_ms=wait_ms,
            base_demand=base,
            load_demand=load,
            overlap_ms=overlap_ms(runs[name]),
        )
    return Colocation(
        version=1,
        kind="colocation",
        gpu=gpu,
        unit_share=unit_share,
        max_batch=int(max(one.batch.max() for one in runs.values())),
        half_load_batch=HALF_LOAD_BATCH,
        models=models,
        **about,
    )


def _terms(data: Colocation, pairs: Pairs) -> Terms:
    """The Terms of both members of all pairs: arrays (pairs, 2), or (pairs, 2, resources)."""
    shape = pairs.batch.shape
    found = Terms(*(np.zeros(shape + (data.resources,) * more) for more in (0, 0, 0, 1, 1)))
    for name in data.models:
        here = pairs.model == name
        for axis, value in zip(found, solo_terms(data, name, pairs.batch[here], pairs.sm_share[here]), strict=True):
            axis[here] = value
    return found


def _beside(bare: Colocation, pairs: Pairs) -> Beside:
    """The Beside of both members of all pairs: runs beside a neighbour, with their predicted times alone."""
    numbers = {name: at for at, name in enumerate(bare.models)}
    model = np.vectorize(numbers.__getitem__)(pairs.model)
    load = pairs.sm_share * pairs.batch / (pairs.batch + bare.half_load_batch)
    alone_ms = _terms(bare, pairs).solo_ms
    columns = (model, model[:, ::-1], alone_ms, pairs.latency_ms, load[:, ::-1])
    return Beside(*(column.ravel() for column in columns))


NOISE = 0.05
"""The residual from which on the robust fit treats a measured slowdown as an outlier."""


def fit_pairwise(l2_own: Floats, l2_other: Floats, dram_own: Floats, dram_other: Floats,
                 slowdown: Floats) -> GpuletInterference:
    """Fit gpu-lets' coefficients to measured pairs by robust least squares, with c1 to c4 not below 0.

    Parameters
    ----------
    l2_own, l2_other, dram_own, dram_other
        The utilisations of each model alone as fractions, shape (pairs,).
    slowdown
        The latencies beside the other model divided by the latencies alone, shape (pairs,).

    Raises
    ------
    InputError
        If the pairs do not determine all five coefficients.
    """
    terms = np.column_stack([l2_own, l2_other, dram_own, dram_other, np.ones(len(slowdown))])
    if np.linalg.matrix_rank(terms) < terms.shape[1]:
        raise InputError(f"{len(slowdown)} pairs do not tell five coefficients apart; measure more different ones")
    linear, low = np.linalg.lstsq(terms, slowdown, rcond=None)[0], np.array([0, 0, 0, 0, -np.inf])

    def residuals(coefficients: Floats) -> Floats:
        return (terms @ coefficients - slowdown) / NOISE

    found = least_squares(residuals, np.maximum(linear, low), bounds=(low, np.inf), loss="soft_l1").x
    return GpuletInterference(**dict(zip(GpuletInterference.model_fields, found.tolist(), strict=True)))
