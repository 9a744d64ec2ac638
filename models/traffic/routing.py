"""Routes requests to replicas, and bounds the arrivals that a replica then sees.

Every replica has a weight, its fraction of the workload's requests. ``random``: a replica is drawn by weight for each
request. ``round_robin``: weighted round robin. ``least_loaded``: the replica that has the fewest requests to serve; the
latency rule treats it like ``random``, which assumes without a proof that it is never worse. A simulation estimates how
many requests wait at a replica from the requests that it has sent there.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace

Routing = Literal["random", "round_robin", "least_loaded"]


def steadiest_bound(arrivals: Poisson | Renewal | Mmpp | Trace) -> Poisson | Renewal | Mmpp | Trace:
    """Return arrivals at least as irregular as those at a replica of any weight under ``random`` routing.

    With weight 1 the replica has the workload's own arrivals; with a small weight its arrivals are nearly Poisson.
    """
    return POISSON if isinstance(arrivals, Renewal) and arrivals.cv <= 1 else arrivals


def by_lot(count: int, parts: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Draw the replica of each of ``count`` requests by the weights ``parts``; return indices of replicas, (count,)."""
    return random.choice(len(parts), size=count, p=np.array(parts) / sum(parts))


def by_least_work(times_ns: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Route each request to the replica that would first be done with all requests sent to it.

    A replica with weight w is assumed to serve w times the mean rate of these arrivals, so that it is never idle for
    long and never far behind.

    Parameters
    ----------
    times_ns
        Arrival times in ns, ascending, (requests,).
    parts
        Weights of the replicas, (replicas,); a replica with weight 0 gets no request.

    Returns
    -------
    ndarray
        Indices of replicas, (requests,).
    """
    if len(times_ns) < 2 or times_ns[-1] == times_ns[0]:
        return in_turns(len(times_ns), parts.tolist())
    of_each_ns = np.full(len(parts), np.inf)
    np.divide((times_ns[-1] - times_ns[0]) / len(times_ns), parts, out=of_each_ns, where=parts > 0)
    from provision.models.traffic.replica_kernels import least_work  # compiled on import, seldom needed

    owners: np.ndarray = least_work(times_ns, of_each_ns)
    return owners


def in_turns(count: int, parts: Sequence[float]) -> np.ndarray:
    """Route ``count`` requests by weighted round robin.

    A replica with weight w is due at the times (k + 1/2) / w for k = 0, 1, ... Each request goes to the replica that is
    due first; among several, to that with the lowest index.

    Returns
    -------
    ndarray
        Indices of replicas, (count,). At any time each replica has its fraction of all requests so far, give or take
        about one request.
    """
    if len(parts) < 2:
        return np.zeros(count, np.int64)
    turns = [math.ceil(count * part) + 1 if part else 0 for part in parts]
    due = np.concatenate([(np.arange(n) + 0.5) / part if n else [] for n, part in zip(turns, parts, strict=True)])
    order = np.argsort(due, kind="stable")[:count]
    return np.repeat(np.arange(len(parts)), turns)[order]
