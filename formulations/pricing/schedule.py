"""Sets the numbers that steer pricing for every way of sharing, and tells what each number trades. Rooms of single ways
have schedules of their own.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Effort(NamedTuple):
    """How long a search for patterns under interference may take.

    Attributes
    ----------
    nodes
        The most nodes to open.
    close
        The search ends when the bound exceeds the best value by at most this fraction.
    visits
        The most visits of the depth-first search in a node.
    """

    nodes: int
    close: float = 5e-4
    visits: int = 2000


QUICK = Effort(nodes=300, close=0.0)


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
    quick, more, patient, hardest
        Under interference: how long the quickest searches for patterns that carry rates may take; the factors by which
        each further effort opens more nodes, and allows more visits for one set of replicas; and the greatest effort. A
        search four times as long seldom proves more.
    small, divided
        Of patterns that carry rates under interference: the most replicas of those that are listed, and about how many
        of each size.
    shared
        The most sets of workloads, each with one replica, that are listed under interference.
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
    quick: Effort = QUICK
    more: int = 3
    patient: int = 20
    hardest: int = 4
    small: int = 3
    divided: int = 160_000
    shared: int = 20_000


SCHEDULE = PricingSchedule()
