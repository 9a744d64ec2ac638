"""All numbers that steer the master: how long, how finely and how hard it searches.

None of them decides whether a plan holds or what a bound may claim: those are tolerances
(`provision.models.base.tolerances`). Prices and gaps are parts of the dearest GPU's price.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The numbers and what each trades.

    Attributes
    ----------
    coarse, finest, finer
        Whole-number units of a GPU's price where replica sets have several replicas: at first, at most, and the factor
        from one to the next when the bound stops rising. More units cost knapsacks time and save bounds rounding.
    slight
        A pattern gets a column if it is worth this much more than its slice. Less adds columns that change nothing.
    nearly
        Patterns whose reduced cost is at most this may help: between the central prices and in an integer program of
        all columns. More makes programs larger and plans seldom better.
    fair
        A gap that is good enough for a brief search, and by which a plan may lie above the linear program before dives
        aim lower.
    close
        A gap below which columns are as good as complete, steps of rates fine enough, and plans hard to find.
    used
        Replica sets and gaps within this count as used or closed. Less costs rounds that raise the bound by less.
    near
        The part of the linear program that a bound reaches before steps of rates are cut finer.
    inward
        How far prices are drawn from the linear program's to the central ones. More is steadier, and slower at first.
    pace
        The part of what is left that a dive rounds up in one step, and the weight of new prices in averages.
    noise
        How much is added at random to the parts of columns when a dive begins again.
    rest
        A part that is not worth looking at: columns that a round adds among all rows, and time of the limit.
    hardest, firm
        The greatest effort of pricing, and that to begin with where no replica set has several replicas.
    longer, patience
        How much longer pricing takes at the next effort, and the next integer program after one that found nothing.
    few
        Groups of workloads, places where prices of a class may jump, and GPUs left in a dive, up to which what is
        quick for a few of them is done.
    dive_from, fix_from
        Replicas from which dives fix columns, and from which the whole parts of the linear program are fixed.
    short, most
        Patterns in a brief integer program, and columns, groups of workloads and roles in any. Bounds take half as many
        groups. More takes memory and time for plans that are slightly better.
    turns, idle, again
        How often something is tried at most: around the same prices, without a better plan, and at a time. ``idle`` is
        also at how many places the prices of a larger class may jump at first.
    first_part, some, half
        Parts of the time left that a step may take: a first answer, one of many steps, and any step at all. What has
        nothing cheap left to gain ends before.
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
