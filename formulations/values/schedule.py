"""Sets the numbers that steer bounds by prices of replicas and plans of parts, and tells what each number trades.

`benchmarks/scale.py` and `benchmarks/size/large.py` measure what they give.
"""

from dataclasses import dataclass
from typing import NamedTuple

from provision.formulations.pricing.schedule import Effort

LONG = Effort(nodes=3000)
FIRST = Effort(nodes=60, close=0.05, visits=100)
QUICK = Effort(nodes=300, close=1e-3, visits=2000)


class Fineness(NamedTuple):
    """How fine the linear program of a bound is: the ``rates`` at which the values of a kind are free, and the ranges
    of rates, ``cells``, in which workloads count with their mean. If ``steps``, kinds whose workloads have one replica
    each are free at all rates. The next Fineness follows when the bound is ``within`` this part of the program's value.
    """

    rates: int
    cells: int
    steps: bool
    within: float


@dataclass(frozen=True)
class ValueSchedule:
    """The numbers that steer the search.

    Attributes
    ----------
    classes
        The most classes of a bound or a plan. More make bounds tighter, plans better, and both slower.
    patience
        The next round of a bound is expected to take this many times as long as the last one.
    members
        The least number of parts of workloads in a class of a plan, on average.
    rows
        The most levels of rates in a program of a plan, about. With more, less of each place is unused, and the program
        is larger.
    dive
        The fraction of the GPUs that a program uses in fractions, of which whole ones are taken at once. Fewer make
        better plans, and take more programs.
    quick, few
        How long each pricing of a plan may take, and the most patterns that are added from each file.
    integral, whole_s
        About the most patterns in the integer program of a plan, and its time limit in seconds.
    far, inward
        Once the best prices prove a bound within the fraction ``far`` of the program's value, patterns are priced
        between them and those of the program, which have the weight ``inward``.
    gain
        Columns that are known are added to the program, and in the first pass of a plan patterns are priced again,
        while that lowers its value by this fraction.
    together
        The most replicas of a pattern.
    lowest
        The ratio of the lowest to the highest rate at which values are free.
    slos, fineness
        The linear program of a bound: the SLOs at which values of the same models are free, and how fine it is, one
        after the other. Larger programs take longer. Each number of rates divides the next, so that prices over few
        rates are prices over more.
    slight
        The fraction by which replica sets must be cheaper, and patterns worth more, to become columns.
    grid
        The rates of a class at which replica sets are priced.
    first, over
        How long each quick pricing of a bound may take. Pricing is repeated while it lowers the program's value by the
        fraction ``over``. Known patterns are added while one exceeds the price of its slice by this fraction.
    exact, part, best
        How long exact pricing may take; if that is more, it ends at this ``part`` of the distance between the bound and
        the program's value. And the most patterns that are added for a bound.
    """

    classes: int = 128
    patience: float = 1.5
    members: int = 3
    dive: float = 0.2
    rows: int = 2000
    quick: Effort = QUICK
    few: int = 2000
    integral: int = 2000
    whole_s: float = 5.0
    first: Effort = FIRST
    over: float = 0.05
    gain: float = 2e-5
    together: int = 12
    lowest: float = 0.08
    slos: int = 5
    fineness: tuple[Fineness, ...] = (Fineness(1, 12, False, 0.03), Fineness(7, 12, False, 0.03),
                                      Fineness(21, 12, True, 0.005), Fineness(63, 48, True, 0.0))
    far: float = 0.3
    inward: float = 0.3
    slight: float = 5e-4
    grid: int = 256
    exact: Effort = LONG
    part: float = 0.1
    best: int = 1000


SCHEDULE = ValueSchedule()
