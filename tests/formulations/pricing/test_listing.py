"""Undominated rows, and lists made of them: brute force agrees, and a list that is cut off is not complete."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.formulations.assignment.slots import slots_of
from provision.formulations.pricing import rates
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import TooManyError, undominated
from provision.formulations.search.problem import Problem
from provision.models.base.clock import NEVER, Deadline
from provision.solving.methods import method

TABLES = st.integers(1, 4).flatmap(lambda wide: st.lists(
    st.lists(st.integers(0, 3), min_size=wide, max_size=wide), min_size=1, max_size=40))


@given(TABLES)
def test_undominated_rows_are_those_of_brute_force(rows):
    """Blocks of three rows: most tables have several."""
    table = np.array(rows, float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "SCHEDULE", replace(rates.SCHEDULE, block=3))
        found = undominated(table)
    every = set(map(tuple, rows))
    best = [row for row in every
            if not any(other != row and all(a >= b for a, b in zip(other, row, strict=True)) for other in every)]
    assert sorted(map(tuple, table[found].astype(int).tolist())) == sorted(best)


def test_too_many_rows_and_too_little_time_are_told():
    many = np.column_stack([np.arange(10.0), -np.arange(10.0)])
    assert len(undominated(many, 10)) == 10
    for most, until in ((9, NEVER), (10, Deadline(0.0))):
        with pytest.raises(TooManyError):
            undominated(many, most, until)


def test_turns_that_are_not_all_listed_in_time_have_the_rates_of_roles():
    problem = Problem(provision.read("gpulets-long-only"))
    assert any(one.coarse for _, one in rates_of(problem, Deadline(0.0)))
    assert all(one.complete for _, one in rates_of(problem))


@pytest.mark.parametrize("name", ["gpulets-long-only", "parvagpu-s1-shared"])
def test_assignment_knows_that_a_list_was_cut_off(name):
    """Then it proves no more than the relaxation does."""
    instance = provision.read(name)
    assert slots_of(instance, Deadline(0.0)) is None
    found = provision.solve(instance, "assignment-cpsat", time_limit_s=1e-3, replay=False)
    assert found.status != "infeasible"
    assert found.bound is None or found.plan is None or found.bound <= found.objective


@pytest.mark.parametrize("which", ["master", "auto"])
def test_no_time_proves_nothing_wrong(which):
    """With hardly any time, turns are not listed; a bound is still a bound."""
    found = method(which).run(provision.read("gpulets-game"), provision.Search(1e-3))
    assert found.status != "infeasible" and (found.bound or 0) <= 1
