"""Sets the numbers that steer the listing of patterns where replicas take turns, or where only an oracle tells which
patterns are valid, and tells what each number trades.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ListingSchedule:
    """The numbers.

    Attributes
    ----------
    ways, many
        The most ways to use a part of a GPU in turns that are tried. Whenever there are more than ``many``, dominated
        ways are removed before the replicas of further rows are added.
    sets
        The most sets of replicas of one workload on such a part that are listed.
    found
        The most patterns of turns that one search returns.
    draws, noise
        If only an oracle can tell which patterns are valid: how often it searches for patterns, and the most by which
        the random factors on prices differ from 1.
    listed
        The most patterns of a setting; the patterns of the highest rates are kept.
    """

    ways: int = 2_000_000
    many: int = 20_000
    sets: int = 200
    found: int = 20
    draws: int = 12
    noise: float = 0.7
    listed: int = 300


SCHEDULE = ListingSchedule()
