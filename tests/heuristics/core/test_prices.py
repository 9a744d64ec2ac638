"""What the rest of a rate costs guides greedy filling, and walks begin with the plan that they are given."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.heuristics.core.greedy import problem_of
from provision.heuristics.core.schedule import GREEDY
from provision.heuristics.core.state import uncarried
from provision.heuristics.core.tables import WAY, _prices
from provision.heuristics.core.walk import Walk
from provision.models.base.clock import NEVER


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=4))
def test_every_part_of_a_rate_costs_its_cheapest_replicas(kinds):
    """Replicas of whole sixtieths of a rate, by brute force over up to six of them."""
    carried, price = (np.array(one, float) for one in zip(*kinds, strict=True))
    steps = GREEDY.parts
    found = _prices(carried[None] / steps, price, np.zeros(0, WAY), np.zeros(0), np.zeros(0, bool))[0]
    sets = [[0], *(list(one) for many in range(1, 7) for one in combinations_with_replacement(range(len(kinds)), many))]
    for part in range(1, steps + 1):
        costs = [price[one].sum() for one in sets[1:] if carried[one].sum() >= part]
        if carried.max() * 6 >= part:
            assert found[part] <= min(costs) + 1e-9
            assert found[part] == pytest.approx(min(costs)) or found[part] < min(costs)
    assert (np.diff(found) >= 0).all() and found[0] == found[1]
