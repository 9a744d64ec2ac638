"""A bound on the share of requests that a replica starts late when it takes turns."""

import numpy as np

from provision.models.traffic.turn_rule import waits_of


def late_share(batch, per_cycle, allowed_cycles):
    """Of Poisson arrivals, ``per_cycle`` in a cycle that starts up to ``batch``, those not started within a time."""
    waits = waits_of(batch, per_cycle)
    reached = int(np.searchsorted(waits.cycles, allowed_cycles + 1e-12, side="right"))
    return float(waits.late[reached - 1]) if reached else 1.0
