"""A mistyped rate neither exhausts the machine nor outlasts the time limit."""

import pytest

import provision
from provision.solving import notes, replayed
from provision.solving.schedule import SolveSchedule
from provision.verification import verify as verifier

NAME = "parvagpu-s1"


def at_rate(rps):
    """A shipped instance whose first workload has another rate."""
    instance = provision.read(NAME)
    first, *others = instance.workloads
    return instance.replace(workloads=(first.model_copy(update={"rate_rps": rps}), *others))


def test_a_rate_of_a_billion_is_refused_with_its_place():
    with pytest.raises(provision.InputError, match=r"workloads\[0\].rate_rps: 1e\+09 requests/s .* lower the rate"):
        provision.solve(at_rate(1e9), "greedy", time_limit_s=1)


def test_one_workload_may_have_fewer_slices_than_all_together(monkeypatch):
    monkeypatch.setattr(notes, "MOST_OF_ONE", 3)
    notes.check_size(provision.read(NAME))
    with pytest.raises(provision.InputError, match="at most 3 for a workload"):
        notes.check_size(at_rate(50_000.0))


def test_a_plan_for_a_flood_of_requests_is_not_replayed(monkeypatch):
    monkeypatch.setattr(replayed, "SOLVE", SolveSchedule(requests=1000))
    result = provision.solve(NAME, "greedy", time_limit_s=2, replay=True)
    assert result.verified and result.replay is None
    assert any("not replayed" in note and "provision simulate" in note for note in result.notes)


def test_equal_replicas_are_judged_once(monkeypatch):
    calls = []
    judged = verifier.task_p99_ms
    monkeypatch.setattr(verifier, "task_p99_ms", lambda *given: calls.append(given) or judged(*given))
    instance = at_rate(100_000.0)
    plan = provision.solve(instance, "greedy", time_limit_s=2, replay=False).plan
    calls.clear()
    found = provision.verify(instance, plan)
    assert found.ok and len(found.predictions) > 5 * len(calls)
