"""Sets the numbers that steer exact pricing under interference."""

from dataclasses import dataclass

from provision.formulations.pricing.mps.pricing import Effort

QUICK = Effort(nodes=300, close=1e-4, room=20_000)


@dataclass(frozen=True)
class PricingSchedule:
    """The numbers that steer the search.

    Attributes
    ----------
    exact
        How long the quickest search for patterns of roles may take.
    more
        The factor by which each further effort opens more nodes.
    """

    exact: Effort = QUICK
    more: int = 3


SCHEDULE = PricingSchedule()
