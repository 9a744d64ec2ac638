"""Sets the numbers that steer exact pricing under interference, and tells what each number trades."""

from dataclasses import dataclass

from provision.formulations.pricing.mps.pricing import Effort

ROLES = Effort(nodes=300, close=1e-4, room=20_000)
RATES = Effort(nodes=300, close=0.0)


@dataclass(frozen=True)
class InterferencePricing:
    """The numbers.

    Attributes
    ----------
    roles, rates
        How long the quickest searches for patterns of roles, and for those that carry rates, may take.
    many
        A model with at least this many replicas has one class for all its roles of an SLO. In larger classes, pricing
        is quicker and does not count how often a pattern has a role.
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

    roles: Effort = ROLES
    rates: Effort = RATES
    many: int = 20
    more: int = 3
    small: int = 3
    listed: int = 160_000
    patient: int = 20
    hardest: int = 4
    sets: int = 20_000


SCHEDULE = InterferencePricing()
