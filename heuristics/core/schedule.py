"""The numbers that steer greedy and ruin and recreate: one schedule for each search, with what each number trades.

Those of compiled searches are named tuples, which kernels take as they are.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class GreedySchedule:
    """Of ``greedy``.

    Attributes
    ----------
    price_steps
        The whole number that the highest dual price of a slice type becomes. Replica sets take time and memory in
        proportion to it; less of it loses cheap sets.
    steps, rounds
        Steps of ruin and recreate where slices are shared, in rounds between which the clock is read.
    trial_nodes, kept_nodes
        Nodes of the search for the operating points of a pattern of most throughput: of one that is tried, and of one
        that is kept. More carry more and take longer.
    """

    price_steps: int = 15
    steps: int = 500
    rounds: int = 3
    trial_nodes: int = 10
    kept_nodes: int = 1000


class RuinSchedule(NamedTuple):
    """Of ruin and recreate.

    Attributes
    ----------
    spread
        The random factors on the worth of rates lie within this of 1. Without them every step would fill alike.
    worse
        A step is kept if it is worse than the best by up to this worth, in GPUs: so the search leaves plans from which
        every single step is worse.
    anew
        Probability that a step partitions its GPUs again, rather than filling some of their slices again.
    replica
        The worth of a missing replica, in GPUs.
    process
        What a process counts for beside the utilisation that it causes, where the densest ways come first.
    steps
        Steps on some GPUs before others are tried.
    patience, progress
        Steps, for each of the sets of GPUs tried, after which a walk ends that has meanwhile found no better plan, nor
        come closer to one by the worth of ``progress``, in GPUs.
    further
        Factor from one number of GPUs to the next that is tried where no plan is known. A larger one finds a first plan
        sooner, and a dearer one.
    """

    spread: float = 0.7
    worse: float = 0.01
    anew: float = 0.3
    replica: float = 0.02
    process: float = 1e-3
    steps: int = 500
    patience: int = 20_000
    progress: float = 0.01
    further: float = 1.05
