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


SCHEDULE = NetworksPricing()
