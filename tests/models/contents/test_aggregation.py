"""Demands rounded down are a relaxation, rounded up a restriction."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.models.contents.aggregation import rounded
from provision.models.contents.problem import Group

GROUPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), st.integers(1, 50), st.sampled_from((None, 2.0))),
                  min_size=1, max_size=30, unique=True)


@given(GROUPS, st.integers(1, 12), st.booleans())
def test_every_workload_is_in_one_group_no_easier_or_no_harder(drawn, target, up):
    groups = [Group((model,), float(slo), float(rate), 1, math.inf, limit or math.inf, (at,))
              for at, (model, slo, rate, limit) in enumerate(drawn)]
    of = {member: group for group in rounded(groups, target, up) for member in group.members}
    assert sorted(of) == list(range(len(groups)))
    for member, group in of.items():
        own = groups[member]
        assert (group.models, group.least, group.most, group.cap_rps) == (own.models, 1, math.inf, own.cap_rps)
        if up:
            assert group.slo_ms <= own.slo_ms
            assert group.rate_rps >= own.rate_rps
        else:
            assert group.slo_ms >= own.slo_ms
            assert group.rate_rps <= own.rate_rps


@pytest.mark.parametrize("up", [True, False])
def test_few_groups_stay_as_they_are(up):
    groups = [Group(("a",), 10.0, float(rate), 1, 1, math.inf, (rate,)) for rate in range(5)]
    assert rounded(groups, 5, up) == groups
    assert len(rounded(groups, 2, up)) == 2
