"""Sets the numbers that steer pricing for every way of sharing, and tells what each number trades."""

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
    longest, cells
        Of isolated replicas: the most prices that the table of a knapsack distinguishes; and the most cells of one
        table of replica sets, where workloads that need more cells together are divided among several tables.
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
    longest: int = 200_000
    cells: int = 2**22
    quick: Effort = QUICK
    more: int = 3
    patient: int = 20
    hardest: int = 4
    small: int = 3
    divided: int = 160_000
    shared: int = 20_000


SCHEDULE = PricingSchedule()


@dataclass(frozen=True)
class NetworksPricing:
    """The numbers for slices that closed networks share.

    Attributes
    ----------
    nodes, more, hardest
        The nodes of the quickest search for patterns that carry rates, the factor by which each further effort opens
        more, and the greatest effort.
    searched
        The most groups of workloads whose patterns are searched for least cost; for more, there are quick bounds.
    choices
        The most batch sizes of a workload at a level. There are several because a part of its rate fills only smaller
        batches.
    block
        The number of workloads whose choices are computed at once; more of them take more memory.
    steps
        The most steps of iterations that bound times from below. The first steps raise them most.
    cells
        The number of cells into which the hold times of an operating point are divided. More cells make bounds tighter.
    parts
        The prices of all of the slice's time that are tried, as fractions of the floor.
    most_processes
        The most processes on one slice in plans. Up to this number, bounds count processes one by one.
    planned_processes, planned_uses
        The levels for plans: these numbers of processes (and the most allowed), and these utilisations.
    bounded_uses
        The lower ends of the intervals of utilisation that bounds distinguish.
    """

    nodes: int = 250
    more: int = 4
    hardest: int = 4
    searched: int = 24
    choices: int = 3
    block: int = 256
    steps: int = 50
    cells: int = 256
    parts: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.03, 1.06, 1.1, 1.2)
    most_processes: int = 12
    planned_processes: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    planned_uses: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87)
    bounded_uses: tuple[float, ...] = (0.0, 0.3, 0.45, 0.55, 0.65, 0.72, 0.78, 0.83, 0.87, 0.9)


NETWORKS = NetworksPricing()
