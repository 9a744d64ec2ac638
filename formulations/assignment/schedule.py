"""All numbers that steer the search of the assignment model. None of them decides whether a plan or a bound is valid.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The numbers.

    Attributes
    ----------
    workloads, gpus
        The most workloads of an instance, and the most GPUs of the plan to begin with or of a limited fleet.
    listing, together
        The largest fractions of the time left that listing, and the model of equal GPUs together, may take.
    steps
        CP-SAT counts a fractional variable in this many steps from 0 to its most; rounding changes it by about a
        millionth.
    largest, finest
        The largest sum of a row in CP-SAT's 64 bits, and the largest factor by which a row is multiplied before
        rounding.
    subsolvers
        CP-SAT's searches, one for each worker. They rest on linear programs, without which bounds hardly rise: by the
        two that CP-SAT takes for two workers, parvagpu-s3 is not proven in 10 s, and by these in 0.1 s.
    """

    workloads: int = 40
    gpus: int = 20
    listing: float = 0.3
    together: float = 0.4
    steps: int = 2**20
    largest: float = 2.0**55
    finest: float = 2.0**34
    subsolvers: tuple[str, ...] = ("max_lp", "reduced_costs")


SCHEDULE = Schedule()
