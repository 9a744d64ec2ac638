"""Sets the numbers that steer pricing of slices that closed networks share, and tells what each number trades."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworksPricing:
    """The numbers.

    Attributes
    ----------
    nodes, more, hardest
        The nodes of the quickest search for patterns that carry rates, the factor by which each further effort opens
        more, and the greatest effort.
    room
        The most patterns that are listed at once.
    climbs, sharing
        How many times a pattern is improved step by step in one call of pricing, and the replicas with which it begins.
    starts
        From how many points of two groups the listed patterns are improved.
    units
        Units of utilisation in the quickest search for patterns of roles, and in all others.
    found
        The most patterns of roles that one search returns.
    promising
        Levels whose estimate is below this fraction of the best pattern's value are skipped.
    choices
        The most batch sizes of a workload at a level. There are several because a part of its rate fills only smaller
        batches.
    block
        The number of workloads whose choices are computed at once; more of them take more memory.
    mixed
        To how many of the best groups in turn a place of a pattern is given, for the most throughput.
    """

    nodes: int = 1000
    more: int = 4
    hardest: int = 3
    room: int = 4000
    climbs: int = 6
    sharing: int = 3
    starts: int = 3
    units: tuple[int, int] = (64, 120)
    found: int = 40
    promising: float = 0.8
    choices: int = 3
    block: int = 256
    mixed: int = 4


SCHEDULE = NetworksPricing()
