"""A plan is replayed before it is returned; auto plans again what the replay refutes."""

import numpy as np
import pytest

import provision
from provision.models.base.clock import Deadline, present_stop
from provision.solving import solve as solving
from provision.solving.repair import notes
from provision.solving.replayed import (
    BEYOND,
    SECONDS,
    refuted,
    replay_of,
    reports_of,
    swing,
    tightened,
    unsure,
)


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
    """The first replays are made to be late: the plan that comes back is verified and in time, with the first bound."""
    seen = []

    def late_at_first(instance, plan, seed, *clock):
        seen.append(plan)
        found = reports_of(instance, plan, seed)
        slower = [one.model_copy(update={"violation_rate": 0.02}) for one in found[0].workloads]
        return [one.model_copy(update={"workloads": tuple(slower)}) for one in found] if len(seen) == 1 else found

    monkeypatch.setattr(solving, "reports_of", late_at_first)
    found = provision.solve(queueing)
    assert len(seen) == 1 and found.verified and not found.replay.late
    assert found.digest == found.plan.digest == queueing.digest
    assert any("the plan was repaired" in note for note in found.notes)


def test_shorter_slos_are_for_whoever_is_not_sure():
    """Whose late parts swing may be over the limit in a further minute; a workflow shortens its workloads."""
    instance = provision.read("gpulets-traffic")
    report = provision.simulate(instance, provision.solve(instance, "nexus").plan, 2.0)

    def met(*parts):
        ours = [report.workloads[0].model_copy(update={"violation_rate": part}) for part in parts]
        return [report.model_copy(update={"workloads": (one,), "workflows": ()}) for one in ours]

    assert not unsure(met(0.004, 0.005, 0.004)) and unsure(met(0.001, 0.009, 0.001)) and unsure(met(0, 0.011, 0))
    tight = tightened(instance, {instance.workflows[0].name: 1.4})
    shorter = {one.name for one, before in zip(tight.workloads, instance.workloads, strict=True)
               if one.slo_ms == pytest.approx(before.slo_ms * 0.7)}
    assert shorter == set(instance.workflows[0].workloads)


def test_a_further_draw_is_beyond_its_bound_as_seldom_as_stated():
    """Of normal draws, though their spread is guessed from eight; shorter replays swing more than minutes."""
    draws = np.random.default_rng(5).normal(size=(4000, 9))
    beyond = np.mean([row[8] > row[:8].mean() + swing(row[:8], SECONDS) for row in draws])
    assert beyond == pytest.approx(BEYOND, rel=0.4)
    assert swing(draws[0], SECONDS / 4) == pytest.approx(swing(draws[0], SECONDS) / 2)


def _minutes(queueing, parts):
    """Replays of one workload whose parts of late requests are given."""
    report = provision.simulate(queueing, provision.solve(queueing, "greedy", replay=False).plan, 60.0)
    ours = [report.workloads[0].model_copy(update={"violation_rate": part}) for part in parts]
    return [report.model_copy(update={"workloads": (one,), "workflows": ()}) for one in ours]


def test_a_minute_late_by_chance_is_told_as_that(queueing):
    """Late in some minutes is not late in the long run; its probability is about how often it happens."""
    parts = np.random.default_rng(3).normal(0.09, 0.01, 400) ** 2
    late = float(np.mean(parts > 0.01))
    reports = _minutes(queueing, parts[:16])
    assert unsure(reports, "every_minute") and not unsure(reports, "long_run") and not refuted(reports)
    found = replay_of(queueing, reports)
    assert found.late == () and list(found.by_chance.values()) == [pytest.approx(late, abs=0.1)]
    sure = _minutes(queueing, parts[:16] + 0.01)
    assert replay_of(queueing, sure).late and unsure(sure, "long_run")


def test_a_plan_that_replays_refute_is_not_optimal(queueing, monkeypatch):
    """Greedy's plan, made to be late in every replay: no repair is tried, and its status says so."""
    real = solving.reports_of

    def late(instance, plan, seed, *rest):
        return [one.model_copy(update={"workloads": tuple(
            each.model_copy(update={"violation_rate": 0.02}) for each in one.workloads)}) for one in
            real(instance, plan, seed)]

    monkeypatch.setattr(solving, "reports_of", late)
    found = provision.solve(queueing, "greedy")
    assert found.status == "refuted" and found.verified and found.replay.late
    assert found.summary()["status"] == "refuted"


def test_a_note_tells_whether_a_plan_was_repaired(queueing):
    """Where no plan is found, the first one comes back, and the note does not call it repaired."""
    plan = provision.solve(queueing, "greedy", replay=False).plan
    before, after = (plan, _minutes(queueing, np.full(4, 0.02))), (plan, _minutes(queueing, np.zeros(4)))
    told = f"replays of a plan by the latency rule had {queueing.workloads[0].name} late; "
    assert list(notes(queueing, before, before)) == [told + "no plan was found that repairs it"]
    assert list(notes(queueing, before, after)) == [told + "the plan was repaired"]


def test_replays_end_in_time_and_one_is_always_played(queueing):
    """No time left: one replay; time for all: as many as without a limit."""
    plan = provision.solve(queueing, "greedy", replay=False).plan
    told = []
    assert len(reports_of(queueing, plan, 0, Deadline(0.0), told.append)) == 1 and told == ["replaying 1 of 16"]
    assert reports_of(queueing, plan, 0, Deadline(1e4)) == reports_of(queueing, plan, 0)


def test_a_stop_in_the_replay_keeps_the_plan(queueing, monkeypatch):
    def stopped(*given):
        present_stop().ask()
        return reports_of(*given)

    monkeypatch.setattr(solving, "reports_of", stopped)
    found = provision.solve(queueing, "greedy")
    assert found.verified and found.replay.replications == 1
    assert "stopped while the plan was replayed" in found.notes


def test_the_replay_has_every_slo(queueing):
    found = provision.solve(queueing, "greedy").replay
    assert [one.name for one in found.slos] == [one.name for one in queueing.workloads]
    worst = min(found.slos, key=lambda one: one.margin)
    assert (worst.name, 1 - worst.margin) == (found.workload, pytest.approx(found.over_slo))
