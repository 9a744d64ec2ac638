"""Plans that survive the loss of any one GPU: found, bounded, and told apart from those that do not."""


import pytest
from pydantic import ValidationError

import provision
from provision.models.problem.policy import Survive
from provision.models.problem.search import Outcome, Search
from provision.solving.policies import surviving
from provision.solving.schedule import DETOURS
from provision.sweeps.parameters import changed
from provision.verification.deployment import capacity_rps

SURVIVE = Survive(gpu_failures=1)


def instance(name="parvagpu-s1", **policy):
    plain = provision.read(name)
    return plain.with_policy(**policy)


def without(plan, lost):
    """The plan after the loss of a GPU."""
    return plan.model_copy(update={"gpus": tuple(gpu for at, gpu in enumerate(plan.gpus) if at != lost)})


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
def test_what_is_left_carries_all_rates(rule):
    """Whichever GPU is lost, the capacities of the others cover the rates; no plan costs less than the bound."""
    asked = instance(latency_budget=rule, survive=SURVIVE)
    found = provision.solve(asked)
    assert found.verified and found.objective >= found.bound
    plain = provision.solve(instance(latency_budget=rule))
    assert found.objective >= plain.objective + asked.fleet[0].price_per_hour
    for lost in range(len(found.plan.gpus)):
        left = provision.verify(instance(latency_budget=rule), without(found.plan, lost))
        held = capacity_rps(asked, without(found.plan, lost), left.predictions)
        assert all(held[one.name] >= asked.planned_rps(one) * (1 - 1e-6) for one in asked.workloads)


def test_every_choice_has_a_quick_plan_before_one_is_searched():
    """However deep the search of the first choice goes, the plan is no dearer than what greedy finds for each."""
    asked, begun = instance(survive=SURVIVE), []

    def nothing(other, search):
        begun.append(search)
        return Outcome("unknown", "completed")

    found = surviving(asked, Search(60.0), nothing)
    assert provision.verify(asked, found.plan).ok
    choices = [one for one in begun if one.start is not None]
    assert len(choices) == DETOURS.spreads


def test_a_plan_that_does_not_survive_is_refuted():
    plan = provision.solve(instance()).plan
    report = provision.verify(instance(survive=SURVIVE), plan)
    assert any("after its loss the others carry" in one.message for one in report.violations)


def test_what_if_knows_survival():
    assert changed(instance(), {"survive": 1}) == instance(survive=SURVIVE)
    assert changed(instance(survive=SURVIVE), {"survive": 0}) == instance()
    with pytest.raises(provision.InputError, match="gpu_failures"):
        changed(instance(), {"survive": 2})


def test_other_methods_refuse_survival():
    with pytest.raises(provision.UnsupportedError, match=r"policy\.survive; use --method auto"):
        provision.solve(instance(survive=SURVIVE), "greedy")


@pytest.mark.parametrize(("name", "words"), [("parvagpu-s1-shared", "shared slices slow"), ("inss", "max_throughput"),
                                             ("igniter-testbed-12", "one replica survives no loss")])
def test_what_cannot_survive_is_refused(name, words):
    with pytest.raises(ValidationError, match=words):
        instance(name, survive=SURVIVE)


def test_replays_of_every_loss_are_in_time():
    """Under queueing nobody is late whichever GPU fails; without survival somebody is."""
    asked = instance(latency_budget="queueing", survive=SURVIVE)
    plan = provision.solve(asked, replay=False).plan
    for lost in range(len(plan.gpus)):
        report = provision.simulate(asked, plan, 20, fail={"gpu": lost, "at_s": 5.0})
        assert not report.late
        assert all(one.arrived == one.served + one.dropped + one.in_flight for one in report.workloads)
    other = instance("parvagpu-s3", latency_budget="queueing")
    plain = provision.solve(other, replay=False).plan
    assert any(provision.simulate(other, plain, 20, fail={"gpu": lost, "at_s": 5.0}).late for lost in range(2))


def test_requests_without_a_replica_violate_their_slo():
    """Each request that arrives after the loss of a workload's only GPU is dropped, and counts as late."""
    plan = provision.solve(asked := instance("igniter-motivation"), "greedy").plan
    report = provision.simulate(asked, plan, 20, warmup_s=0, arrival_cv=0, fail={"gpu": 0, "at_s": 5.0})
    lost = [one for one in report.workloads if one.dropped > one.served]
    assert lost
    assert all(one.violation_rate == pytest.approx(0.75, abs=0.02) and one.at_slo.mean_ms is None for one in lost)
    assert {one.workload for one in lost} <= set(report.late)


def test_a_failure_that_is_none_is_refused():
    plan = provision.solve(instance(), "greedy").plan
    with pytest.raises(provision.InputError, match="GPU 9 is not in the plan"):
        provision.simulate(instance(), plan, 20, fail={"gpu": 9, "at_s": 5.0})
    with pytest.raises(provision.InputError, match="after the end"):
        provision.simulate(instance(), plan, 20, fail={"gpu": 0, "at_s": 25.0})
