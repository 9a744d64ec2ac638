"""Plans that hold with some confidence: what they must bear, and that searches and both verifiers agree on it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_instances import chat, instance, performance

from provision import read, solve, verify
from provision.models.performance.bands import Band
from provision.models.problem.policy import Policy
from provision.models.problem.uncertainty import Spread, Uncertainty, _of, stretch_of
from provision.simulation.simulate import simulate
from provision.verification.independent.uncertain import factors
from provision.verification.second import second_opinion

BANDS = {"ttft": {"low": 0.5, "high": 1.6}, "tpot": {"low": 0.9, "high": 1.2}, "source": "made up"}


def sure(name="parvagpu-s1", **policy):
    """A shipped instance under a policy for random arrivals."""
    found = read(name)
    given = found.policy.model_dump(exclude_unset=True) | {"latency_budget": "queueing"} | policy
    return found.replace(policy=Policy(**given))


def with_bands():
    """A language model whose performance data state bands."""
    data = performance("h100-80gb", whole=(400_000, 1.0))
    data["models"]["llama-8b"]["slices"]["whole"] |= {"bands": BANDS}
    return data


def test_factors_are_quantiles_of_lognormal_distributions():
    found = stretch_of(0.95, Uncertainty(service="5%", rates=0.1), (), set())
    level = 0.95**0.5  # two independent factors
    assert found.service == pytest.approx(Spread(0.0, 0.04879).at(level), 1e-4)
    assert found.rate == pytest.approx(Spread(0.0, 0.09531).at(level), 1e-4)
    alone = stretch_of(0.95, Uncertainty(service="5%"), (), set())
    assert 1 < alone.service < found.service and alone.rate == 1.0


def test_a_band_becomes_the_distribution_that_it_is_of():
    spread = _of(Band(low=0.9, high=1.2))
    assert spread.at(0.95) == pytest.approx(1.2) and spread.at(0.5) == pytest.approx((0.9 * 1.2) ** 0.5)


@settings(max_examples=50)
@given(st.floats(0.5, 0.98), st.floats(0, 0.5), st.floats(0, 0.5))
def test_more_confidence_asks_for_no_less(confidence, service, rates):
    uncertainty = Uncertainty(service=service, rates=rates)
    low, high = (stretch_of(one, uncertainty, (), set()) for one in (confidence, confidence + 0.01))
    assert all(1 <= less <= more for less, more in zip(low, high, strict=True))


def test_both_verifiers_work_out_the_same_factors(tmp_path):
    for problem in (sure(confidence=0.9, uncertainty={"service": "5%", "rates": "10%"}), sure(confidence=0.95),
                    instance([chat()], files=[with_bands()], policy={"confidence": 0.9})):
        path = tmp_path / "instance.json"
        path.write_text(problem.model_dump_json())
        tree = json.loads(path.read_text())
        data = tuple(one.model_dump(mode="json") for one in problem.performance)
        assert factors(tree, data) == pytest.approx(tuple(problem.policy.stretch))


def test_a_plan_that_holds_with_confidence_bears_what_it_should():
    """Its replicas hold under times and rates at the quantiles; a plan without confidence is no dearer."""
    problem = sure(confidence=0.95, uncertainty={"service": 0.1, "rates": 0.1})
    found, usual = (solve(one, "greedy", replay=False) for one in (problem, sure()))
    assert verify(problem, found.plan).ok and found.objective >= usual.objective
    assert not verify(problem, problem.adopted(usual.plan)).ok
    assert second_opinion(problem, found.plan).verdict != "violated"
    assert second_opinion(problem, usual.plan).verdict == "violated"
    stretch = problem.policy.stretch
    busier = sure().replace(workloads=tuple(
        one.model_copy(update={"rate_rps": one.rate_rps * stretch.rate}) for one in problem.workloads))
    report = simulate(busier, busier.adopted(found.plan), 60.0, service_factor=stretch.service)
    assert all(one.at_slo.mean_ms <= one.slo_ms for one in report.workloads)


def test_first_tokens_have_a_band_of_their_own():
    problem = instance([chat()], files=[with_bands()], policy={"confidence": 0.95})
    limits, stretch = problem.policy.limits_of(problem.workloads[0]), problem.policy.stretch
    assert stretch.service == pytest.approx(1.2) and stretch.first_token == pytest.approx(1.6)
    assert limits.tpot_ms == pytest.approx(20 / 1.2) and limits.ttft_ms == pytest.approx(300 / 1.6)


def test_burstier_arrivals_take_the_place_of_all():
    problem = sure(confidence=0.9, uncertainty={"service": "5%", "cv": 1.5})
    assert problem.policy.arrivals_of(problem.workloads[0]).cv == 1.5


def test_a_policy_for_rates_with_room_adds_none():
    policy = sure(confidence=0.9, headroom=0.2, uncertainty={"service": "5%", "rates": "10%"}).policy
    bare = policy.without_room()
    assert bare.planned_rps(7.0) == 7.0 and bare.safety == pytest.approx(policy.safety / policy.stretch.service)


@pytest.mark.parametrize(("policy", "message"), [
    ({"uncertainty": {"rates": "10%"}}, "add policy.confidence"),
    ({"confidence": 0.9, "uncertainty": {"service": "much"}}, "service"),
    ({"confidence": 1.0}, "less than 1")])
def test_what_makes_no_sense_is_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        sure(**policy)


def test_data_that_state_no_errors_are_named():
    with pytest.raises(ValueError, match="state no error of llama-8b; write a percentage"):
        instance([chat()], policy={"confidence": 0.9})
