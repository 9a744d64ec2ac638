"""Sets how long the steps of ``auto`` may take, and tells what each number trades."""

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
        All quick methods.
    turns_s
        The master program for replicas that take turns. Often it lists all patterns and proves a plan at once.
    unshared_s, few_s, walk_s
        Plans without shared slices, plans with the fewest replicas, and ruin and recreate.
    counts_s
        The program over partition counts.
    shared_s
        Plans and bounds without columns, if closed networks share slices.
    served_s
        A plan that carries all rates on few GPUs, for the most throughput.
    parts_s
        All narrower instances together.
    pooled_s
        Plans and bounds of pooled workloads, if other steps follow.
    """

    slow_s: float = 4.0
    filling_s: float = 3.0
    quick_s: float = 3.0
    turns_s: float = 6.0
    unshared_s: float = 2.0
    few_s: float = 2.0
    walk_s: float = 1.0
    counts_s: float = 6.0
    shared_s: float = 24.0
    served_s: float = 6.0
    parts_s: float = 4.0
    pooled_s: float = 30.0


SCHEDULE = Schedule()
"""The schedule of ``auto``."""
