"""The arrival times of requests, and the replica of each request."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..records import Tree, UndecidedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CALM = 20.0
"""The longest gap between requests that is replayed, in latency limits."""


def arrival_times(process: Tree, rate_rps: float, requests: int, rng: np.random.Generator) -> Floats:
    """The arrival times of about ``requests`` requests in ms, ascending from 0."""
    kind = process.get("process", "poisson")
    gap_ms = 1000 / rate_rps
    if kind == "poisson":
        return np.cumsum(rng.exponential(gap_ms, requests))
    if kind == "renewal":
        return np.cumsum(_gaps(float(process["cv"]), gap_ms, requests, rng))
    if kind == "mmpp":
        return _switching(process, gap_ms, requests, rng)
    if kind == "trace":
        return _recorded(Path(process["path"]), gap_ms, requests, rng)
    raise UndecidedError(f"arrivals {kind} are unknown here")


def calmed(arrived: Floats, limit_ms: float) -> Floats:
    """The arrival times in ms, with every gap cut to at most CALM times ``limit_ms``, the latency limit.

    The cut changes no latency: a replica that keeps its limit is idle long before such a gap ends. Without it, rare
    requests would lead to arrival times so large that floating-point numbers could not hold their milliseconds.
    """
    return np.cumsum(np.minimum(np.diff(arrived, prepend=0.0), CALM * limit_ms))


def _gaps(cv: float, mean: float, many: int, rng: np.random.Generator) -> Floats:
    """Gaps with a gamma distribution. With ``cv`` 0, all gaps are equal, and the first is cut at a random point."""
    if cv == 0:
        gaps = np.full(many, mean)
        gaps[0] = mean * rng.random()
        return gaps
    return rng.gamma(1 / cv**2, mean * cv**2, many)


def _switching(process: Tree, gap_ms: float, many: int, rng: np.random.Generator) -> Floats:
    """The arrivals of a Poisson process whose rate switches between a high and a low value after exponential times."""
    ratio, share = float(process["high_over_mean"]), float(process["high_share"])
    low = (1 - ratio * share) / (1 - share)
    if low < 0:
        raise UndecidedError("mmpp: high_over_mean times high_share is above 1")
    high_ms = 1000 * float(process["mean_high_s"])
    end, now, found = many * gap_ms, 0.0, []
    high = bool(rng.random() < share)
    while now < end:
        length = rng.exponential(high_ms if high else high_ms * (1 - share) / share)
        arrived = rng.poisson((ratio if high else low) * length / gap_ms)
        found.append(now + np.sort(rng.random(arrived)) * length)
        now, high = now + length, not high
    return np.concatenate(found)


def _recorded(path: Path, gap_ms: float, many: int, rng: np.random.Generator) -> Floats:
    """A recorded trace, scaled to the rate. It starts at a random request and continues with its beginning after its
    end.
    """
    recorded = np.loadtxt(path, ndmin=1)
    gaps = np.diff(recorded, append=recorded[-1] + (recorded[-1] - recorded[0]) / max(len(recorded) - 1, 1))
    gaps = np.roll(gaps * gap_ms / gaps.mean(), -int(rng.integers(len(gaps))))
    return np.cumsum(np.resize(gaps, many))


def dealt(requests: int, weights: Floats, routing: str, rng: np.random.Generator) -> Ints:
    """The replica of every request: drawn with the weights as probabilities, or by weighted round robin."""
    if len(weights) == 1:
        return np.zeros(requests, np.int64)
    if routing == "random":
        return rng.choice(len(weights), requests, p=weights / weights.sum())
    return _round(weights / weights.sum(), requests)


def _round(parts: Floats, requests: int) -> Ints:
    """Smooth weighted round robin: with weight w, a replica gets its k-th request at the time (k - 1/2) / w."""
    many = np.ceil(parts * requests).astype(np.int64) + 1
    due = np.concatenate([(np.arange(count) + 0.5) / part for count, part in zip(many, parts, strict=True) if part > 0])
    who = np.repeat(np.flatnonzero(parts > 0), many[parts > 0])
    return who[np.argsort(due, kind="stable")][:requests].astype(np.int64)
