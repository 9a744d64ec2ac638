"""Sets the numbers that steer greedy and ruin and recreate, and tells what each number trades."""

from typing import NamedTuple


class Schedule(NamedTuple):
    """The numbers that steer ``greedy`` and ``lns``; a named tuple, which kernels can take as an argument.

    Attributes
    ----------
    rounds, dearest
        The most rounds of pricing, and the largest whole number that the highest dual price of a slice type may become.
        Time for replica sets grows in proportion to it; a smaller number misses some cheap sets. With these numbers
        11,000 workloads around S5 are proven (``python benchmarks/scale.py isolated-11000``).
    whole_s
        The most seconds of each integer program: over all candidates, if the rounded mix is not proven optimal, and
        over the partitions for chosen segments.
    first_rounds
        The rounds of pricing that run even if the time is over. The bound of the first is far off; a round takes a
        small part of the time that it takes to build the plan.
    few_steps
        The steps of ruin and recreate of greedy, if slices are shared.
    least_s
        The seconds that a plan without sharing may take, even if the time limit is shorter.
    groups
        With more groups and one GPU type, on slices that replicas always share, workloads are divided into equal parts;
        otherwise they are split at the rates of roles (`provision.heuristics.core.greedy`).
    least_price
        The least price of a GPU, as a part of the median price.
    parts, few, rise
        The number of equal parts of a rate whose prices are known, where more take memory and time to begin; up to how
        many parts replicas count in fractions; and how much prices rise from no part to the whole at the least, as a
        part of the whole price.
    portion
        The most workloads, or parts of workloads, that are planned together if slices are shared. The time to fill GPUs
        grows with the square of this number; with a smaller number, more GPUs at the ends of portions are partly empty.
    spread
        The largest distance of the random factors on prices from 1. Without these factors every step would fill slices
        in the same way.
    worse
        By how much more than the least, in GPUs, the rates that are left may cost after a step that is kept. So the
        search can leave plans that no single step improves.
    anew
        The probability that a step partitions its GPUs again, instead of filling some of their slices again.
    replica
        What a missing replica costs, in GPUs.
    steps
        Steps on one set of GPUs before the next set is tried.
    patience
        A walk ends after so many steps per set of GPUs that is tried, if these steps found no better plan.
    further
        The factor from one number of GPUs to the next, as long as no plan is known. With a larger factor the first plan
        is found sooner, but is dearer.
    chunk_s
        The approximate time that compiled steps run before the clock is checked.
    """

    rounds: int = 8
    dearest: int = 420
    first_rounds: int = 2
    whole_s: float = 2.0
    few_steps: int = 1500
    least_s: float = 2.0
    groups: int = 16
    least_price: float = 0.05
    parts: int = 60
    few: int = 4
    rise: float = 1e-3
    portion: int = 1500
    spread: float = 0.7
    worse: float = 0.01
    anew: float = 0.3
    replica: float = 0.02
    steps: int = 500
    patience: int = 20_000
    further: float = 1.05
    chunk_s: float = 0.1


SCHEDULE = Schedule()
