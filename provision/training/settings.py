"""Settings of InSS's training that the paper leaves open, or with which training becomes unstable.

With the paper's settings, and with Q-values that are sums over the heads, training is best after some hundred episodes
and then deteriorates. ``benchmarks/papers/inss_training.py`` shows the causes:

- A change of value that concerns all heads is learned only by the choices that were taken (``centred``, ``fixed``).
- The lower of two values, taken separately for every choice, adds up to much less than the lower of two sums. Critics
  that differ then decrease each other's targets, until in some round of episodes most tasks are late (``whole``).
- Networks with a constant learning rate keep changing between choices of nearly equal value, and end at a lower reward
  (``half_life``). But if the rate decreases too early, some seeds keep a poor policy.
"""

from __future__ import annotations

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
    centred
        Whether Q is a value of the state and the sum of advantages of the choices, centred per head; else it is the
        sum of the values of the choices.
    whole
        Whether the lower of the two critics' values is taken for a state as a whole; else it is taken separately for
        the state and for every choice of every head.
    fixed
        Whether rewards are used as they are; else the best reward in the buffer is subtracted.
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
    """

    discount: float
    capacity: int
    centred: bool
    whole: bool
    fixed: bool
    half_life: float
    coldest: float
    separate: bool = False
    prioritised: bool = False
    side_by_side: int = 32
    scale: float = 0.02
    penalty: float | None = None
    spread: float = 0.5


PAPER = Settings(
    discount=0.99, capacity=10_000, centred=False, whole=False, fixed=False, half_life=inf, coldest=-inf,
)
"""The settings of Table 1. Where the paper is silent, Q-values are sums, and rewards are relative to the best reward.
"""
STABLE = Settings(
    discount=0.8, capacity=40_000, centred=True, whole=True, fixed=True, half_life=600, coldest=-6.0,
)
PROGRAM = PAPER._replace(fixed=True, separate=True, prioritised=True, side_by_side=1, scale=1.0, penalty=50.0)
"""Table 1 as the public program (``TS/trainer.py`` and ``TS/env.py``) fills it in: one learner per head, prioritised
replay, one update per transition, rewards as they are, a penalty on the mean part of late tasks."""
SETTINGS = {"stable": STABLE, "paper": PAPER, "program": PROGRAM}
