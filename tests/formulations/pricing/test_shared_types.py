"""Several GPU types and prices under interference: brute force agrees, counts hold, the testbed on both."""

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_solver import optimum
from synthetic_sharing import random_sharing, same

from provision import FleetEntry, read, solve
from provision.formulations.search.problem import Problem
from provision.formulations.search.type_counts import TypeCounts

V100, T4 = FleetEntry(gpu="v100", price_per_hour=3.06), FleetEntry(gpu="t4", price_per_hour=0.526)
"""iGniter's prices: p3.2xlarge and g4dn.xlarge."""
BOTH = ["igniter-v100", "igniter-t4-derived"]


def offered(*fleet, **changes):
    return read("igniter-testbed-12").replace(fleet=fleet, performance=BOTH, **changes)


def mixed(seed):
    """A small instance of two types; by seed the first has a count, and the second is owned in part."""
    instance = random_sharing(seed, 3 + seed % 2, ("v100", "t4"), limited=seed % 2 == 0, hot=seed % 3 == 0)
    first, second = instance.fleet
    owned = second.model_copy(update={"price_per_hour": second.price_per_hour / 2, "count": seed % 3})
    return instance.replace(fleet=(first, owned, second)) if seed % 4 > 1 else instance


@pytest.mark.parametrize("seed", range(24))
def test_small_optima_are_those_of_brute_force(seed):
    instance, best = mixed(seed), optimum(mixed(seed))
    result = solve(instance, "master")
    assert result.status == ("infeasible" if best is None else "optimal") and same(result.objective, best)
    assert result.bound is None if best is None else result.verified and result.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_fast_methods_keep_counts_and_the_bound(seed):
    instance, best = mixed(seed), optimum(mixed(seed))
    for name, parameters in (("greedy", {}), ("lns", {"iterations": 300})):
        result = solve(instance, name, **parameters)
        assert (result.plan is None and result.status == "unknown") or best is not None
        assert result.plan is None or (result.verified and result.objective >= best * (1 - 1e-9))


def test_the_testbed_on_both_types_costs_a_quarter_less():
    """Six V100s cost 18.36 an hour; four and three T4s do, and nothing cheaper does."""
    result = solve(offered(V100, T4), "auto")
    kinds = [gpu.gpu for gpu in result.plan.gpus]
    assert (result.status, result.verified) == ("optimal", True)
    assert result.objective == pytest.approx(4 * 3.06 + 3 * 0.526) == result.bound
    assert (kinds.count("v100"), kinds.count("t4")) == (4, 3)


def test_fewest_gpus_whatever_they_cost():
    result = solve(offered(V100, T4, objective="min_gpus"), "master")
    assert (result.status, result.objective) == ("optimal", 6)


def test_owned_gpus_first_then_the_cheaper_way():
    owned = V100.model_copy(update={"price_per_hour": 0.0, "count": 5})
    result = solve(offered(T4, V100, owned), "master")
    assert result.status == "optimal" and result.verified
    assert [gpu.gpu for gpu in result.plan.gpus].count("v100") == 5 and result.objective < 3.06


def test_a_type_without_data_for_some_models_takes_the_others():
    """Without data for vgg19 on a T4, its workloads stand on V100s; where V100s are too few nothing can be planned."""
    instance = offered(V100, T4)
    v100, t4 = instance.performance
    known = t4.model_copy(update={"models": {name: one for name, one in t4.models.items() if name != "vgg19"}})
    less = instance.replace(performance=(v100, known))
    result = solve(less, "auto")
    places = {replica.workload: gpu.gpu for gpu in result.plan.gpus for one in gpu.slices for replica in one.replicas}
    assert result.status == "optimal" and result.verified
    assert {places[one.name] for one in less.workloads if one.model == "vgg19"} == {"v100"}
    few = less.replace(fleet=(V100.model_copy(update={"count": 0}), T4))
    assert solve(few, "master").status == "infeasible"


def test_workloads_free_to_be_split_stand_where_that_costs_least():
    """Split over T4s these cost less than with one replica each, even where V100s are few."""
    large = [one.model_copy(update={"rate_rps": 1.2 * one.rate_rps})
             for one in read("igniter-testbed-12").workloads if one.model == "vgg19"]
    free = tuple(one.model_copy(update={"max_replicas": None}) for one in large)
    whole = solve(offered(V100, T4, workloads=tuple(large)), "master")
    assert whole.status == "optimal"
    for count in (None, 1, 0):
        instance = offered(V100.model_copy(update={"count": count}), T4, workloads=free)
        for name in ("greedy", "auto"):
            result = solve(instance, name)
            assert result.verified and result.objective < whole.objective
            assert name == "greedy" or 0 < result.bound <= result.objective


def test_igniter_takes_the_cheapest_type_that_can_do_all():
    assert solve(offered(T4), "igniter").status == "infeasible"
    mixed = solve(offered(V100, T4), "igniter")
    assert mixed.objective == solve(offered(V100), "igniter").objective
    assert {gpu.gpu for gpu in mixed.plan.gpus} == {"v100"}


@settings(max_examples=60)
@given(st.data())
def test_counts_of_types_are_the_cheapest_that_satisfy_all_cuts(data):
    draw = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    owned = V100.model_copy(update={"price_per_hour": 1.0, "count": int(draw.integers(0, 4))})
    later = [T4, T4.model_copy(update={"count": int(draw.integers(0, 6))})][int(draw.integers(2))]
    pools = Problem(offered(owned, V100.model_copy(update={"count": 2}), later)).pools
    proof, cuts = TypeCounts(pools, 8), []
    for _ in range(3):
        cuts.append((int(draw.integers(0, 60)), draw.integers(1, 12, 2)))
        proof.add(*cuts[-1])
        kept = [counts for counts in product(range(min(owned.count + 2, 8) + 1), range((later.count or 8) + 1))
                if all(most @ np.array(counts) >= worth for worth, most in cuts)
                and (later.count is None or counts[1] <= later.count)]
        prices = [sum(one.cost(many) for one, many in zip(pools, counts, strict=True)) for counts in kept]
        assert proof.bound == min(prices, default=inf)
        units = 1 + draw.random() * 2 * max(prices, default=1)
        assert max((one for one in prices if one < units), default=0) <= proof.below(units) < units
