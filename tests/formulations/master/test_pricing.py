"""Pricing under interference against all sets of a few replicas: what it finds can be planned, its bound holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbeds import random_testbed

from provision.formulations.pricing.mps.kernels import NONE, arrange
from provision.formulations.pricing.mps.offers import forgiving
from provision.formulations.pricing.mps.pricing import best_patterns
from provision.formulations.pricing.mps.rate_points import together_rps
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.schedule import Effort
from provision.formulations.values.bound import ValueBound
from provision.formulations.values.nodes import classes_of
from provision.models.base.tolerances import FORGIVEN

ENOUGH = 100_000
CLOSE = 1e-7
MOST = 10**6


class Sharing:
    """A testbed whose workloads have one replica each, and step values of its classes.

    ``roles`` has the index of a class and that of a rate at which its values rise, for all rates up to that of its
    workload.
    """

    def __init__(self, workloads, seed):
        instance = random_testbed(workloads, seed)
        rates_rps = np.array([instance.planned_rps(one) for one in instance.workloads])
        self.bound = ValueBound(instance, classes_of(instance, np.arange(workloads), rates_rps, 100))
        self.nodes, [self.points], [self.choices] = self._nodes(), self.bound.patterns.points, (
            self.bound.patterns.choices)
        levels = self.nodes.levels[self.nodes.kind]
        self.roles = [(at, level) for at, one in enumerate(self.bound.classes)
                      for level in np.flatnonzero((levels[at] > 0) & (levels[at] <= one.rates_rps[0])).tolist()]
        self.rates_rps = levels
        self.tables = tables_of(instance.performance[0], instance.shared_rule, [
            (one.models, one.slo_ms * instance.policy.part_of_slo, levels[at, level])
            for at, level in self.roles for one in [self.bound.problem.groups[at]]])

    def _nodes(self):
        """The nodes of the finest values: those with a step at the rate of each workload."""
        self.bound.finer = 2
        return self.bound._program(None).nodes

    def values(self, draw):
        """Random values in whole numbers that rise with the rate: of places, and (roles,) of the roles."""
        rows = np.sort(np.random.default_rng(draw).integers(1, MOST, self.nodes.shape), axis=1).astype(float)
        rows[:, 0] = 0.0
        found = self.nodes.of_classes(rows.ravel())
        return found, np.array([np.interp(self.rates_rps[at, level], found.rps[at], found.value[at])
                                for at, level in self.roles])

    def possible(self):
        """All sets of roles that a GPU can hold at least loosely; all subsets of such a set are in it."""
        found, grown = [], [()]
        while grown:
            grown = [(*one, role) for one in grown for role in range(one[-1] if one else 0, len(self.roles))
                     if self.holds((*one, role))]
            found += grown
        return found

    def holds(self, roles):
        points, units = np.zeros((2, len(roles)), int)
        return arrange(self.tables, np.array(roles, int), units, points) != NONE

    def carried(self, members):
        """The roles that the replicas of a pattern of operating points have: the highest rates that they carry."""
        there = members[members != NONE]
        rps = together_rps(self.points, members[None])[0][members != NONE] * (1 - FORGIVEN)
        levels = [np.searchsorted(self.rates_rps[self.points.at.group[one]], rate_rps, "right") - 1
                  for one, rate_rps in zip(there, rps, strict=True)]
        return sorted(self.roles.index((int(self.points.at.group[one]), int(level)))
                      for one, level in zip(there, levels, strict=True) if level)


def priced(sharing, values, nodes):
    return best_patterns(sharing.points, sharing.choices, forgiving(values.rps, values.value), 0, Effort(nodes, CLOSE))


drawn = given(seed=st.integers(0, 30), draw=st.integers(0, 10**6))


@settings(max_examples=25)
@drawn
def test_the_dearest_set_is_found(seed, draw):
    sharing = Sharing(4, seed)
    values, worth = sharing.values(draw)
    members, value, bound = priced(sharing, values, ENOUGH)
    most = max(worth[list(one)].sum() for one in sharing.possible())
    assert most <= bound <= most * (1 + 2 * CLOSE) + 2
    assert value.max() == pytest.approx(most, rel=1e-6)
    for one in members:
        roles = sharing.carried(one)
        assert not roles or (sharing.holds(roles) and worth[roles].sum() <= most)


@settings(max_examples=25)
@drawn
def test_a_search_cut_short_still_bounds(seed, draw):
    sharing = Sharing(5, seed)
    values, worth = sharing.values(draw)
    most = max(worth[list(one)].sum() for one in sharing.possible())
    assert all(priced(sharing, values, nodes)[2] >= most for nodes in (0, 1, 10, 100))
