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
    fair
        The least value of a row in the local search for plans, as a part of the value of all rows.
    used
        A gap of at most this counts as closed. Less costs rounds that raise the bound by less.
    set_effort
        The greatest effort of the search for the best operating points of a set of replicas.
    longer, patience
        The factor by which pricing takes longer when its effort rises by one, and the factor by which the time limit of
        integer programs grows when one finds nothing.
    few
        How many known patterns are added to a linear program at once.
    short, most
        The most patterns in a brief integer program, and in any. More takes memory and time for plans that are slightly
        better.
    idle, again
        The most attempts: in turn without a better plan (``idle``), and within one step (``again``).
    exchanged, kicks, visits
        Limits of the local search for plans: the patterns to choose from, the times that it begins again, and the pairs
        that it compares at once. With more it finds more plans and takes longer.
    some, half
        Parts of a whole: of the seconds of a turn that its lesser steps may take, and of other quantities.
    turn_s
        The seconds of a turn of a search for plans, and of the first turn of most throughput. They do not depend on the
        time limit, so that what is known at some second does not depend on it either.
    integral_s, bound_s, served_s
        The seconds of searches that come once: the integer program over all listed patterns, bounds that need no
        columns, and the plan that carries all rates on few GPUs for the most throughput.
    whole_s, exchange_s
        Time limits, in seconds, of an integer program of rationing, and of the local search for plans.
    """

    slight: float = 2e-5
    fair: float = 0.01
    used: float = 0.002
    longer: int = 3
    set_effort: int = 2
    patience: float = 1.5
    few: int = 30
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
    integral_s: float = 20.0
    bound_s: float = 4.0
    served_s: float = 8.0
    whole_s: float = 10.0
    exchange_s: float = 1.0


SCHEDULE = Schedule()
"""The schedule that the master program uses."""
