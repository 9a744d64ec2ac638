"""A latency rule of another package: a batch may take a third of the SLO."""

from provision.models.traffic.rules import HalfSlo


class Third(HalfSlo):
    """Batch times within a third of the SLO times ``safety``."""

    part_of_slo = 1 / 3
