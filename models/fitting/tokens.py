"""Fits the coefficients of data kind `tokens` to measurements of load generators, in one joint fit over all loads.

Every load is replayed with continuous batching. The fit minimises the differences of logarithms between replayed and
measured figures: mean, median, P95 and P99 of the time to the first token and of the time between tokens. It is a
least-squares fit with a robust loss (pseudo-Huber), because some servers stall. A weak prior around a typical engine
determines the coefficients that the loads do not determine.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenLoad
from provision.models.performance.tokens.operating import PERCENTS, figures, replay_load
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.step import TokenCosts

TYPICAL = TokenCosts(
    step=2.5, weights=4.2, token=0.022, several=0.25, sequence=0.02, context=4e-5, prefill=1.0, attended=8e-7,
    request=2.5, read=1e-3, idle=15.0, delivery=4.0, delivery_sequence=0.003, hiccup=10.0,
)  # fmt: skip
"""The start values of fits: Llama-3.1-8B on an H100 by their data sheets, with round guesses for the numbers that data
sheets lack. The data sheets give 16 GB of weights and 131 kB of KV cache per token at 3.35 TB/s; 16 GFLOP per token and
0.5 MFLOP per attended pair at 700 TFLOP/s.
"""
FITTED = TYPICAL._fields[: TYPICAL._fields.index("experts")]
"""The names of the fitted coefficients. Those of experts are left out, since loads do not tell experts from other
weights.
"""
TYPICAL_ITL_MS = 6.7
"""The time between tokens of a single request at the start values, in ms. For another model the start values are scaled
to the model's time between tokens.
"""
TIE, REQUEST_TIE = 0.3, 3.0
"""The weights of the prior on the logarithm of a coefficient divided by its start value. The weight for the time in
which a request occupies the front end is larger: below saturation this time looks like any other delay, and a fit that
overestimates it predicts saturated front ends under loads of shorter requests.
"""
MEAN_WEIGHT = 2.0
ROBUST = 0.1
"""The relative error from about which on errors count linearly instead of squared."""
SPREAD = 0.03
"""The relative difference in speed between servers of one kind."""
NOISE = 0.05
"""The relative difference between repeated measurements."""
STEP = 0.03
"""The step in logarithms for numerical derivatives. It is large, since the result of a replay jumps a little when two
events change their order.
"""
STEPS, FARTHEST = 3, 1.0
"""The number of Gauss-Newton steps of a fit, and the largest change of a coefficient's logarithm in one step."""
MOST_REQUESTS = 4000
"""Loads at a rate are cut to this many requests, not counting the burst at their start."""
WARM_UP = 0.4
"""The fraction of the requests that is not counted at the start of a load that was cut, since queues settle slowly near
saturation.
"""
MOST_CLOSED = 8000
"""Closed loads with more answered requests than this are left out, since their replays (of many short requests) take
long.
"""
NOTHING_SEEN = 2.0
"""The error, as a difference of logarithms, of a replay in which no request is answered."""


class _Measured(NamedTuple):
    """A load, the time from which on its requests count, and the logarithms of the figures measured under it.

    ``logs`` is keyed by (figure, percent): figure 0 is the time to the first token, figure 1 the time between tokens;
    percent is None for the mean.
    """

    load: TokenLoad
    begin_ms: float
    logs: dict[tuple[int, float | None], float]


class TokenFit(NamedTuple):
    """The fitted coefficients, and the engine's limits with the fitted KV memory."""

    costs: TokenCosts
    engine: Engine


def fit_tokens(benchmarks: Sequence[TokenBenchmark], engine: Engine) -> TokenFit:
    """Fit all benchmarks of a model on one type of GPU together.

    Parameters
    ----------
    benchmarks
        The benchmarks; benchmarks without a load are left out.
    engine
        The engine's limits; its ``kv_blocks`` is the start value of the fit.

    Raises
    ------
    InputError
        If no benchmark has both a load and times.
    """
    measured = [_Measured(*_shortened(load), logs) for load, logs in map(_told_of, benchmarks) if load and logs]
    fastest = [one.itl.mean for one in benchmarks if one.load and one.itl.mean]
    if not measured or not fastest:
        raise InputError("tokens: no benchmark tells both how requests were sent and how long tokens took; add some")
    begin = np.log([*_begin(min(fastest)), engine.kv_blocks])
    logs = begin
    for _ in range(STEPS):
        logs = _closer(measured, logs, begin, engine)
    return _as_fit(logs, engine)


def _closer(measured: list["_Measured"], logs: np.ndarray, begin: np.ndarray, engine: Engine) -> np.ndarray:
    """The logarithms of the coefficients after one Gauss-Newton step, which linearises the errors and minimises them.
    """
    weights, errors = _weights(measured, logs, engine), _errors(measured, _as_fit(logs, engine))
    moved = np.array([_errors(measured, _as_fit(logs + STEP * one, engine)) for one in np.eye(len(logs))])
    slopes = (moved - errors) / STEP
    ties = np.array([REQUEST_TIE if name == "request" else TIE for name in (*FITTED, "kv_blocks")])

    def linear(change: np.ndarray) -> np.ndarray:
        return np.concatenate([weights * (errors + change @ slopes), ties * (logs + change - begin)])

    every = np.concatenate([weights * slopes, np.diag(ties)], axis=1).T

    def slopes_of(_: np.ndarray) -> np.ndarray:
        return every

    found = least_squares(linear, np.zeros_like(logs), slopes_of, loss="soft_l1", f_scale=ROBUST,
                          bounds=(-FARTHEST, FARTHEST))
    return np.asarray(logs + found.x)


def _weights(measured: list["_Measured"], logs: np.ndarray, engine: Engine) -> np.ndarray:
    """(errors,) weights: small for latencies that depend strongly on the speed of the server. Servers of one
    kind differ in speed by SPREAD. Near saturation this difference alone changes latencies by far more than NOISE.
    """
    slower = logs + math.log1p(SPREAD)
    slower[-1] = logs[-1]
    moved = _errors(measured, _as_fit(slower, engine)) - _errors(measured, _as_fit(logs, engine))
    means = np.array([MEAN_WEIGHT if percent is None else 1.0 for one in measured for _, percent in one.logs])
    return means / np.hypot(1, moved / NOISE)


def figures_of(one: TokenBenchmark, fit: TokenFit) -> tuple[Figures, Figures]:
    """The pair of the fit's predictions for the load of a benchmark: (time to the first token, time between tokens), in
    ms. Raises InputError if the benchmark has no load, or a request does not fit the KV memory.
    """
    if one.load is None:
        raise InputError(f"{one.name}: does not tell how requests were sent; nothing to replay")
    return figures(replay_load(one.load, fit.engine, fit.costs))


def _begin(itl_ms: float) -> list[float]:
    return [value * itl_ms / TYPICAL_ITL_MS for value in TYPICAL[: len(FITTED)]]


def _as_fit(logs: np.ndarray, engine: Engine) -> TokenFit:
    *costs, kv_blocks = np.exp(logs).tolist()
    return TokenFit(TokenCosts(*costs), engine._replace(kv_blocks=round(kv_blocks)))


def _shortened(load: TokenLoad) -> tuple[TokenLoad, float]:
    """The pair (the load, cut to the requests that are replayed; the time in ms from which on its requests count)."""
    if load.rate_rps is None or load.rate_rps * load.duration_s <= MOST_REQUESTS:
        return load, 0.0
    duration_s = MOST_REQUESTS / load.rate_rps
    return load.model_copy(update={"duration_s": duration_s, "burst": 0}), 1000 * WARM_UP * duration_s


def _told_of(one: TokenBenchmark) -> tuple[TokenLoad | None, dict[tuple[int, float | None], float]]:
    """The pair (the benchmark's load, or None if its replay takes too long; the logarithms of the figures measured
    under it).
    """
    closed = one.load is not None and one.load.rate_rps is None
    long = closed and (one.completed or 0) > MOST_CLOSED
    return None if long else one.load, _logs(one)


def _logs(one: TokenBenchmark) -> dict[tuple[int, float | None], float]:
    measured = ((at, percent, value) for at, seen in enumerate((one.ttft, one.itl)) for percent, value in _told(seen))
    return {(at, percent): math.log(value) for at, percent, value in measured if value > 0}


def _told(seen: Figures) -> Iterator[tuple[float | None, float]]:
    if seen.mean is not None:
        yield None, seen.mean
    yield from ((percent, seen.percentiles[percent]) for percent in PERCENTS if percent in seen.percentiles)


def _errors(measured: list["_Measured"], fit: TokenFit) -> np.ndarray:
    """(figures,), the logarithms of predicted divided by measured figures, for all loads."""
    errors = []
    for one in measured:
        table = replay_load(one.load, fit.engine, fit.costs)
        seen = figures(table[table["sent_ms"] >= one.begin_ms])
        for (at, percent), log in one.logs.items():
            value = seen[at].mean if percent is None else seen[at].percentiles.get(percent)
            errors.append(math.log(value) - log if value else NOTHING_SEEN)
    return np.array(errors)
