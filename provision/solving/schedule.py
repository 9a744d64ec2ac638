"""Sets how long the steps of solving take and how much they try, and tells what each number trades."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The most seconds of the steps before the last ones. They do not depend on the time limit, so that what is known
    at some second does not depend on it either; the limit only cuts steps off. With more time, a step finds better
    plans, and the next steps begin later.

    Attributes
    ----------
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
    isolated_s
        Greedy's plans of narrower instances without sharing.
    merged_s
        After this time, no further bound of similar workloads merged into few begins.
    shared_s
        Plans and bounds without columns, if closed networks share slices.
    walk_s
        Ruin and recreate from greedy's plan, where many workloads share GPUs under interference, and before the first
        bound without columns, if closed networks share slices.
    values_s, walks_s, parts_s
        A turn of bounds by prices of replicas, one of ruin and recreate after it, and a plan of parts of workloads.
    bound_s, longest_s, longer
        The seconds of the first bound without columns and of ruin and recreate after it, those of the longest bound,
        and the factor from one to the next.
    cut
        A bound without columns that took less than this fraction of its time was not cut off, so more time cannot raise
        it.
    walked, vast
        With more pairs of models and SLO than ``walked``, or more different workloads than ``vast``, greedy does not
        plan the whole, and there is no ruin and recreate.
    slack_s, slack_part
        The search for slack takes at most the fraction ``slack_part`` of the time that the plan took, or ``slack_s`` if
        that is more, less the time to verify a plan. So there is none for large plans.
    slack_steps
        The steps of bisection for slack, of which every further one halves the error and takes a plan more.
    """

    filling_s: float = 3.0
    quick_s: float = 3.0
    turns_s: float = 6.0
    whole_s: float = 6.0
    explain_s: float = 6.0
    isolated_s: float = 0.7
    merged_s: float = 0.7
    shared_s: float = 24.0
    walk_s: float = 0.4
    values_s: float = 3.0
    walks_s: float = 1.0
    parts_s: float = 30.0
    bound_s: float = 4.0
    longest_s: float = 32.0
    longer: float = 2.0
    cut: float = 0.9
    walked: int = 2000
    vast: int = 20_000
    slack_s: float = 1.0
    slack_part: float = 0.1
    slack_steps: int = 7


@dataclass(frozen=True)
class DetourSchedule:
    """How detours plan other instances (`provision.solving.detour`), and which ones.

    Attributes
    ----------
    quick_s
        The seconds of the quick plans of all other instances together.
    turn_s, longer
        The seconds of the first turn of an instance, and the factor from one turn to the next. Longer turns prove more
        instances; shorter ones give a plan sooner if the first instances have none.
    numbers, replicas
        Even replicas (`provision.solving.policies`): the most choices of numbers of replicas, where more prove larger
        instances and cost a plan each; and the most replicas of a choice: larger instances take too long for a turn.
    spreads
        Survival of GPUs (`provision.solving.policies`) and of places (`provision.solving.placed`): over how
        many numbers of them rates are spread, each of which takes time from the others.
    deal_s, least_deal_s
        The most and the fewest seconds of one dealing of GPUs to nodes. With more of them a dealing of many GPUs is
        found more often, and other instances wait.
    """

    quick_s: float = 3.0
    turn_s: float = 1.0
    longer: float = 2.0
    numbers: int = 24
    replicas: int = 2000
    spreads: int = 3
    deal_s: float = 10.0
    least_deal_s: float = 0.2


@dataclass(frozen=True)
class SolveSchedule:
    """How ``provision.solve`` divides its time limit, when it leaves a search that does not end
    (`provision.solving.worker`), how it replays plans (`provision.solving.replayed`), and how it repairs those that
    replays or memory refute (`provision.solving.repair`).

    Attributes
    ----------
    searched
        The fraction of the limit for the search if replays, or another plan within the memory, may follow. A longer
        search leaves shorter replays and fewer repairs.
    beginning
        The largest fraction of the limit for a plan to begin with.
    tables
        The fraction of the limit for latency tables that are not on disk yet; after it they are coarse. With more of it
        tables are exact more often, and the search begins later.
    least_s
        The fewest seconds of a search, however long reading or an earlier search took. The time limit may be exceeded
        by as much.
    grace, least_grace_s, most_grace_s
        After its limit or a signal, a search in a process of its own may go on for the fraction ``grace`` of its limit,
        but at least for these seconds. Longer, and fewer answers are lost; shorter, and the limit holds better.
    look_s
        The seconds between two looks, while nothing is told, at whether that process should be left.
    replays, shortest_s
        The number of replays, and the shortest in seconds. More of them tell better how minutes differ.
    requests
        The most requests of all replays of a plan, which take a few seconds.
    each_requests
        The requests of each language model in a replay, if ``requests`` allows so many. Near saturation, few tell
        little.
    clear
        A plan is refuted if the fraction of late requests exceeds the allowed fraction by this many standard errors.
    cluster
        If there is only one replay, this many requests count as one independent request: late requests come in
        clusters, which last as long as a queue stays full, and a single replay does not show how replays vary.
    times, planning
        How often the whole instance is planned again at most, and the fraction of the time left for each. The rest is
        for replaying that plan, and for planning once more.
    spare, least_slo
        Late workloads are planned with the SLO that the replay would have kept, times ``spare``, and at least with the
        fraction ``least_slo`` of their SLO. With less of them the plan is in time sooner, and dearer.
    """

    searched: float = 0.7
    beginning: float = 0.1
    tables: float = 0.5
    least_s: float = 0.5
    grace: float = 0.05
    least_grace_s: float = 0.3
    most_grace_s: float = 5.0
    look_s: float = 0.05
    replays: int = 16
    shortest_s: float = 1.0
    requests: float = 4e6
    each_requests: int = 10_000
    clear: float = 3.0
    cluster: int = 25
    times: int = 4
    planning: float = 0.35
    spare: float = 0.98
    least_slo: float = 0.5


@dataclass(frozen=True)
class CertificateSchedule:
    """What certificates state (`provision.solving.certificate`).

    Attributes
    ----------
    cuts
        The most cuts: the last ones that raised the bound. Further cuts take time and raise the bound only a little.
    steps, lowest
        In how many steps a value that rises with a replica's rate is stated, for one workload; and the part of the
        workload's rate below which all replicas have the same value. More steps lose less of the value, and take more
        lines.
    """

    cuts: int = 8
    steps: int = 200
    lowest: float = 0.01


SCHEDULE, DETOURS, SOLVE, CERTIFICATE = Schedule(), DetourSchedule(), SolveSchedule(), CertificateSchedule()
