"""Routes requests to replicas, and bounds the arrivals that a replica then sees.

Every replica has a weight, its fraction of the workload's requests. ``random``: a replica is drawn by weight for each
request. ``round_robin``: weighted round robin. ``least_loaded``: the replica that has the fewest requests, waiting and
running, per weight, as nginx's ``least_conn``; the latency rule treats it like ``random``, which assumes without a
proof that it is not worse. A simulation routes by the queues that it replays (`provision.simulation.fewest`).
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
