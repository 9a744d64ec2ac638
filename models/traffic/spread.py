"""How much batch times vary: factors on them, drawn alike by the queues of the latency rule and by the simulator."""

import numpy as np


def service_factors(cv: float, count: int, random: np.random.Generator) -> np.ndarray:
    """Lognormal factors with mean 1 on the times of ``count`` batches, at least one; a single 1 without variation.

    Parameters
    ----------
    cv
        Coefficient of variation of the batch times.
    """
    if cv == 0:
        return np.ones(1)
    variance = np.log1p(cv**2)
    return random.lognormal(-variance / 2, np.sqrt(variance), max(count, 1))
