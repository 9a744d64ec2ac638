"""Fits the coefficients of data kind `tokens` to the times of iterations.

The iterations are composed of operators, or they were timed one by one; each timed one has only prompts or only
sequences that decode. The fit uses least squares on logarithms with a robust loss, because tables of measured
iterations contain rows in which memory ran short.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.operators.compose import Iterations, Served, iteration_ms
from provision.models.performance.tokens.step import TokenCosts

FITTED = ("step", "weights", "token", "several", "sequence", "context", "prefill", "attended", "experts", "active")
"""The coefficients of an iteration, in the order of the fit; the other coefficients belong to the front end. A dense
model lacks the last two.
"""
DENSE = 8
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CONTEXTS = (64, 256, 1024, 2048, 4096, 8192, 16384, 32768)
CHUNKS = (32, 128, 512, 1024, 2048, 4096, 8192)
BEFORE = (0, 8192)
"""The numbers of tokens of a prompt that are computed already when a chunk begins."""
BESIDE = (0, 16, 128)
"""The numbers of sequences that decode while a prompt is computed."""
THEIR_CONTEXT = 2048
ROBUST = 0.1
"""Relative errors much larger than this count linearly, not squared."""
MOST_ACTIVE = 0.9
"""The largest fraction of the experts that a token may take."""
REACH = 12.0
"""The largest change of a coefficient's logarithm from the start of the fit."""
TIMED = {"weights": 20.0, "token": 0.1, "sequence": 0.05, "context": 1e-4, "prefill": 1.0, "attended": 1e-5}
"""The coefficients that single timed iterations determine, with the start values of their fit, in ms."""
LEAST = 1e-3
"""The least value of such a coefficient, as a fraction of its start value."""


class TimedIteration(NamedTuple):
    """One timed iteration: the number of sequences, and per sequence the tokens in its KV cache and its prompt tokens.

    If ``prompt`` is 0, every sequence decodes one token.
    """

    sequences: int
    context: float
    prompt: int
    time_ms: float


class IterationFit(NamedTuple):
    """The fitted coefficients, and the median relative errors on iterations with prompts and on iterations that decode.
    """

    costs: TokenCosts
    prompt_error: float
    decode_error: float


class CostsFit(NamedTuple):
    """The fitted coefficients, and the median and the 90th percentile of their relative errors on the iterations to
    which they were fitted.
    """

    costs: TokenCosts
    median: float
    p90: float


def fit_costs(served: Served) -> CostsFit:
    """The fitted coefficients of a decoder on a group of GPUs."""
    given = _grid(max(served.kv_tokens, 1))
    times_ms = iteration_ms(served, given)
    rows = np.array([np.asarray(one, float) for one in given])
    begin = _begin(served)
    most = begin + REACH
    most[DENSE + 1 :] = np.log(MOST_ACTIVE)
    costs, off = _closest(FITTED[: len(begin)], begin, (begin - REACH, most), rows, times_ms)
    return CostsFit(costs, float(np.median(off)), float(np.quantile(off, 0.9)))


def fit_iterations(timed: Sequence[TimedIteration]) -> IterationFit:
    """Fit the coefficients to timed iterations. Raises InputError if there are fewer rows than coefficients, or only
    prompts, or only decodes.
    """
    prompts = np.array([one.prompt > 0 for one in timed])
    if len(timed) < len(TIMED) or prompts.all() or not prompts.any():
        raise InputError(f"{len(timed)} timed iterations do not tell what prompts and decodes take; give at least "
                         f"{len(TIMED)}, of both")
    sequences, cached, prompt, times_ms = np.array(timed, float).T
    pairs = sequences * prompt * (cached + (prompt + 1) / 2)
    rows = np.array([np.where(prompts, 0, sequences), cached, sequences * prompt, pairs])
    begin = np.log(list(TIMED.values()))
    costs, off = _closest(tuple(TIMED), begin, (begin + np.log(LEAST), np.inf), rows, times_ms)
    return IterationFit(costs, float(np.median(off[prompts])), float(np.median(off[~prompts])))


def _closest(names: Sequence[str], begin: Floats, bounds: tuple[Floats, Floats | float], rows: Floats, times_ms: Floats
             ) -> tuple[TokenCosts, Floats]:
    """Fit the coefficients with the given names to the times of iterations; the other coefficients are 0.

    Parameters
    ----------
    names
        Names from FITTED.
    begin, bounds
        The logarithms of the coefficients with which the fit begins; the least and the greatest logarithms.
    rows, times_ms
        The iterations as the columns of ``rows`` (see ``_times_ms``), and their times (iterations,).

    Returns
    -------
    tuple
        The coefficients, and the relative errors (iterations,) of the times that they give.
    """
    places = [FITTED.index(name) for name in names]

    def errors(logs: Floats) -> Floats:
        costs = np.zeros(len(FITTED))
        costs[places] = np.exp(logs)
        return np.log(_times_ms(costs, rows) / times_ms)

    found = least_squares(errors, begin, loss="soft_l1", f_scale=ROBUST, bounds=bounds)
    nothing = TokenCosts(*([0.0] * len(TokenCosts._fields)))
    costs = nothing._replace(**dict(zip(names, np.exp(found.x).tolist(), strict=True)))
    return costs, np.abs(np.expm1(errors(found.x)))


def _grid(kv_tokens: int) -> Iterations:
    """The Iterations to fit: iterations that only decode, with contexts that the memory holds; and iterations with a
    chunk of a prompt.
    """
    decodes = [(many, context, 0, 0) for many in SEQUENCES for context in CONTEXTS if many * context <= kv_tokens]
    chunks = [(many, THEIR_CONTEXT, chunk, chunk * (before + (chunk + 1) / 2)) for many in BESIDE for chunk in CHUNKS
              for before in BEFORE]
    return Iterations(*np.array([*decodes, *chunks], float).T)


def _begin(served: Served) -> Floats:
    """The logarithms of rough coefficients, which are differences between the times of composed iterations."""

    def of(sequences: float, context: float, prompt: float, pairs: float) -> float:
        given = (np.array([one]) for one in (sequences, context, prompt, pairs))
        return float(iteration_ms(served, Iterations(*given))[0])

    alone, many = of(1, 64, 0, 0), of(64, 64, 0, 0)
    token = (of(0, 0, 8192, 1) - of(0, 0, 4096, 1)) / 4096
    context = (of(64, 4096, 0, 0) - of(64, 2048, 0, 0)) / (64 * 2048)
    attended = (of(0, 0, 4096, 4e7) - of(0, 0, 4096, 2e7)) / 2e7
    added = max(many - alone, 1e-2)
    values = [0.1 * alone, 0.9 * alone, token, 0.05 * alone, added / 128, context, 0.2 * alone, attended]
    if served.decoder.experts:
        values += [added, served.decoder.active_experts / served.decoder.experts]
    return np.asarray(np.log(np.maximum(values, 1e-9)))


def _times_ms(costs: Floats, rows: Floats) -> Floats:
    """(iterations,) the times of iterations in ms by the formula of `tokens.step`.

    ``costs`` are all coefficients in FITTED. ``rows`` (4, iterations) are the sequences that decode, the tokens in the
    KV cache of each, the tokens of prompts, and the pairs of tokens that attention computes.
    """
    step, weights, token, several, sequence, context, prefill, attended, experts, active = costs
    sequences, cached, prompt, pairs = rows
    shared = np.maximum(weights, token * (sequences + prompt))
    batched = several * (1 - 1 / np.maximum(sequences, 1)) + sequence * sequences
    fresh = np.where(prompt > 0, prefill + attended * pairs, 0)
    shared = shared + experts * (1 - (1 - active) ** (sequences + prompt))
    return np.asarray(step + shared + batched + context * sequences * cached + fresh)
