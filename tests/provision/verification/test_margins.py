"""What each workload of a plan bears: factors at which the verifier's verdict turns, and what breaks first."""

import json

import pytest

import provision
from provision.answers.margins import Margin, first_to_break, lines, margins_of
from provision.cli import main
from provision.models.traffic.arrivals import Renewal


@pytest.fixture(scope="module")
def planned():
    """A shipped scenario under the queueing rule, and greedy's plan."""
    instance = provision.read("parvagpu-s1").with_policy(latency_budget="queueing")
    return instance, provision.solve(instance, "greedy", replay=False).plan


def test_the_verdict_turns_at_the_factor_of_the_rate(planned):
    """The verifier accepts the plan at just below the factor of a workload's rate, and not above."""
    instance, plan = planned
    for one in margins_of(instance, plan):
        for factor, holds in ((one.rate * 0.999, True), (one.rate * 1.001, False)):
            more = plan.with_replicas(lambda replica, name=one.workload, factor=factor: replica.model_copy(
                update={"rate_rps": replica.rate_rps * (factor if replica.workload == name else 1.0)}))
            assert provision.verify(instance, more).ok == holds


def test_half_slo_bears_what_its_budget_and_throughput_leave():
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "greedy").plan
    found = {one.workload: one for one in provision.verify(instance, plan).predictions}
    for one in margins_of(instance, plan):
        predicted = found[one.workload]
        least = min(predicted.budget_ms / predicted.latency_ms, predicted.throughput_rps / predicted.rate_rps)
        assert one.service <= least * 1.001 and one.cv is None
        assert one.first == min(("service", "rate"), key=lambda what: getattr(one, what))


def test_more_regular_arrivals_are_borne_and_wilder_ones_are_late(planned):
    """The coefficient of variation that is told is about where replays become late."""
    instance, plan = planned
    tight = min(margins_of(instance, plan), key=lambda one: one.cv)
    wilder = instance.replace(workloads=[
        one.model_copy(update={"arrivals": Renewal(cv=tight.cv * 1.5)}) if one.name == tight.workload else one
        for one in instance.workloads])
    assert 0.9 <= tight.cv < 10
    assert tight.workload in provision.simulate(wilder, plan, 60.0, 3).late


def test_both_verbs_tell_margins(planned, tmp_path, capsys):
    """In text and in --json, with the error of the fit beside them."""
    instance, plan = planned
    file, made = tmp_path / "i.yaml", tmp_path / "p.json"
    provision.write(instance, file)
    provision.write(plan, made)
    assert main(["verify", str(file), str(made)]) == 0
    shown = capsys.readouterr().out
    assert "breaks first" in shown and "data off by" in shown
    assert main(["verify", str(file), str(made), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["margins"]
    assert {one["workload"] for one in told} == {one.name for one in instance.workloads}
    assert main(["solve", str(file), "--method", "greedy", "--no-replay", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["margins"]
    assert list(lines([])) == []


def test_one_line_tells_what_breaks_first():
    tight = Margin(workload="a", service=1.03, rate=1.2, cv=None, first="service", fit_error=None)
    loose = Margin(workload="b", service=1.4, rate=1.15, cv=None, first="rate", fit_error=None)
    assert first_to_break([tight, loose]) == (
        "What if: at 5% longer service times 1 of 2 SLOs break, a first, at +3.0%; "
        "at 10% more traffic every SLO holds, b first, at +15.0%")
    assert first_to_break([]) is None
