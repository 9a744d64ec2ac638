"""Pricing under interference against all sets of a few classes: what it finds can be planned, its bound holds."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbeds import random_testbed

from provision.formulations.pricing.mps import options
from provision.formulations.pricing.mps.kernels import NONE, TRIES, arrange
from provision.formulations.pricing.mps.options import options_of
from provision.formulations.pricing.mps.oracle import demands_of, running
from provision.formulations.pricing.mps.pricing import search
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.search.problem import Problem

ENOUGH = 100_000
PLENTY = 1000


class Sharing:
    """The tables of a testbed's GPU type, and the number of replicas of each role."""

    def __init__(self, instance):
        problem = Problem(instance)
        self.demands, self.copies = demands_of(instance, problem.roles), problem.copies
        self.tables = tables_of(instance.performance[0], instance.shared_rule, self.demands)

    def held(self, pattern):
        """Whether operating points hold for a pattern."""
        return running(self.tables, pattern) is not None


def possible(problem, copies):
    """All sets of classes, each at most so often, that a GPU can hold at least loosely."""
    found, size, more = [], 1, True
    while more:
        sets = [one for one in combinations_with_replacement(range(len(copies)), size)
                if all(one.count(member) <= copies[member] for member in one) and holds(problem, one)]
        found, size, more = found + sets, size + 1, bool(sets)
    return found


def holds(problem, pattern):
    points, units = np.zeros((2, len(pattern)), int)
    return arrange(problem.tables, np.array(pattern), len(pattern), units, points, TRIES) != NONE


def priced(problem, values, cells):
    tables = problem.tables
    offered = options_of(tables, problem.demands, problem.copies)
    found = search(tables, offered, values, 0, cells, PLENTY, np.arange(1, tables.most + 1))
    return found, [tuple(members[:size]) for members, size in zip(found.members.tolist(), found.size, strict=True)]


@pytest.fixture(autouse=True)
def few_copies(monkeypatch):
    monkeypatch.setattr(options, "MANY", np.inf)


drawn = given(seed=st.integers(0, 30), draw=st.integers(0, 10**6))


@settings(deadline=None, max_examples=25)
@drawn
def test_the_dearest_set_is_found(seed, draw):
    problem = Sharing(random_testbed(5, seed))
    values = np.random.default_rng(draw).integers(1, 1000, len(problem.copies))
    found, patterns = priced(problem, values, ENOUGH)
    assert found.exhaustive
    assert found.most == max(values[list(one)].sum() for one in possible(problem, problem.copies))
    assert found.most == max(values[list(one)].sum() for one in patterns)
    assert all(problem.held(one) for one in patterns)


@settings(deadline=None, max_examples=25)
@drawn
def test_a_search_cut_short_still_bounds(seed, draw):
    problem = Sharing(random_testbed(6, seed))
    values = np.random.default_rng(draw).integers(1, 1000, len(problem.copies))
    most = max(values[list(one)].sum() for one in possible(problem, problem.copies))
    assert all(priced(problem, values, cells)[0].most >= most for cells in (0, 1, 10, 100))


def test_classes_of_one_model_offered_together_may_stand_any_number_of_times(monkeypatch):
    monkeypatch.setattr(options, "MANY", 1)
    for seed in range(8):
        problem = Sharing(random_testbed(4, seed))
        values = np.random.default_rng(seed).integers(1, 1000, len(problem.copies))
        found, patterns = priced(problem, values, ENOUGH)
        most = max(values[list(one)].sum() for one in possible(problem, problem.copies * 40))
        assert found.most >= most
        assert all(values[list(one)].sum() <= most and problem.held(one) for one in patterns)
