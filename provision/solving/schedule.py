"""Sets how long the steps of ``auto``, of detours and of closed networks take, and tells what each number trades."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The most seconds of the steps before the last ones. They do not depend on the time limit, so that what is known
    at some second does not depend on it either; the limit only cuts steps off. With more time, a step finds better
    plans, and the next steps begin later.

    Attributes
    ----------
    slow_s
        If the first plan took longer than this, all steps have more time in proportion.
    filling_s
        Greedy, if it searches for the most throughput.
    quick_s
        Plans of replicas that take turns, from sums of their parts.
    turns_s
        The master program for replicas that take turns. Often it lists all patterns and proves a plan at once.
    whole_s
        The integer program for most throughput of isolated slices.
    explain_s
        Plans for lower rates, which tell what a fleet that is too small could carry.
    isolated_s, similar_s
        Greedy's plans of narrower instances without sharing, and its plan of similar workloads as equal ones.
    merged_s
        After this time, no further bound of similar workloads merged into few begins.
    shared_s
        Plans and bounds without columns, if closed networks share slices.
    walk_s
        Ruin and recreate from greedy's plan, where many workloads share GPUs under interference.
    pooled_s
        Plans and bounds of classes of workloads, if other steps follow.
    distinct
        With more pairs of models and SLO than this, a plan of classes of workloads comes before the master program,
        whose first plan takes long.
    walked, vast
        With more pairs of models and SLO than ``walked``, or more different workloads than ``vast``, plans and bounds
        of classes take the place of the master program.
    slack_s, slack_part
        The search for slack takes at most the fraction ``slack_part`` of the time that the plan took, but may always
        take ``slack_s``.
    """

    slow_s: float = 4.0
    filling_s: float = 3.0
    quick_s: float = 3.0
    turns_s: float = 6.0
    whole_s: float = 6.0
    explain_s: float = 6.0
    isolated_s: float = 0.7
    similar_s: float = 4.0
    merged_s: float = 0.7
    shared_s: float = 24.0
    walk_s: float = 0.4
    pooled_s: float = 30.0
    distinct: int = 200
    walked: int = 2000
    vast: int = 20_000
    slack_s: float = 1.0
    slack_part: float = 0.1


@dataclass(frozen=True)
class SimilarSchedule:
    """Which workloads are planned as equal ones (`provision.solving.steps.similar`).

    Attributes
    ----------
    slos, rates
        The most ranges of SLOs and of rates. With more of them the plan is cheaper and comes later.
    part
        There is such a plan if the number of distinct workloads falls to this part.
    """

    slos: int = 4
    rates: int = 8
    part: float = 0.2


@dataclass(frozen=True)
class DetourSchedule:
    """The seconds for which a detour plans other instances (`provision.solving.detour`).

    Attributes
    ----------
    quick_s
        The quick plans of all other instances together.
    first, turn_s
        How many other instances are planned in the first round, and for how long each. Longer turns prove more of them;
        shorter ones give a plan sooner if the first instances have none.
    more, longer
        The factors on both numbers from one round to the next.
    """

    quick_s: float = 3.0
    first: int = 4
    turn_s: float = 1.0
    more: int = 2
    longer: float = 2.0


@dataclass(frozen=True)
class NetworksSchedule:
    """The turns of ruin and recreate and of bounds without columns, if closed networks share slices
    (`provision.solving.master`).

    Attributes
    ----------
    offer_s, walk_s
        The seconds after which the first plan of ruin and recreate is offered, and after which the first bound begins.
    bound_s, longest_s, longer
        The seconds of the first bound and of the walk after it, those of the longest bound, and the factor from one to
        the next.
    cut
        A bound that took less than this fraction of its time was not cut off, so more time cannot raise it.
    steps
        The most iterations of ruin and recreate in one turn.
    """

    offer_s: float = 0.1
    walk_s: float = 0.4
    bound_s: float = 4.0
    longest_s: float = 32.0
    longer: float = 2.0
    cut: float = 0.9
    steps: int = 100_000


SCHEDULE = Schedule()
"""The schedule of ``auto``."""
DETOUR = DetourSchedule()
"""The schedule of all detours."""
NETWORKS = NetworksSchedule()
"""The schedule of plans and bounds without columns."""
SIMILAR = SimilarSchedule()
"""The schedule of similar workloads."""
