"""Sets the numbers that steer plans and bounds for many workloads, and tells what each number trades.

`benchmarks/size/large.py` measures what they give.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Size(NamedTuple):
    """The most classes of the plan, the most ranges of rates of each, and the most classes of the pooled bound, where
    there are at least ``least_s`` seconds.
    """

    least_s: float
    plan_classes: int
    plan_ranges: int
    bound_classes: int


@dataclass(frozen=True)
class LargeSchedule:
    """The numbers that steer the search.

    Attributes
    ----------
    sizes
        Classes and ranges by the time that there is. With more of them, plans and bounds are better, and take longer.
    first_classes
        The classes of a first bound, which takes seconds.
    plan_share
        The fraction of the remaining time that the program of the plan may take.
    members
        The least number of workloads in a class of a plan, on average. In smaller classes much is left over.
    passes
        How often what is left is planned again.
    climbs, starts
        The most rounds of local search for patterns in the first pass, and the patterns that each round begins with.
    moves
        A climb ends after this many moves in turn that did not raise the value.
    gain
        Local search goes on while a round lowers the program's value by this fraction.
    together
        The most replicas of a pattern.
    step, lowest
        The ratio between successive levels of rates, and the lowest level as a fraction of the highest. With more
        levels, less of each place is unused, and the program is larger.
    full
        Up to this number of replicas of a replica set are as large as a GPU type allows; two carry the rest.
    new
        The most patterns that are added to the program at once.
    units
        The price of the dearest GPU in the whole-number units in which replica sets are priced.
    whole_classes
        The classes of the bound that counts whole replicas. More of them make the bound tighter.
    slos, value_step, cell_rates
        The linear program of that bound: the SLOs at which values of the same models are free, the ratio between
        successive rates at which they are, and the ranges of rates of workloads. Larger programs take longer.
    set_rounds, slight
        How often replica sets are added before patterns are priced, and by which fraction they must be cheaper.
    columns, alone
        The columns that stay in the program, and the most patterns of one replica.
    fine, grid
        The steps between two levels in local search, and the rates of a class at which replica sets are priced.
    nodes, close, room, best
        Exact pricing: the most nodes, the relative distance at which it ends, the patterns that it may find, and those
        that are added.
    """

    sizes: tuple[Size, ...] = (Size(0, 16, 12, 16), Size(100, 32, 32, 64), Size(500, 96, 64, 64))
    first_classes: int = 8
    plan_share: float = 0.6
    members: int = 20
    passes: int = 6
    climbs: int = 12
    starts: int = 400
    moves: int = 150
    gain: float = 5e-4
    together: int = 12
    step: float = 1.06
    lowest: float = 0.08
    full: int = 6
    new: int = 2000
    units: int = 6000
    whole_classes: int = 128
    slos: int = 5
    value_step: float = 1.14
    cell_rates: int = 12
    set_rounds: int = 4
    slight: float = 5e-4
    columns: int = 6000
    alone: int = 10**6
    fine: int = 4
    grid: int = 256
    nodes: int = 3000
    close: float = 5e-4
    room: int = 5000
    best: int = 400


SCHEDULE = LargeSchedule()
