"""Coefficients of model kind `tokens` from what load generators measured, one joint fit over all loads.

Every load is replayed (continuous batching from event to event), and the logarithms of what its clients saw are brought
close to what they saw in truth: means, medians, P95 and P99 of the time to the first token and between tokens. Least
squares with a robust loss (Huber's pseudo-norm), because some servers stall; weak ties to a typical engine keep
coefficients in place that the loads do not tell.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenLoad
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.replays import PERCENTS, figures, replay_load
from provision.models.performance.tokens.step import TokenCosts

TYPICAL = TokenCosts(
    step=2.5, weights=4.2, token=0.022, several=0.25, sequence=0.02, context=4e-5, prefill=1.0, attended=8e-7,
    request=2.5, read=1e-3, idle=15.0, delivery=4.0, delivery_sequence=0.003, hiccup=10.0,
)  # fmt: skip
"""Where fits begin: Llama-3.1-8B on an H100 by their data sheets, with round guesses of what these do not tell. 16 GB
of weights and 131 kB of KV cache per token at 3.35 TB/s; 16 GFLOP per token and 0.5 MFLOP per attended pair at 700
TFLOP/s."""
TYPICAL_ITL_MS = 6.7
"""What it needs per token of a single request; others begin in proportion."""
TIE, REQUEST_TIE = 0.3, 3.0
"""Weights of a coefficient's distance (in powers of e) from where the fit began. The time that a request occupies the
front end is tied more closely: short of saturation it looks like any other delay, and a fit that takes it for too long
sees front ends saturated under the loads of shorter requests."""
MEAN_WEIGHT = 2.0
ROBUST = 0.1
"""Relative errors much larger than this count linearly, not squared."""
SPREAD = 0.03
"""How much servers of one kind differ in speed."""
NOISE = 0.05
"""How much repeated measurements differ."""
STEP = 0.03
"""Difference of logarithms for slopes; large, as replays jump a little wherever an event changes places."""
STEPS, FARTHEST = 3, 1.0
"""Steps of a fit, and how far one goes at most (in powers of e)."""
MOST_REQUESTS = 4000
"""Loads at a rate are cut to so many requests, without the burst at their start."""
WARM_UP = 0.4
"""Part of the requests of a load so cut that does not count: near saturation queues are slow to settle."""
MOST_CLOSED = 8000
"""Closed loads that answered more requests are left out: of short requests at a high concurrency, costly to replay."""
NOTHING_SEEN = 2.0
"""Error (in powers of e) where the replay answers nobody."""


class _Measured(NamedTuple):
    """A load, from when on requests count, and logarithms of what was measured, by figure (0, 1) and percent.

    The percent is None for the mean.
    """

    load: TokenLoad
    begin_ms: float
    logs: dict[tuple[int, float | None], float]


class TokenFit(NamedTuple):
    """Coefficients, and the engine with the KV memory that the loads tell."""

    costs: TokenCosts
    engine: Engine


def fit_tokens(benchmarks: Sequence[TokenBenchmark], engine: Engine, steps: int = STEPS) -> TokenFit:
    """One fit for all benchmarks of a model on one type of GPU.

    Parameters
    ----------
    benchmarks
        Those with a load; the others are left out.
    engine
        Its limits; ``kv_blocks`` is where the fit begins.
    steps
        Of Gauss and Newton.

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
    for _ in range(steps):
        logs = _closer(measured, logs, begin, engine)
    return _as_fit(logs, engine)


def _closer(measured: list["_Measured"], logs: np.ndarray, begin: np.ndarray, engine: Engine) -> np.ndarray:
    """One step of Gauss and Newton: the least errors if all were linear in the logarithms of coefficients."""
    weights, errors = _weights(measured, logs, engine), _errors(measured, _as_fit(logs, engine))
    moved = np.array([_errors(measured, _as_fit(logs + STEP * one, engine)) for one in np.eye(len(logs))])
    slopes = (moved - errors) / STEP
    ties = np.array([REQUEST_TIE if name == "request" else TIE for name in (*TokenCosts._fields, "kv_blocks")])

    def linear(change: np.ndarray) -> np.ndarray:
        return np.concatenate([weights * (errors + change @ slopes), ties * (logs + change - begin)])

    every = np.concatenate([weights * slopes, np.diag(ties)], axis=1).T

    def slopes_of(_: np.ndarray) -> np.ndarray:
        return every

    found = least_squares(linear, np.zeros_like(logs), slopes_of, loss="soft_l1", f_scale=ROBUST,
                          bounds=(-FARTHEST, FARTHEST))
    return np.asarray(logs + found.x)


def _weights(measured: list["_Measured"], logs: np.ndarray, engine: Engine) -> np.ndarray:
    """Weights of errors: the smaller, the more an error tells of a server that is a little slower than others.

    Servers of one kind differ by ``SPREAD``. Near saturation that alone moves latencies by far more than ``NOISE``.
    """
    slower = logs + math.log1p(SPREAD)
    slower[-1] = logs[-1]
    moved = _errors(measured, _as_fit(slower, engine)) - _errors(measured, _as_fit(logs, engine))
    means = np.array([MEAN_WEIGHT if percent is None else 1.0 for one in measured for _, percent in one.logs])
    return means / np.hypot(1, moved / NOISE)


def figures_of(one: TokenBenchmark, fit: TokenFit) -> tuple[Figures, Figures]:
    """What the fit predicts for a benchmark's load: time to first token and between tokens, in ms.

    Raises
    ------
    InputError
        If the benchmark has no load, or a request that does not fit the KV memory.
    """
    if one.load is None:
        raise InputError(f"{one.name}: does not tell how requests were sent; nothing to replay")
    return figures(replay_load(one.load, fit.engine, fit.costs))


def _begin(itl_ms: float) -> TokenCosts:
    return TokenCosts(*(value * itl_ms / TYPICAL_ITL_MS for value in TYPICAL))


def _as_fit(logs: np.ndarray, engine: Engine) -> TokenFit:
    *costs, kv_blocks = np.exp(logs).tolist()
    return TokenFit(TokenCosts(*costs), engine._replace(kv_blocks=round(kv_blocks)))


def _shortened(load: TokenLoad) -> tuple[TokenLoad, float]:
    """A load cut to so many requests as are replayed, and from when on they count, in ms."""
    if load.rate_rps is None or load.rate_rps * load.duration_s <= MOST_REQUESTS:
        return load, 0.0
    duration_s = MOST_REQUESTS / load.rate_rps
    return load.model_copy(update={"duration_s": duration_s, "burst": 0}), 1000 * WARM_UP * duration_s


def _told_of(one: TokenBenchmark) -> tuple[TokenLoad | None, dict[tuple[int, float | None], float]]:
    """A benchmark's load, unless its replay takes long, and what was measured under it."""
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
    """Logarithms of what the fit predicts over what was measured."""
    errors = []
    for one in measured:
        table = replay_load(one.load, fit.engine, fit.costs)
        seen = figures(table[table["sent_ms"] >= one.begin_ms])
        for (at, percent), log in one.logs.items():
            value = seen[at].mean if percent is None else seen[at].percentiles.get(percent)
            errors.append(math.log(value) - log if value else NOTHING_SEEN)
    return np.array(errors)
