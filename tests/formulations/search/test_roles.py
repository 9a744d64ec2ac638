"""Roles: the dominance order, and rates at which workloads are split."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from provision.formulations.search.roles import Role, dominance, hardest_first, least_replicas, serving, split_rates

ROLES = st.lists(
    st.builds(lambda model, slo, rate: Role((model,), float(slo), float(rate), float(rate)),
              st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8, unique=True)


@given(ROLES)
def test_edges_of_dominance_reach_whatever_serves(roles):
    """The edges are the transitive reduction of the order."""
    roles = sorted(roles, key=hardest_first)
    serves = serving(roles, roles)
    np.fill_diagonal(serves, False)
    order = nx.from_numpy_array(serves, create_using=nx.DiGraph)
    assert set(zip(*map(list, dominance(roles)), strict=True)) == set(nx.transitive_reduction(order).edges)


@given(ROLES)
def test_no_role_serves_one_before_it(roles):
    roles = sorted(roles, key=hardest_first)
    serves = serving(roles, roles)
    assert not np.tril(serves, -1).any()


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=30), st.floats(0.5, 20), st.floats(30, 2000))
def test_split_rates_keep_whole_rates_and_start_low(rates, least, most):
    """Every rate that one replica carries is among them, and equal parts of the others; none is above the most."""
    found = split_rates(rates, least, most)
    assert found == sorted(set(found))
    assert max(found) <= most
    assert min(found) <= max(least, min(rates))
    for rate in rates:
        assert rate / least_replicas(rate, most) in found or rate / least_replicas(rate, most) > most
