"""What each workload of a plan bears: factors at which the verifier's verdict turns, and what breaks first."""

import json
import re
from pathlib import Path

import pytest
from option_grid import KINDS, RULES, case

import provision
from provision.answers import margins
from provision.answers.margins import Margin, first_to_break, how_sure, lines, margins_of, weakest
from provision.answers.tails import tail_of
from provision.cli import main
from provision.models.base.clock import Deadline
from provision.models.traffic.arrivals import Renewal

AUDIT = Path(__file__).parents[4] / "shared/data/audit/v4/margins"


@pytest.fixture(scope="module")
def planned():
    """A shipped scenario under the queueing rule, and greedy's plan."""
    instance = provision.read("parvagpu-s1").with_policy(latency_budget="queueing")
    return instance, provision.solve(instance, "greedy", replay=False).plan


def test_the_verdict_turns_at_the_factor_of_the_rate(planned):
    """The verifier accepts the plan at just below the rule's factor of a workload's rate, and not above."""
    instance, plan = planned
    for one in margins_of(instance, plan):
        for factor, holds in ((one.rule_rate * 0.999, True), (one.rule_rate * 1.001, False)):
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


@pytest.mark.parametrize("which, how", [("service", "service_factor"), ("rate", "rate")])
def test_replays_of_the_plan_as_deployed_turn_at_the_margins(planned, which, how):
    """Well below every margin a workload keeps its SLO in a longer replay, and well above it is late."""
    instance, plan = planned
    for one in margins_of(instance, plan):
        for factor, late in ((0.94 * getattr(one, which), False), (1.06 * getattr(one, which), True)):
            asked = instance.replace(workloads=[
                each.model_copy(update={"rate_rps": each.rate_rps * (factor if how == "rate" else 1.0)})
                if each.name == one.workload else each for each in instance.workloads])
            more = {} if how == "rate" else {"service_factor": factor}
            seconds = 60_000 / asked.workload[one.workload].rate_rps
            assert (one.workload in provision.simulate(asked, plan, min(seconds, 400.0), 7, **more).late) == late


def test_batches_that_wait_as_long_as_planned_bear_no_longer_service():
    """A request in ten seconds waits as long as the SLO leaves beside a batch of four, which takes hardly longer than
    one: the rule would let it wait less with longer batches, the batcher does not.
    """
    points = [["whole", 1, 1, 100.0, 10.0], ["whole", 4, 1, 390.0, 10.2]]
    data = {"version": 1, "name": "own", "gpu": "t4", "kind": "measured-segments", "models": {"m": {"points": points}}}
    calm = provision.Instance.model_validate({
        "version": 2, "name": "calm", "fleet": [{"gpu": "t4"}], "performance": [data],
        "workloads": [{"name": "w", "model": "m", "slo_ms": 100, "rate_rps": 0.1}]})
    piece = {"profile": "whole", "start": 0, "replicas": [{"workload": "w", "batch": 4, "rate_rps": 0.1}]}
    plan = provision.Plan.model_validate({"version": 1, "instance": "calm", "gpus": [
        {"gpu": "t4", "mig": False, "slices": [piece]}]})
    assert provision.verify(calm, plan).ok
    [one] = margins_of(calm, plan)
    assert one.estimated and 1 <= one.service < 1.05 and one.rule_rate > 2
    assert provision.simulate(calm, plan, 20_000.0, service_factor=1.05).late


def test_audited_margins_are_those_of_replays():
    """Told to bear service +66 %, and 4 % late at +5 %, while batches wait as long as planned."""
    if not AUDIT.is_dir():
        pytest.skip(f"{AUDIT} is not there")
    instance = provision.read(AUDIT / "15.yaml")
    found = {one.workload: one for one in margins_of(instance, provision.read_plan(AUDIT / "15.plan.json"))}
    assert found["w1"].service < 1.05 < min(found["w0"].service, found["w2"].service)


def test_a_percentile_in_a_replay_is_in_its_own_band_and_below_the_rules_bound(planned):
    instance, plan = planned
    met = {one.workload: one.at_slo.mean_ms for one in provision.simulate(instance, plan, 120.0, 9).workloads}
    for one in margins_of(instance, plan):
        assert one.replayed.low_ms <= met[one.workload] <= one.replayed.high_ms
        assert one.replayed.ms <= one.tail.ms * 1.02


def test_both_verbs_tell_margins(planned, tmp_path, capsys):
    """In text and in --json, with the band of the percentile beside them."""
    instance, plan = planned
    file, made = tmp_path / "i.yaml", tmp_path / "p.json"
    provision.write(instance, file)
    provision.write(plan, made)
    assert main(["verify", str(file), str(made)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"bert: P99 replayed [\d.]+ ms \([\d.]+ to [\d.]+, 90%\), promised at most [\d.]+ ms \(.*; "
                     r"breaks at \+[\d.]+% service time, \+[\d.]+% traffic \(verify accepts", shown)
    assert main(["verify", str(file), str(made), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["margins"]
    assert {one["workload"] for one in told} == {one.name for one in instance.workloads}
    assert all(one["tail"]["low_ms"] <= one["tail"]["ms"] for one in told)
    assert main(["solve", str(file), "--method", "greedy", "--no-replay", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["margins"]
    assert list(lines([])) == []


def test_a_band_is_the_percentile_with_service_times_at_its_ends(planned):
    """The verifier's own percentile at these times, with the batches waiting as planned."""
    instance, plan = planned
    for one in margins_of(instance, plan):
        tail = one.tail
        assert tail.low_ms <= tail.ms <= (tail.high_ms or float("inf")) and tail.low < 1 < tail.high
        assert any(each.p99_ms == pytest.approx(tail.ms) for each in provision.verify(instance, plan).predictions
                   if each.workload == one.workload)
        assert one.fit_error >= tail.high - 1


def test_a_longer_time_than_the_plan_bears_can_overload_a_replica():
    """An SLO far above the batch time leaves room for the queue, none for longer batches at 97 % of the throughput."""
    instance = provision.read("parvagpu-s1").with_policy(latency_budget="queueing")
    plan = provision.solve(instance, "greedy", replay=False).plan
    full = {(one.gpu, one.slice, one.workload): one.throughput_rps
            for one in provision.verify(instance, plan).predictions}
    name = instance.workloads[0].name
    busy = plan.with_replicas(lambda replica: replica.model_copy(update={
        "rate_rps": 0.97 * min(rps for (_, _, who), rps in full.items() if who == replica.workload)})
        if replica.workload == name else replica)
    tails = [tail_of(instance, gpu.gpu, piece, at) for gpu in busy.gpus for piece in gpu.slices
             for at, one in enumerate(piece.replicas) if one.workload == name]
    assert any(one.high_ms is None and str(one).endswith("to overload, 90%)") for one in tails)


def test_a_plan_with_confidence_shows_the_percentile_of_times_as_predicted():
    """Its stated rates stand for longer times; the percentile is for those that are predicted."""
    usual = provision.read("parvagpu-s1").with_policy(latency_budget="queueing")
    sure = usual.replace(policy=usual.policy.model_copy(update={"confidence": 0.95}))
    plan = provision.solve(sure, "greedy", replay=False).plan
    for one in margins_of(sure, plan):
        slo_ms = sure.workload[one.workload].slo_ms
        assert one.tail.ms < slo_ms * sure.policy.safety
        assert one.tail.high > sure.policy.stretch.service or one.tail.high_ms <= slo_ms * sure.policy.safety


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_data_kind_tells_what_breaks_first(kind, rule):
    """Also language models; under half_slo burstiness is told of these alone."""
    instance = provision.Instance.model_validate(case(kind, rule, ()).content)
    found = margins_of(instance, provision.solve(instance, "greedy", replay=False).plan)
    assert [one.workload for one in found] == [one.name for one in instance.workloads]
    assert all(min(one.service, one.rate) >= 1 and one.first for one in found)
    assert {one.cv is None for one in found} == {rule == "half_slo" and kind != "tokens"}
    assert re.match(r"What if(, by replays)?: at 5%", first_to_break(found)) and len(list(lines(found))) == len(found)


def test_replicas_in_turns_bear_the_arrivals_that_their_rule_is_for():
    """A replay of the GPU tells how much burstier arrivals may be; Poisson arrivals are what the plan was made for."""
    instance = provision.Instance.model_validate(case("gpulets", "queueing", ()).content)
    plan = provision.solve(instance, "greedy", replay=False).plan
    assert all(one.cv >= 1 for one in margins_of(instance, plan))


def test_a_plan_of_too_many_different_replicas_says_so(planned, monkeypatch):
    instance, plan = planned
    monkeypatch.setattr(margins, "MOST_JUDGED", 3)
    assert margins_of(instance, plan) is None
    assert ["not computed for more than 3" in line for line in how_sure(instance, plan, None)] == [True]


def test_limits_on_tokens_break_at_the_factor_of_the_rate():
    """The verifier's own engine agrees, within what replays vary by."""
    instance = provision.Instance.model_validate(case("tokens", "queueing", ()).content)
    plan = provision.solve(instance, "greedy", replay=False).plan
    tight = min(margins_of(instance, plan), key=lambda one: one.rate)
    for factor, holds in ((tight.rate * 0.95, True), (tight.rate * 1.08, False)):
        more = plan.with_replicas(lambda replica, factor=factor: replica.model_copy(
            update={"rate_rps": replica.rate_rps * (factor if replica.workload == tight.workload else 1.0)}))
        kinds = {one.kind for one in provision.verify(instance, more).violations}
        assert ("latency" in kinds) != holds, kinds


def test_one_line_tells_what_breaks_first():
    tight = Margin(workload="a", service=1.03, rate=1.2, cv=None, first="service", fit_error=None)
    loose = Margin(workload="b", service=1.4, rate=1.15, cv=None, first="rate", fit_error=None)
    assert first_to_break([tight, loose]) == (
        "What if: at 5% longer service times 1 of 2 SLOs break (the first to break: a, at +3.0%); "
        "at 10% more traffic every SLO holds (the first to break: b, at +15.0%)")
    assert first_to_break([]) is None
    assert weakest([loose, tight]) == "The weakest workload is a: it breaks at +20.0% traffic or +3.0% service time."
    assert weakest([]) is None
    waits = tight.model_copy(update={"rate": 2.25, "estimated": True})
    assert weakest([waits]).endswith(
        "or +3.0% service time by replays. Waiting limits it, not load: its batches wait for requests until only their "
        "predicted time is left of the SLO; policy.safety 0.9 keeps a tenth back.")
    assert "Waiting limits" not in weakest([tight.model_copy(update={"rate": 1.04, "estimated": True})])


@pytest.mark.parametrize("looks", [0, 1, 5, 20, 40])
def test_a_workload_is_left_out_if_the_time_ends_before_all_of_its_margins_are_known(looks):
    class Ending(Deadline):
        """A deadline that comes after some looks."""

        left = looks

        @property
        def over(self):
            self.left -= 1
            return self.left < 0

    instance = provision.read("parvagpu-s1")
    plan, end = provision.solve(instance, "greedy", replay=False).plan, Ending(0)
    everything, found = margins_of(instance, plan), margins_of(instance, plan, end)
    assert found == everything[: len(found)]
    assert len(found) < len(everything) and end.left == -1  # nothing was tried after the end
