"""What the paper's training of InSS leaves open or sets so that it falls apart, and what was chosen instead.

With the paper's settings and Q-values that are sums over the heads, training reaches its best after some hundred
episodes and falls apart beyond. What was found, ``benchmarks/papers/inss_training.py`` shows it:

- a shift that all heads share lands on the choices that were taken alone (``centred``, ``fixed``);
- the lower of two values, taken for every choice by itself, adds up to far less than the lower of two sums; critics
  that differ pull each other's targets down, until some round of episodes has late tasks in heaps (``whole``);
- networks that go on learning at one rate keep changing between choices that are nearly equal and end at a lower reward
  (``half_life``); slowing down while little is learned yet leaves a seed at a poor policy.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class Settings(NamedTuple):
    """How the agent learns.

    Attributes
    ----------
    discount
        Of rewards (gamma).
    capacity
        Transitions that the buffer holds.
    centred
        Whether Q is a value of the state and the sum of advantages of the choices, centred per head; else it is the
        sum of the values of the choices.
    whole
        Whether the lower of the two critics' values counts for a state as a whole; else for the state and for every
        choice of every head by itself.
    fixed
        Whether rewards are learned from as they are; else as what they fall short of the best in the buffer.
    half_life
        Episodes H after which the networks learn at half of their rate; after e it is cut by 2 to the power (e / H)^2.
    coldest
        Logarithm of the temperature below which it does not fall.
    """

    discount: float
    capacity: int
    centred: bool
    whole: bool
    fixed: bool
    half_life: float
    coldest: float


PAPER = Settings(
    discount=0.99, capacity=10_000, centred=False, whole=False, fixed=False, half_life=inf, coldest=-inf,
)
"""Table 1; Q-values are sums and rewards relative to the best, where the paper does not say."""
STABLE = Settings(
    discount=0.8, capacity=40_000, centred=True, whole=True, fixed=True, half_life=600, coldest=-6.0,
)
SETTINGS = {"stable": STABLE, "paper": PAPER}
