"""Fits the coefficients of data kind `tokens` to single timed iterations, each of prompts alone or of decoding alone.

The fit uses least squares on logarithms with a robust loss, because tables of measured iterations contain rows in which
memory ran short.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.tokens.step import TokenCosts

FITTED = ("weights", "token", "sequence", "context", "prefill", "attended")
"""The coefficients that timed iterations determine; the other coefficients, which belong to a server's front end, are
0.
"""
BEGIN = np.array([20.0, 0.1, 0.05, 1e-4, 1.0, 1e-5])
"""The start values of the fit, in ms."""
ROBUST = 0.1
"""The relative error from about which on errors count linearly instead of squared."""
LEAST = 1e-3
"""The least value of a coefficient, as a fraction of its start value."""


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


def fit_iterations(rows: Sequence[TimedIteration]) -> IterationFit:
    """Fit the coefficients to timed iterations. Raises InputError if there are fewer rows than coefficients, or only
    prompts, or only decodes.
    """
    prompts = np.array([one.prompt > 0 for one in rows])
    if len(rows) < len(FITTED) or prompts.all() or not prompts.any():
        raise InputError(f"{len(rows)} timed iterations do not tell what prompts and decodes take; give at least "
                         f"{len(FITTED)}, of both")
    table, times_ms = np.array([one[:3] for one in rows], float), np.array([one.time_ms for one in rows])

    def errors(logs: Floats) -> Floats:
        return np.log(_times_ms(np.exp(logs), table) / times_ms)

    begin = np.log(BEGIN)
    found = least_squares(errors, begin, loss="soft_l1", f_scale=ROBUST,
                          bounds=(begin + np.log(LEAST), np.inf))
    off = np.abs(np.expm1(errors(found.x)))
    nothing = TokenCosts(*([0.0] * len(TokenCosts._fields)))
    costs = nothing._replace(**dict(zip(FITTED, np.exp(found.x).tolist(), strict=True)))
    return IterationFit(costs, float(np.median(off[prompts])), float(np.median(off[~prompts])))


def _times_ms(costs: Floats, table: Floats) -> Floats:
    """The predicted times (rows,) of iterations in ms; the columns of ``table`` are sequences, context and prompt."""
    weights, token, sequence, context, prefill, attended = costs
    sequences, before, prompt = table.T
    computed = sequences * np.maximum(prompt, 1)
    shared = np.maximum(weights, token * computed)
    decode = sequence * sequences + context * sequences * before
    pairs = sequences * prompt * (before + (prompt + 1) / 2)
    return np.asarray(shared + np.where(prompt > 0, prefill + attended * pairs, decode))
