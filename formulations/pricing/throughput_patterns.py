"""Patterns for the objective max_throughput: first from tables over levels, and only where these are rough, priced
exactly.
"""

import math
from functools import cached_property

import numpy as np

from provision.formulations.pricing.level_capacities import LevelCapacities
from provision.formulations.pricing.rates import (
    NEAR,
    TRIED,
    GroupPrices,
    Listing,
    Members,
    PricedRates,
    RatedPattern,
    RateOracle,
    listing_of,
)
from provision.models.base.clock import Deadline

CLIMBS = 3
"""The most searches of one call of ``ThroughputPatterns.climb``."""


class ThroughputPatterns(LevelCapacities):
    """The patterns of one slice type for the objective max_throughput.

    Tables over levels give patterns without a search, and a bound that is rough, because they know only how many
    replicas or processes share the slice. Where this bound exceeds the floor, the patterns that are listed are priced
    one by one. If none of them exceeds the floor, all patterns are priced exactly.

    Parameters
    ----------
    levels
        The tables over levels.
    patterns
        The exact pricing.
    """

    together = True

    def __init__(self, levels: LevelCapacities, patterns: RateOracle) -> None:
        super().__init__(levels.table, levels.likely, levels.batches)
        self.patterns, self.by_sets = patterns, patterns.by_sets

    @cached_property
    def small(self) -> Listing | None:
        """The patterns that are listed."""
        return self.patterns.listed()

    def price(self, prices: GroupPrices, floor: float, effort: int) -> PricedRates:
        """See ``RateOracle.price``. Without a floor above 0, no pattern is for bounds."""
        rough = super().price(prices, floor, effort)
        if floor <= 0 or rough.most <= floor:
            return rough._replace(patterns=rough.patterns.only(np.zeros(0, int)))
        if self.small is not None:
            values = prices.of_totals(self.small)
            best = np.argsort(-values, kind="stable")[:TRIED]
            best = best[values[best] > floor * (1 + NEAR)]
            if len(best):
                likely = [self.small.rated(at).members for at in best.tolist()]
                return PricedRates(rough.most, self.small.only(best), [*likely, *rough.likely])
        exact = self.climb(prices, floor)
        return exact._replace(most=min(exact.most, rough.most), likely=[*exact.likely, *rough.likely])

    def every(self, until: Deadline) -> list[tuple[int, ...]] | None:
        """See ``RateOracle.every``."""
        return self.patterns.every(until)

    def best(self, groups: tuple[int, ...], effort: int) -> tuple[float, Members | None]:
        """See ``RateOracle.best``."""
        return self.patterns.best(groups, effort)

    def climb(self, prices: GroupPrices, floor: float) -> PricedRates:
        """Search for patterns of a value above the floor. Then search above the best value found, until no search finds
        more; this bounds the values of all patterns more tightly.
        """
        patterns, most, value = list[RatedPattern](), math.inf, floor
        for _ in range(CLIMBS):
            found, before = self.patterns.price(prices, value, 0), value
            values, most = prices.of_totals(found.patterns), min(most, found.most)
            patterns += [found.patterns.rated(at) for at in np.argsort(-values, kind="stable")[:TRIED].tolist()]
            value = max(value, values.max(initial=0.0))
            if most <= value * (1 + NEAR) or value <= before * (1 + NEAR):
                break
        return PricedRates(max(most, value), listing_of(patterns, len(prices.per_rps)),
                           [one.members for one in patterns])
