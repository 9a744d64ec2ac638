"""The GPU types of a fleet that replicas can share, with their price tiers in exact whole numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from provision.formulations.pricing.mps.tables import Demand, PointTables, tables_of
from provision.formulations.search.price_tiers import PriceTiers, Tier, price_tiers, prices_of
from provision.models.performance.igniter import igniter_data
from provision.models.problem.instance import Instance


@dataclass(frozen=True)
class GpuPool(PriceTiers):
    """GPUs of one type with their prices, and the PointTables of all classes on it."""

    gpu: str
    tables: PointTables


@dataclass(frozen=True)
class Fleet:
    """The GPU pools of an instance, the ``prices`` of its fleet entries in units, and the price of a ``unit``."""

    pools: tuple[GpuPool, ...]
    prices: tuple[int, ...]
    unit: Fraction

    @property
    def dearest(self) -> int:
        """The highest price of a GPU in units, 1 if all are free."""
        return max(self.prices) or 1

    def objective(self, units: int) -> float:
        """The value of the objective for a number of price units."""
        return float(units * self.unit)


def fleet_of(instance: Instance, demands: Sequence[Demand], replicas: int) -> Fleet:
    """The Fleet of an instance: the GPU types whose data knows some model of the demands.

    ``replicas`` is the number of replicas to place.
    """
    unit, prices = prices_of(instance)
    models = {one for demand in demands for one in demand[0]}
    data = {gpu: one for gpu, one in igniter_data(instance.performance).items() if models & set(one.models)}
    tiers: dict[str, list[Tier]] = {}
    for entry, price in zip(instance.fleet, prices, strict=True):
        if entry.gpu in data:
            tiers.setdefault(entry.gpu, []).append((price, entry.count))
    tables = {gpu: tables_of(data[gpu], instance.shared_rule, demands) for gpu in tiers}
    pools = []
    for gpu, offers in tiers.items():
        priced = price_tiers(offers, replicas, max(prices) or 1)
        pools.append(GpuPool(priced.tiers, priced.count, gpu, tables[gpu]))
    return Fleet(tuple(pools), tuple(prices), unit)
