"""What a rest of a rate costs guides greedy filling, and walks begin with the plan that they are given."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.formulations.pricing.oracle import settings_of
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.heuristics.core.greedy import problem_of
from provision.heuristics.core.schedule import SCHEDULE
from provision.heuristics.core.state import uncarried
from provision.heuristics.core.tables import WAY, _prices
from provision.heuristics.core.walk import Walk
from provision.instances.read import generate
from provision.models.base.clock import NEVER
from provision.models.problem.workload import FleetEntry

STEPS = SCHEDULE.parts
SLICES = st.lists(st.tuples(st.integers(STEPS // 4, STEPS), st.integers(1, 9)), min_size=1, max_size=4)
PARTS = np.linspace(0, 1, STEPS + 1)


def prices_of(segment, price, ways=(), cost=(), linear=(), cap=np.inf):
    """The prices of rows without what they always rise by."""
    records = np.zeros(len(ways), WAY)
    records["row"], records["most"] = np.array(ways, float).reshape(-1, 2).T
    found = _prices(segment, price, np.full(len(segment), cap), records, np.array(cost, float), np.array(linear, bool))
    assert (np.diff(found[:, 1:]) > 0).all()
    return found - SCHEDULE.rise * (found[:, -1:] / (1 + SCHEDULE.rise)) * PARTS


@given(SLICES)
def test_every_part_of_a_rate_costs_its_cheapest_replicas(slices):
    """Four replicas carry any rate here, so brute force tries all sets of up to four."""
    carried, price = (np.array(one, float) for one in zip(*slices, strict=True))
    [found] = prices_of(carried[None] / SCHEDULE.parts, price)
    sets = [list(one) for many in range(1, 5) for one in combinations_with_replacement(range(len(slices)), many)]
    for part in range(1, SCHEDULE.parts + 1):
        assert found[part] == pytest.approx(min(price[one].sum() for one in sets if carried[one].sum() >= part))
    assert found[0] == pytest.approx(found[1])  # the smallest rest costs a replica, too


def test_ways_cost_what_they_take():
    """A way at a fixed share of a slice costs its most, another one what it carries; nothing carries the last row."""
    fixed, linear, nothing = prices_of(np.zeros((3, 1)), np.ones(1), [(0, 0.5), (1, 0.5)], [3, 3], [False, True])
    half = SCHEDULE.parts // 2
    assert fixed[[1, half, -1]] == pytest.approx([1.5, 1.5, 3.0])
    assert linear[[half, -1]] == pytest.approx([1.5, 3.0])
    assert nothing[-1] == pytest.approx(1.0)


def test_many_small_replicas_and_what_one_gpu_may_carry_count():
    assert prices_of(np.full((1, 1), 1 / 200), np.ones(1))[0, -1] == pytest.approx(200)
    assert prices_of(np.ones((1, 1)), np.ones(1), cap=0.25)[0, -1] == pytest.approx(4)


def test_gpus_that_carry_less_for_their_price_are_used_where_the_others_are_used_up():
    """The only V100 carries more than one workload needs; the other one has only T4s."""
    base = generate(4, 0)
    several = [one.model_copy(update={"max_replicas": 5}) for one in base.workloads[:2]]
    fleet = [FleetEntry(gpu="v100", price_per_hour=0.1, count=1, mps=False),
             FleetEntry(gpu="t4", price_per_hour=0.53, mps=False)]
    instance = base.replace(workloads=several, fleet=fleet, performance=["igniter-v100", "igniter-t4-derived"])
    most_rps = best_segments(instance).throughput_rps.max(axis=1)
    instance = instance.replace(workloads=[one.model_copy(update={"rate_rps": 0.98 * float(rps)})
                                           for one, rps in zip(several, most_rps, strict=True)])
    found = provision.solve(instance, "greedy", 4, replay=False)
    assert found.verified and len(found.plan.gpus) >= 2


@pytest.mark.parametrize(("limits", "part"), [({}, 1e-9), ({"max_replicas": None}, 1e-9),
                                              ({"max_replicas": None, "min_replicas": 3}, 0.05)])
@pytest.mark.parametrize("name", ["igniter-variants-12", "parvagpu-s2-shared", "gpulets-scen2"])
def test_a_walk_begins_with_the_plan_that_it_is_given(name, limits, part):
    """Replicas that nobody asks for may lack room where they were."""
    base = provision.read(name)
    instance = base.replace(workloads=[one.model_copy(update=limits if at % 3 == 0 else {})
                                       for at, one in enumerate(base.workloads)])
    plan = provision.solve(instance, "greedy", replay=False).plan
    walk = Walk(problem_of(instance), plan, 0.0, np.random.default_rng(0), NEVER)
    begun = walk._planned(plan, NEVER)
    assert len(begun.entry) == len(plan.gpus) and uncarried(walk.tables, begun) <= part * len(plan.gpus)


def test_replicas_that_were_added_one_by_one_have_operating_points():
    """Settled all at once, from no units on, this set ends where the GPU has too few."""
    instance = provision.read("igniter-variants-12")
    problem = Problem(instance)
    (setting,) = (one for _, one in settings_of(problem, NEVER))
    assert len(setting.running((0, 2, 7, 4, 5))) == 5
