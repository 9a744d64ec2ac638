"""Settings of InSS's training that the paper leaves open, or with which training becomes unstable.

With Table 1 as it stands and Q-values that are sums over the heads, training is best after some hundred episodes and
then deteriorates. So here Q is a value of the state and the sum of advantages of the choices, centred per head; the
lower of the two critics' values is taken for a state as a whole (taken for every choice, it adds up to much less, and
critics that differ decrease each other's targets); and networks learn ever more slowly (``half_life``), as they
otherwise keep changing between choices of nearly equal value.
"""

from math import inf
from typing import NamedTuple


class Settings(NamedTuple):
    """Settings of the agent's learning.

    Attributes
    ----------
    discount
        The discount factor of rewards (gamma).
    capacity
        The number of transitions in the buffer.
    half_life
        The number of episodes H after which the learning rate of the networks is halved; after e episodes it is divided
        by 2 to the power of (e / H)^2.
    coldest
        Logarithm of the least temperature.
    separate
        Whether every head learns the whole return by itself, as in the public program, and the temperature follows that
        program's loss, in which the logarithms of all choices count alike; else Q is a sum over the heads.
    prioritised
        Whether transitions are drawn in proportion to their latest squared errors; else all alike.
    side_by_side
        Number of episodes that run at the same time and share every update; 1 for one update per transition.
    scale
        Factor on the rewards that are learned.
    penalty
        Reward lost when all tasks of all workloads are late; None for eq. 3 with the paper's penalty per workload.
    spread
        The part of the system's rates by which the rates of an episode are at most above or below them.
    by_data
        Whether batches take as long as the performance data says, not as InSS's equations say by which they are chosen.
    """

    discount: float
    capacity: int
    half_life: float
    coldest: float
    separate: bool = False
    prioritised: bool = False
    side_by_side: int = 32
    scale: float = 0.02
    penalty: float | None = None
    spread: float = 0.5
    by_data: bool = False


STABLE = Settings(discount=0.8, capacity=40_000, half_life=600, coldest=-6.0, by_data=True)
PROGRAM = Settings(discount=0.99, capacity=10_000, half_life=inf, coldest=-inf, separate=True, prioritised=True,
                   side_by_side=1, scale=1.0, penalty=50.0)
"""Table 1 as the public program (``TS/trainer.py`` and ``TS/env.py``) fills it in: one learner per head, prioritised
replay, one update per transition, rewards as they are, a penalty on the mean part of late tasks."""
SETTINGS = {"stable": STABLE, "program": PROGRAM}
