"""Groups of similar workloads are as hard as the hardest of them."""

import math

from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.formulations.search.problem import Group, Problem
from provision.formulations.search.regrouping import rounded

GROUPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), st.integers(1, 50), st.sampled_from((None, 2.0))),
                  min_size=1, max_size=30, unique=True)


@given(GROUPS, st.integers(1, 12))
def test_every_workload_is_in_one_group_no_easier_than_it(drawn, target):
    groups = [Group((model,), float(slo), float(rate), 1, math.inf, limit or math.inf, (at,))
              for at, (model, slo, rate, limit) in enumerate(drawn)]
    of = {member: group for group in rounded(groups, target) for member in group.members}
    assert sorted(of) == list(range(len(groups)))
    for member, group in of.items():
        own = groups[member]
        assert (group.models, group.least, group.most, group.cap_rps) == (own.models, 1, math.inf, own.cap_rps)
        assert group.slo_ms <= own.slo_ms
        assert group.rate_rps >= own.rate_rps


def test_few_groups_stay_as_they_are():
    groups = [Group(("a",), 10.0, float(rate), 1, 1, math.inf, (rate,)) for rate in reversed(range(5))]
    assert rounded(groups, 5) == rounded(groups, 7) == groups
    assert len(rounded(groups, 2)) == 2
    assert rounded([], 2) == []


def test_cuts_go_along_slos_and_rates():
    """Four SLOs at four rates in four chunks: the two shortest SLOs together, cut at half of their rates."""
    groups = [Group(("a",), float(slo), float(rate), 1, 1, math.inf, (4 * slo + rate,))
              for slo in range(4) for rate in range(4)]
    assert [(one.slo_ms, one.rate_rps) for one in rounded(groups, 4)] == [(0, 1), (0, 3), (2, 3), (3, 3)]


def test_a_fleet_that_no_data_describes_offers_no_slice_type():
    """As one of the narrower fleets with which methods begin."""
    instance = provision.read("parvagpu-s1")
    unmeasured = instance.replace(fleet=[instance.fleet[0].model_copy(update={"gpu": "a100-80gb", "mig": False})])
    problem = Problem(unmeasured)
    assert problem.single_rps.shape == (len(problem.groups), 0)
    assert provision.solve(unmeasured, "greedy", time_limit_s=2, replay=False).plan is None
