"""A plan is replayed before it is returned; auto plans again what the replay refutes."""

from dataclasses import replace

import pytest

import provision
from provision.solving import solve as solving
from provision.solving.replayed import replayed


@pytest.fixture(scope="module")
def queueing():
    instance = provision.read("parvagpu-s1")
    return instance.with_policy(latency_budget="queueing")


def test_the_replay_is_told_and_can_be_left_out(queueing):
    found = provision.solve(queueing, "greedy")
    assert 0 < found.replay.over_slo <= 1 and not found.replay.late
    assert found.summary()["replay"]["over_slo"] == found.replay.over_slo
    assert provision.solve(queueing, "greedy", replay=False).replay is None


def test_half_slo_plans_that_are_late_are_told_so():
    assert provision.solve("parvagpu-s5", "greedy", replay=True).replay.late
    assert provision.solve("parvagpu-s5", "greedy").replay is None


def test_auto_repairs_what_a_replay_refutes(queueing, monkeypatch):
    """The first replay is made to be late: the plan that comes back is another, verified, and keeps the first bound."""
    seen = []

    def late_at_first(instance, plan, seed):
        seen.append(plan)
        found = replayed(instance, plan, seed)
        return replace(found, over_slo=1.2, late=("bert",)) if len(seen) == 1 else found

    monkeypatch.setattr(solving, "replayed", late_at_first)
    found = provision.solve(queueing, time_limit_s=20)
    assert found.verified and found.plan != seen[0] and not found.replay.late
    assert found.digest == found.plan.digest == queueing.digest
    assert any("planned again" in note for note in found.notes)
