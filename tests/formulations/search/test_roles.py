"""Roles: their order, and rates at which workloads are split."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from provision.formulations.search.problem import Role, hardest_first, least_replicas, split_rates

ROLES = st.lists(
    st.builds(lambda model, slo, rate: Role((model,), float(slo), float(rate), float(rate)),
              st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8, unique=True)


@given(ROLES)
def test_no_role_serves_one_before_it(roles):
    """A replica serves another role if its models are the same, its SLO is no longer and its rate no lower."""
    for before, one in combinations(sorted(roles, key=hardest_first), 2):
        assert one.models != before.models or one.slo_ms > before.slo_ms or one.rate_rps < before.rate_rps


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=30), st.floats(0.5, 20), st.floats(30, 2000))
def test_split_rates_keep_whole_rates_and_start_low(rates, least, most):
    """Every rate that one replica carries is among them, and equal parts of the others; none is above the most."""
    found = split_rates(rates, least, most)
    assert found == sorted(set(found))
    assert max(found) <= most
    assert min(found) <= max(least, min(rates))
    for rate in rates:
        assert rate / least_replicas(rate, most) in found or rate / least_replicas(rate, most) > most
