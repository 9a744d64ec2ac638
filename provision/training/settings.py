"""What the paper's training of InSS leaves open or sets so that it falls apart, and what was chosen instead.

With the paper's settings and Q-values that are sums over the heads, training reaches its best after some hundred
episodes and falls apart beyond: a shift that all heads share lands on the choices that were taken alone, and what is
left in the buffer are the transitions of a nearly deterministic policy. ``benchmarks/papers/inss_training.py`` takes
the settings apart.
"""

from __future__ import annotations

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
    fixed
        Whether rewards are learned from as they are; else as what they fall short of the best in the buffer.
    coldest
        Logarithm of the temperature below which it does not fall.
    """

    discount: float
    capacity: int
    centred: bool
    fixed: bool
    coldest: float


PAPER = Settings(discount=0.99, capacity=10_000, centred=False, fixed=False, coldest=float("-inf"))
"""Table 1; Q-values are sums and rewards relative to the best, where the paper does not say."""
STABLE = Settings(discount=0.8, capacity=40_000, centred=True, fixed=True, coldest=-6.0)
SETTINGS = {"stable": STABLE, "paper": PAPER}
