"""Cheapest covers against all covers."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from provision.formulations.pricing.alone import knapsack
from provision.formulations.pricing.alone.knapsack import Knapsack


def cheapest(credits, costs, rate, least, most):
    """The price of the cheapest cover by trying all with no more than ``most`` replicas; None when there is none."""
    numbers = itertools.product(range(most + 1), repeat=len(credits))
    prices = [np.dot(one, costs) for one in numbers
              if least <= sum(one) <= most and np.dot(one, credits) >= rate * (1 - 1e-11)]
    return min(prices, default=None)


ROLES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=3)


@given(ROLES, st.integers(0, 12), st.integers(0, 3), st.integers(0, 3))
def test_limited_covers_are_cheapest(roles, rate, least, more):
    credits, costs = (np.array(one) for one in zip(*roles, strict=True))
    most = least + more
    found = Knapsack(credits.astype(float), costs, most, exact=True).cheapest(float(rate), least)
    expected = cheapest(credits, costs, rate, least, most)
    assert (found.cost if found else None) == expected
    if found:
        assert found.counts @ costs == found.cost == found.bound
        assert found.counts @ credits >= rate
        assert least <= found.counts.sum() <= most


@given(ROLES, st.integers(0, 8), st.integers(0, 3))
def test_unlimited_covers_are_cheapest(roles, rate, least):
    credits, costs = (np.array(one) for one in zip(*roles, strict=True))
    found = Knapsack(credits.astype(float), costs, least, exact=False).cheapest(float(rate), least)
    assert found.cost == found.bound == cheapest(credits, costs, rate, least, 8 + least)
    assert found.counts @ costs == found.cost
    assert found.counts @ credits >= rate
    assert found.counts.sum() >= least


def test_sums_that_lose_a_digit_still_cover():
    """Three times a third is a whole, however it is added up."""
    found = Knapsack(np.array([0.1]), np.array([7]), 1, exact=False).cheapest(0.3, 1)
    assert found.cost == 21


def test_a_great_rate_is_covered_in_bulk(monkeypatch):
    """Beyond the longest table the bound stays below the price of the cover, and near it."""
    monkeypatch.setattr(knapsack, "SCHEDULE", replace(knapsack.SCHEDULE, longest=50))
    found = Knapsack(np.array([10.0, 7.0]), np.array([11, 8]), 1, exact=False).cheapest(1003.0, 1)
    exact = min(11 * many + 8 * max(0, -(-(1003 - 10 * many) // 7)) for many in range(102))
    assert found.counts @ np.array([10, 7]) >= 1003
    assert found.bound <= exact <= found.cost <= exact + 11
