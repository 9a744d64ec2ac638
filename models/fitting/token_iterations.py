"""Coefficients of model kind `tokens` from iterations that were timed one by one, prompts and decodes apart.

Least squares on logarithms with a robust loss: tables of measured iterations have rows in which memory ran short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.base.arrays import Floats
from provision.models.base.errors import InputError
from provision.models.performance.tokens.step import TokenCosts

FITTED = ("weights", "token", "sequence", "context", "prefill", "attended")
"""Coefficients that such tables tell; the rest, a server's front end, is 0."""
BEGIN = np.array([20.0, 0.1, 0.05, 1e-4, 1.0, 1e-5])
"""Where the fit begins, in ms."""
ROBUST = 0.1
"""Relative errors much larger than this count linearly, not squared."""
LEAST = 1e-3
"""The least coefficient that is tried, over where it begins."""


class TimedIteration(NamedTuple):
    """One iteration: sequences, tokens of each that are computed already, tokens of prompt of each, and its time.

    Without tokens of prompt every sequence decodes one.
    """

    sequences: int
    context: float
    prompt: int
    time_ms: float


class IterationFit(NamedTuple):
    """Coefficients, and the median relative error of prompts and of decodes; NaN where there were none."""

    costs: TokenCosts
    prompt_error: float
    decode_error: float


def fit_iterations(rows: Sequence[TimedIteration]) -> IterationFit:
    """The coefficients closest to timed iterations.

    Raises
    ------
    InputError
        If there are fewer rows than coefficients, or they do not tell both prompts and decodes.
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
    """What iterations take (rows,), in ms; the table has sequences, context and prompt of each."""
    weights, token, sequence, context, prefill, attended = costs
    sequences, before, prompt = table.T
    computed = sequences * np.maximum(prompt, 1)
    shared = np.maximum(weights, token * computed)
    decode = sequence * sequences + context * sequences * before
    pairs = sequences * prompt * (before + (prompt + 1) / 2)
    return np.asarray(shared + np.where(prompt > 0, prefill + attended * pairs, decode))
