"""Sets the numbers that steer exact pricing under interference, and tells what each number trades."""

from dataclasses import dataclass

from provision.formulations.pricing.mps.pricing import Effort

RATES = Effort(nodes=300, close=0.0)


@dataclass(frozen=True)
class InterferencePricing:
    """The numbers.

    Attributes
    ----------
    rates
        How long the quickest searches for patterns that carry rates may take.
    more
        The factor by which each further effort opens more nodes.
    small, listed
        Of patterns that carry rates: the most replicas of those that are listed, and about how many of each size.
    patient
        The factor by which each further effort allows more visits for one set of replicas.
    hardest
        The greatest effort. A search four times as long seldom proves more.
    sets
        The most sets of workloads that are listed.
    """

    rates: Effort = RATES
    more: int = 3
    small: int = 3
    listed: int = 160_000
    patient: int = 20
    hardest: int = 4
    sets: int = 20_000


SCHEDULE = InterferencePricing()
