"""All numbers that steer the master: how long, how finely and how hard it searches.

None of them decides whether a plan is feasible or a bound valid: that is decided by tolerances
(`provision.models.base.tolerances`). Prices and gaps are fractions of the dearest GPU's price.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The numbers and what each trades.

    Attributes
    ----------
    coarse, finest, finer
        Whole-number units of a GPU's price where replica sets have several replicas: at first, at most, and the factor
        from one to the next when the bound stops rising. More units make knapsacks slower and bounds less rounded.
    slight
        A pattern is added if its value exceeds its slice's price by this. Less adds columns that change nothing.
    nearly
        Patterns with at most this reduced cost are added at prices between, and used in an integer program of all
        columns. More makes programs larger and plans seldom better.
    fair
        A gap that suffices for a brief search, and by which a plan may be above the linear program before dives have a
        lower target price.
    close
        A gap below which columns count as complete, the grid of rates as fine enough, and plans as hard to find.
    used
        Replica sets and gaps within this count as used or closed. Less costs rounds that raise the bound by less.
    near
        The fraction of the linear program's value that a bound reaches before the grid of rates is refined.
    inward
        Weight of the central prices, against the linear program's, in pricing. More is steadier, and slower at first.
    pace
        The fraction of the remaining columns that a dive rounds up in one step, and the weight of new prices in
        averages.
    noise
        The amplitude of random numbers added to the values of columns when a dive begins again.
    rest
        A fraction that is ignored: of columns that a round adds, relative to all rows, and of the time limit.
    hardest, firm
        The greatest effort of pricing, and the first effort where no replica set has several replicas.
    longer, patience
        The factor by which pricing takes longer at the next effort, and the next integer program after one that found
        nothing.
    few
        The number of workload groups, of places where prices of a class may jump, and of GPUs left in a dive, up to
        which steps are taken that are quick only for few of them.
    dive_from, fix_from
        Numbers of replicas from which on dives fix columns, and the integral parts of the linear program are fixed.
    short, most
        The most patterns in a brief integer program; and the most columns, groups and roles in any. Bounds take half as
        many groups. More takes memory and time for plans that are slightly better.
    turns, idle, again
        The most tries: around the same prices, without a better plan, and at one time. ``idle`` is also the number of
        places at which the prices of a larger class may jump at first.
    first_part, some, half
        Fractions of the remaining time that a step may take: a first answer, one of many steps, and any step. A step
        without cheap progress ends earlier.
    brief_s, whole_s
        Seconds of a first integer program, and of the one at the end of a dive.
    """

    coarse: int = 1500
    finest: int = 24_000
    finer: int = 4
    slight: float = 2e-5
    nearly: float = 0.02
    fair: float = 0.01
    close: float = 0.004
    used: float = 0.002
    near: float = 0.985
    inward: float = 0.3
    pace: float = 0.2
    noise: float = 0.4
    rest: float = 0.05
    hardest: int = 7
    firm: int = 1
    longer: int = 3
    patience: float = 1.5
    few: int = 30
    dive_from: int = 200
    fix_from: int = 1500
    short: int = 400
    most: int = 2000
    turns: int = 20
    idle: int = 10
    again: int = 4
    first_part: float = 0.1
    some: float = 0.3
    half: float = 0.5
    brief_s: float = 0.5
    whole_s: float = 10.0


SCHEDULE = Schedule()
"""The numbers that are used unless others are asked for."""
