"""The GPU types of a fleet that replicas can share, with their price tiers in exact whole numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from provision.models.contents.interference.tables import Demand, PointTables, tables_of
from provision.models.performance.igniter import igniter_data
from provision.models.problem.instance import Instance

BEYOND = 10
"""The price of a GPU that the fleet lacks, as a multiple of all replicas each on the dearest GPU that it has."""


Tier = tuple[int, int | None]
"""A price in whole units and how many GPUs there are at it, None for as many as needed."""


@dataclass(frozen=True)
class GpuSupply:
    """GPUs of one type, the PointTables of all classes on it, how many there are and their ``tiers``, cheapest first.

    The last tier has no limit: it is a price of the fleet, or stands for GPUs that the fleet lacks.
    """

    gpu: str
    tables: PointTables
    count: int | None
    tiers: tuple[Tier, ...]

    @property
    def offered(self) -> tuple[Tier, ...]:
        """The tiers of GPUs that there are."""
        return self.tiers if self.count is None else self.tiers[:-1]

    @property
    def worth(self) -> int:
        """The price of the dearest of these, at least 1."""
        return max(1, *(price for price, _ in self.offered))

    def cost(self, many: int) -> int:
        """The price of ``many`` GPUs, the cheapest tiers first, in units."""
        total = 0
        for price, count in self.tiers:
            taken = many if count is None else min(many, count)
            total, many = total + price * taken, many - taken
        return total


@dataclass(frozen=True)
class Fleet:
    """The GPU supplies of an instance, the ``prices`` of its fleet entries in units, and the price of a ``unit``."""

    supplies: tuple[GpuSupply, ...]
    prices: tuple[int, ...]
    unit: Fraction

    @property
    def dearest(self) -> int:
        """The highest price, 1 where all are free."""
        return max(self.prices) or 1

    def with_tables(self, instance: Instance, demands: Sequence[Demand]) -> "Fleet":
        """The same GPUs with the tables of other demands."""
        data = igniter_data(instance.performance)
        tables = (tables_of(data[one.gpu], instance.shared_rule, demands) for one in self.supplies)
        supplies = tuple(replace(supply, tables=made) for supply, made in zip(self.supplies, tables, strict=True))
        return replace(self, supplies=supplies)

    def objective(self, units: int) -> float:
        """The value that a number of price units adds to the objective."""
        return float(units * self.unit)


def fleet_of(instance: Instance, demands: Sequence[Demand], replicas: int) -> Fleet:
    """The Fleet of an instance: the GPU types whose data knows some model of the demands.

    ``replicas`` is the number of replicas to place.
    """
    weights = [Fraction(f"{instance.weight(entry):.12g}") for entry in instance.fleet]
    unit = Fraction(math.gcd(*(weight.numerator for weight in weights)) or 1,
                    math.lcm(*(weight.denominator for weight in weights)))
    prices = [int(weight / unit) for weight in weights]
    beyond, models = BEYOND * replicas * (max(prices) or 1), {one for demand in demands for one in demand[0]}
    data = {gpu: one for gpu, one in igniter_data(instance.performance).items() if models & set(one.models)}
    tiers: dict[str, list[Tier]] = {}
    for entry, price in zip(instance.fleet, prices, strict=True):
        if entry.gpu in data:
            tiers.setdefault(entry.gpu, []).append((price, entry.count))
    tables = {gpu: tables_of(data[gpu], instance.shared_rule, demands) for gpu in tiers}
    supplies = (_supply(gpu, tables[gpu], found, beyond) for gpu, found in tiers.items())
    return Fleet(tuple(supplies), tuple(prices), unit)


def _supply(gpu: str, tables: PointTables, tiers: Iterable[Tier], beyond: int) -> GpuSupply:
    """The GpuSupply of a GPU type; tiers dearer than one without limit are left out."""
    order = sorted(tiers, key=lambda tier: tier[0])
    unlimited = [index for index, (_, count) in enumerate(order) if count is None]
    if unlimited:
        return GpuSupply(gpu, tables, None, tuple(order[: unlimited[0] + 1]))
    return GpuSupply(gpu, tables, sum(count for _, count in order if count is not None), (*order, (beyond, None)))
