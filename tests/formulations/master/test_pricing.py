"""Pricing under interference against all sets of a few classes: what it finds can be planned, its bound holds."""

from copy import copy
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbeds import random_testbed

from provision.formulations.pricing.mps import oracle
from provision.formulations.pricing.mps.kernels import NONE, arrange
from provision.formulations.pricing.mps.oracle import InterferenceOracle
from provision.formulations.pricing.mps.pricing import Effort
from provision.formulations.pricing.mps.schedule import InterferencePricing
from provision.formulations.search.problem import Problem

ENOUGH = 100_000
CLOSE = 1e-7


class Sharing:
    """The tables of a testbed's GPU type, and the number of replicas of each role."""

    def __init__(self, instance):
        problem = Problem(instance)
        self.copies = problem.copies
        self.pricing = InterferenceOracle(instance, instance.performance[0], problem.roles, problem.copies)
        self.tables = self.pricing.tables

    def held(self, pattern):
        """Whether operating points hold for a pattern."""
        return self.pricing.running(pattern) is not None


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
    return arrange(problem.tables, np.array(pattern), len(pattern), units, points) != NONE


def priced(problem, values, nodes):
    """The result without harder roles, which are for workloads that may take the places of easier ones."""
    plain = copy(problem.pricing)
    plain.harder_first = np.zeros_like(plain.harder_first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "SCHEDULE", replace(oracle.SCHEDULE, roles=Effort(nodes, CLOSE)))
        return plain.price(values, 0, 0)


@pytest.fixture(autouse=True)
def few_copies(monkeypatch):
    monkeypatch.setattr(oracle, "SCHEDULE", InterferencePricing(many=10**9))


def rising(problem, draw, most=10**6):
    """Random prices of roles; a harder role costs no less than an easier one, as the duals of a program have it."""
    values = np.random.default_rng(draw).integers(1, most, len(problem.copies))
    first, harder = problem.pricing.harder_first, problem.pricing.harder
    for one in range(len(values) - 1, -1, -1):
        for other in harder[first[one]: first[one + 1]].tolist():
            values[other] = max(values[other], values[one])
    return values


drawn = given(seed=st.integers(0, 30), draw=st.integers(0, 10**6))


@settings(max_examples=25)
@drawn
def test_the_dearest_set_is_found(seed, draw):
    problem = Sharing(random_testbed(5, seed))
    values = rising(problem, draw)
    patterns, least, _ = priced(problem, values, ENOUGH)
    most = max(values[list(one)].sum() for one in possible(problem, problem.copies))
    assert most <= least <= most * (1 + 2 * CLOSE) + 2
    assert most == max(values[list(one)].sum() for one in patterns)
    assert all(problem.held(one) for one in patterns)
    assert all(one.count(member) <= problem.copies[member] for one in patterns for member in one)


@settings(max_examples=25)
@drawn
def test_a_search_cut_short_still_bounds(seed, draw):
    problem = Sharing(random_testbed(6, seed))
    values = rising(problem, draw)
    most = max(values[list(one)].sum() for one in possible(problem, problem.copies))
    assert all(priced(problem, values, nodes).most >= most for nodes in (0, 1, 10, 100))


def test_roles_of_one_model_offered_together_may_stand_any_number_of_times(monkeypatch):
    monkeypatch.setattr(oracle, "SCHEDULE", InterferencePricing(many=1))
    for seed in range(8):
        problem = Sharing(random_testbed(4, seed))
        values = rising(problem, seed)
        patterns, least, _ = priced(problem, values, ENOUGH)
        most = max(values[list(one)].sum() for one in possible(problem, problem.copies * 40))
        assert least >= most
        assert all(values[list(one)].sum() <= most and problem.held(one) for one in patterns)
