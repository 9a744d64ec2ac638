"""Bounds from cuts on one GPU type (several types: tests/formulations/pricing/test_shared_types.py)."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from provision import FleetEntry, read
from provision.formulations.search.problem import Problem
from provision.formulations.search.type_counts import TypeCounts

MOST = 50
"""No plan has more GPUs."""


def pools_of(counts):
    """The pool of one GPU type at three prices, with a number of GPUs at each (None for no limit)."""
    fleet = [FleetEntry(gpu="v100", price_per_hour=price, count=count)
             for price, count in zip((1.0, 2.0, 4.5), counts, strict=True)]
    return Problem(read("igniter-testbed-12").replace(fleet=tuple(fleet))).pools


@settings(max_examples=60)
@given(st.tuples(st.integers(0, 4), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))),
       st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=4), st.integers(0, 8),
       st.integers(-1, 40))
def test_bounds_of_one_gpu_type_are_those_of_all_numbers(counts, cuts, fewest, units):
    """Cuts on one type prove what the numbers of GPUs that satisfy them do; then the bound rises above a price."""
    pools = pools_of(counts)
    [pool] = pools
    proof = TypeCounts(pools, MOST)
    proof.at_least(fewest)
    for demand, most in cuts:
        proof.add(demand, [most])
    allowed = [many for many in range(min(MOST, inf if pool.count is None else pool.count) + 1)
               if many >= fewest and all(most * many >= demand for demand, most in cuts)]
    assert proof.bound == min(map(pool.cost, allowed), default=inf)
    assert proof.below(units) == max((price for price in map(pool.cost, allowed) if price < units), default=0)
    proof.above(units)
    dearer = [many for many in allowed if pool.cost(many) > units]
    assert proof.bound == min(map(pool.cost, dearer), default=inf)
    assert proof.counts == ((min(dearer),) if dearer else None)
