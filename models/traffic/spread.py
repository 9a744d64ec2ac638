"""Draws random factors on batch times, for the replays of the latency rule and for the simulator."""

import numpy as np


def service_factors(cv: float, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw lognormal factors with mean 1 on the times of ``count`` batches; if ``cv`` is 0, a single 1.

    Parameters
    ----------
    cv
        The coefficient of variation of the batch times.
    """
    if cv == 0:
        return np.ones(1)
    variance = np.log1p(cv**2)
    return random.lognormal(-variance / 2, np.sqrt(variance), max(count, 1))
