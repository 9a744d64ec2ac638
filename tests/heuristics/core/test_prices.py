"""What a rest of a rate costs guides greedy filling, and walks begin with the plan that they are given."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.heuristics.core.greedy import problem_of
from provision.heuristics.core.schedule import GREEDY
from provision.heuristics.core.state import uncarried
from provision.heuristics.core.tables import WAY, _prices
from provision.heuristics.core.walk import Walk
from provision.models.base.clock import NEVER

SLICES = st.lists(st.tuples(st.integers(GREEDY.parts // 4, GREEDY.parts), st.integers(1, 9)), min_size=1, max_size=4)


@given(SLICES)
def test_every_part_of_a_rate_costs_its_cheapest_replicas(slices):
    """Four replicas carry any rate here, so brute force tries all sets of up to four."""
    carried, price = (np.array(one, float) for one in zip(*slices, strict=True))
    found = _prices(carried[None] / GREEDY.parts, price, np.zeros(0, WAY), np.zeros(0), np.zeros(0, bool))[0]
    sets = [list(one) for many in range(1, 5) for one in combinations_with_replacement(range(len(slices)), many)]
    for part in range(1, GREEDY.parts + 1):
        assert found[part] == min(price[one].sum() for one in sets if carried[one].sum() >= part)
    assert found[0] == found[1]  # the smallest rest costs a replica, too


def test_ways_cost_what_they_take():
    """A way at a fixed share of a slice costs its most, another one what it carries; nothing carries the last row."""
    ways = np.zeros(2, WAY)
    ways["row"], ways["most"] = [0, 1], [0.5, 0.5]
    fixed, linear, nothing = _prices(np.zeros((3, 1)), np.ones(1), ways, np.full(2, 3.0), np.array([False, True]))
    half = GREEDY.parts // 2
    assert fixed[half] == 1.5 and fixed[1] == 1.5 and fixed[-1] == 3.0
    assert linear[half] == pytest.approx(1.5) and linear[-1] == pytest.approx(3.0)
    assert nothing[-1] == 1.0


@pytest.mark.parametrize("name", ["igniter-variants-12", "parvagpu-s2-shared", "gpulets-scen2"])
def test_a_walk_begins_with_the_plan_that_it_is_given(name):
    instance = provision.read(name)
    plan = provision.solve(instance, "greedy", replay=False).plan
    walk = Walk(problem_of(instance), plan, 0.0, np.random.default_rng(0), NEVER)
    begun = walk._planned(plan, NEVER)
    assert len(begun.entry) == len(plan.gpus) and uncarried(walk.tables, begun) < 0.1
