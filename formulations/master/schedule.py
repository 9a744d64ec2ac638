"""All numbers that steer the master program's search: how long, how finely and how hard it searches.

None of these numbers decides whether a plan is feasible or a bound is valid. Tolerances decide that
(`provision.models.base.tolerances`). Prices and gaps are fractions of the dearest GPU's price.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The numbers, and what a larger or smaller value costs.

    Attributes
    ----------
    slight
        How far the value of a pattern must exceed its slice's price for the pattern to be added. With less, columns are
        added that change nothing.
    nearly
        Patterns of at most this reduced cost are used in integer programs. More makes programs larger and plans seldom
        better.
    fair
        The gap at which patterns suffice for a plan of very many replicas. Also the gap between plan and linear program
        above which dives have a slightly higher target price.
    close
        The gap below which patterns count as complete. Also the addition to the target price of dives.
    used
        A gap of at most this counts as closed. Less costs rounds that raise the bound by less.
    pace
        The fraction of the remaining patterns that a dive rounds up in one step.
    noise
        The amplitude of random numbers added to the values of columns when a dive begins again.
    hardest, firm, set_effort
        The greatest effort of pricing, the effort to begin with, and the greatest effort of the search for the best
        operating points of a set of replicas.
    longer, patience
        The factor by which pricing takes longer when its effort rises by one, and the factor by which the time limit of
        integer programs grows when one finds nothing.
    few
        Up to this number of groups and of GPUs left in a dive, steps are taken that are quick only for few.
    dive_from, fix_from
        With at least these numbers of replicas, plans come from dives, and integer programs fix the integral parts of
        the linear program.
    short, most
        The most patterns in a brief integer program, and the most groups and roles in any program; an integer program
        has about as many patterns. More takes memory and time for plans that are slightly better.
    idle, again
        The most attempts: in turn without a better plan (``idle``), and within one step (``again``).
    exchanged, kicks, visits
        Limits of the local search for plans: the patterns to choose from, the times that it begins again, and the pairs
        that it compares at once. With more it finds more plans and takes longer.
    some, half
        Parts of a whole: of the seconds of a turn that its lesser steps may take, and of other quantities.
    turn_s, growth
        The seconds of the first turn, in which columns are added and a plan is made, and the factor from each turn to
        the next. They do not depend on the time limit, so that what is known at some second does not depend on it
        either. A turn without cheap progress ends earlier. With longer turns, bounds come sooner and plans later. With
        more than ``most`` replicas, turns are longer in proportion.
    complete_s
        The seconds of the first turn if there are many workloads with one replica each: their plans come from nearly
        all columns.
    integral_s, bound_s, prices_s, served_s
        The seconds of searches that come once: the integer program over all patterns of small reduced cost, bounds that
        need no columns, the first bounds by prices of replicas where workloads may be split, and
        the plan that carries all rates on few GPUs for the most throughput.
    whole_s, exchange_s
        Time limits, in seconds, of the integer program at the end of a dive, and of the local search for plans.
    """

    slight: float = 2e-5
    nearly: float = 0.02
    fair: float = 0.01
    close: float = 0.004
    used: float = 0.002
    pace: float = 0.2
    noise: float = 0.4
    hardest: int = 7
    firm: int = 1
    longer: int = 3
    set_effort: int = 2
    patience: float = 1.5
    few: int = 30
    dive_from: int = 200
    fix_from: int = 1500
    short: int = 400
    most: int = 2000
    idle: int = 10
    again: int = 4
    exchanged: int = 50_000
    kicks: int = 40
    visits: int = 500_000
    some: float = 0.3
    half: float = 0.5
    turn_s: float = 2.0
    growth: float = 2.0
    complete_s: float = 15.0
    integral_s: float = 20.0
    bound_s: float = 4.0
    prices_s: float = 9.0
    served_s: float = 8.0
    whole_s: float = 10.0
    exchange_s: float = 1.0


SCHEDULE = Schedule()
"""The schedule that the master program uses."""
