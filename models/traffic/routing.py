"""Which replica a request goes to, and what a replica's arrivals are then.

``random``: each replica gets its part of the requests by lot. ``round_robin``: in turns, weighted by the parts.
``least_loaded``: the replica with the fewest requests waiting; each is judged as under ``random``, which deals without
looking. That it does no worse than ``random`` is no proven bound here. A simulation routes by an estimate of what is
waiting, from what it has sent where.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from provision.models.traffic.arrivals import POISSON, Mmpp, Poisson, Renewal, Trace

Routing = Literal["random", "round_robin", "least_loaded"]


def steadiest_bound(arrivals: Poisson | Renewal | Mmpp | Trace) -> Poisson | Renewal | Mmpp | Trace:
    """Arrivals at least as irregular as those that a replica gets by lot, whatever its part of the workload.

    A lot takes the variation of gaps from the workload's own (a part of 1) to that of Poisson arrivals (a small part).
    """
    return POISSON if isinstance(arrivals, Renewal) and arrivals.cv <= 1 else arrivals


def by_lot(count: int, parts: Sequence[float], random: np.random.Generator) -> np.ndarray:
    """Which replica each of ``count`` requests goes to, drawn by the replicas' parts: (count,) indices."""
    return random.choice(len(parts), size=count, p=np.array(parts) / sum(parts))


def by_least_work(times_ns: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Which replica each request goes to: the one that would be done first with all that it was sent.

    A replica with part w of the requests is taken to serve at w times the mean rate of these arrivals, so that it is
    never idle for long and never far behind.

    Parameters
    ----------
    times_ns
        (requests,) arrival times in ns, in order.
    parts
        (replicas,) the part of each; those with none get nothing.
    """
    if len(times_ns) < 2 or times_ns[-1] == times_ns[0]:
        return in_turns(len(times_ns), parts.tolist())
    of_each_ns = np.full(len(parts), np.inf)
    np.divide((times_ns[-1] - times_ns[0]) / len(times_ns), parts, out=of_each_ns, where=parts > 0)
    from provision.models.traffic.replica_kernels import least_work  # compiled; most callers need no kernel

    owners: np.ndarray = least_work(times_ns, of_each_ns)
    return owners


def in_turns(count: int, parts: Sequence[float]) -> np.ndarray:
    """Which replica each of ``count`` requests goes to: weighted round robin.

    A replica with part w is due at (k + 1/2) / w for k = 0, 1, ...; requests go to whoever is due first, the first
    replica of equals.

    Returns
    -------
    ndarray
        (count,) indices; at any time each replica has its part of all requests, to within about one.
    """
    if len(parts) < 2:
        return np.zeros(count, np.int64)
    turns = [math.ceil(count * part) + 1 if part else 0 for part in parts]
    due = np.concatenate([(np.arange(n) + 0.5) / part if n else [] for n, part in zip(turns, parts, strict=True)])
    order = np.argsort(due, kind="stable")[:count]
    return np.repeat(np.arange(len(parts)), turns)[order]
