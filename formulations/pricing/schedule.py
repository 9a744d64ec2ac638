"""Sets the numbers that steer pricing for every way of sharing, and tells what each number trades. Rooms of single ways
have schedules of their own.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PricingSchedule:
    """The numbers.

    Attributes
    ----------
    ways, many
        The most ways to use a part of a GPU in turns that are tried. Whenever there are more than ``many``, dominated
        ways are removed before the replicas of further rows are added.
    sets
        The most sets of replicas of one workload on such a part that are listed.
    found
        The most patterns that one search by knapsacks tries.
    draws, noise
        If only an oracle can tell which patterns are valid: how often it searches for patterns, and the most by which
        the random factors on prices differ from 1.
    listed
        The most patterns of a setting; the patterns of the highest rates are kept.
    tried
        The most patterns, or levels with patterns, that one pricing of rates takes: the best ones.
    kept, block, sparse
        The most undominated rows of a list; the rows of the first block that is searched for them, where each further
        block has twice as many; and the part of the rows below which the remaining ones are copied to a new table.
    parts
        If a pattern does not fit the memory, these prices of all memory are tried, as fractions of the pattern's value.
    longest, cells
        Of isolated replicas: the most prices that the table of a knapsack distinguishes; and the most cells of one
        table of replica sets, where workloads that need more cells together are divided among several tables.
    """

    ways: int = 2_000_000
    many: int = 20_000
    sets: int = 200
    found: int = 40
    draws: int = 12
    noise: float = 0.7
    listed: int = 300
    tried: int = 12
    kept: int = 2000
    block: int = 4096
    sparse: float = 0.7
    parts: tuple[float, ...] = (0.25, 0.5, 1.0)
    longest: int = 200_000
    cells: int = 2**22


SCHEDULE = PricingSchedule()
