"""A latency rule of another package: a batch may take a third of the SLO."""

from provision.models.traffic.half_slo import HalfSlo


class Third(HalfSlo):
    """Batch times within a third of the SLO times ``safety``."""

    def budget_ms(self, slo_ms, safety):
        return slo_ms * safety / 3
