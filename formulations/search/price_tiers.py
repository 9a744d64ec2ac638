"""The prices of GPUs of one type in exact whole numbers: price tiers, and the unit in which prices are counted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of

BEYOND = 10
"""A GPU that the fleet lacks costs this many times as much as a dearest GPU for every replica would."""
Tier = tuple[int, int | None]
"""A price in whole units, and the number of GPUs at that price; None for as many as needed."""


@dataclass(frozen=True)
class PriceTiers:
    """The price tiers of one GPU type, cheapest first, and the ``count`` of GPUs that the fleet has (None for no
    limit).

    The last tier has no limit on its number. Its price is a price of the fleet or, if the fleet's GPUs are limited,
    that of GPUs that the fleet lacks.
    """

    tiers: tuple[Tier, ...]
    count: int | None

    @property
    def offered(self) -> tuple[Tier, ...]:
        """The tiers of GPUs that the fleet has."""
        return self.tiers if self.count is None else self.tiers[:-1]

    @property
    def worth(self) -> int:
        """The price of the dearest GPU that the fleet has, at least 1 unit."""
        return max(1, *(price for price, _ in self.offered))

    def cost(self, many: int) -> int:
        """The price of ``many`` GPUs in units; the cheapest tiers are used first."""
        total = 0
        for price, count in self.tiers:
            taken = many if count is None else min(many, count)
            total, many = total + price * taken, many - taken
        return total


def prices_of(instance: Instance) -> tuple[Fraction, list[int]]:
    """The unit of which all prices of a fleet are whole multiples, and the price of each fleet entry in that unit."""
    weights = [Fraction(f"{objective_of(instance).weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(weight.numerator for weight in weights)) or 1,
                    math.lcm(*(weight.denominator for weight in weights)))
    return unit, [int(weight / unit) for weight in weights]


def price_tiers(offers: Sequence[Tier], replicas: int, dearest: int) -> PriceTiers:
    """The PriceTiers of offers. If an offer has no limit on its count, dearer offers are left out.

    Parameters
    ----------
    offers
        (price, count) of every fleet entry of the type.
    replicas
        The most replicas that are to be placed.
    dearest
        The highest price of the fleet in units, at least 1.
    """
    order = sorted(offers, key=lambda tier: tier[0])
    endless = [index for index, (_, count) in enumerate(order) if count is None]
    if endless:
        return PriceTiers(tuple(order[: endless[0] + 1]), None)
    return PriceTiers((*order, (BEYOND * replicas * dearest, None)), sum(count or 0 for _, count in order))
