"""Plans that are there soon: of similar workloads made equal, and without sharing; and no work beyond the deadline."""

import pytest

import provision
from provision.formulations.pricing.settings import settings_of
from provision.formulations.search.problem import Problem
from provision.heuristics.core import greedy
from provision.instances.generators.families import generate
from provision.models.base.clock import NEVER, Deadline, TimeIsUpError
from provision.models.problem.search import Search
from provision.solving.steps import of_others, similar


def drawn(many, rule="half_slo"):
    """Workloads of iGniter's generator with SLOs and rates of their own."""
    base = generate(many, 3)
    several = [one.model_copy(update={"slo_ms": one.slo_ms * (1 + at / many), "max_replicas": None,
                                      "rate_rps": one.rate_rps * (1 + at / many)})
               for at, one in enumerate(base.workloads)]
    return base.replace(workloads=several).with_policy(latency_budget=rule)


@pytest.mark.parametrize("rule", ["half_slo", "queueing"])
def test_the_plan_of_similar_workloads_made_equal_is_one_of_the_instance(rule):
    instance = drawn(800, rule)
    [equal] = similar(instance)
    for one, other in zip(instance.workloads, equal.workloads, strict=True):
        assert other.slo_ms <= one.slo_ms and other.rate_rps >= one.rate_rps
    assert len({one.slo_ms for one in equal.workloads}) < len({one.slo_ms for one in instance.workloads}) / 2
    found = of_others(greedy.METHODS[0], similar)(instance, Search(60, 0, {}, lambda news: None))
    verdict = provision.verify(instance, found.plan)
    assert verdict.ok
    served = {one.name: 0.0 for one in instance.workloads}
    for gpu in found.plan.gpus:
        for piece in gpu.slices:
            for replica in piece.replicas:
                served[replica.workload] += replica.rate_rps
    assert all(served[one.name] == pytest.approx(one.rate_rps) for one in instance.workloads)


def test_few_distinct_workloads_stay_as_they_are():
    assert not list(similar(provision.read("igniter-testbed-12")))
    assert not list(similar(drawn(40)))


def test_workloads_without_requests_stay_as_they_are():
    instance = drawn(800)
    idle = instance.workloads[0].model_copy(update={"rate_rps": 0.0})
    [equal] = similar(instance.replace(workloads=[idle, *instance.workloads[1:]]))
    assert equal.workloads[0] == idle


@pytest.mark.parametrize("method", ["greedy", "lns"])
def test_a_search_without_time_has_a_plan_in_which_replicas_share_nothing(method):
    instance = drawn(30)
    found = provision.solve(instance, method, 1e-3, replay=False)
    assert found.plan is not None and found.report.ok
    alone = instance.replace(fleet=[entry.model_copy(update={"mps": False}) for entry in instance.fleet])
    assert found.objective <= provision.solve(alone, "greedy", replay=False).objective


@pytest.mark.parametrize("name", ["igniter-testbed-12", "parvagpu-s2-shared"])
def test_settings_are_not_made_after_the_deadline(name):
    instance = provision.read(name).replace(name="another")  # nothing about it is cached
    problem = Problem(instance)
    with pytest.raises(TimeIsUpError):
        list(settings_of(problem, Deadline(0)))
    assert list(settings_of(problem, NEVER))


def test_a_bound_below_the_rates_proves_that_the_fleet_is_too_small():
    instance = provision.read("inss-six")
    alone = instance.replace(fleet=[entry.model_copy(update={"mps": False}) for entry in instance.fleet])
    assert provision.solve(alone, "auto", 10).status == "infeasible"


def test_a_wrong_value_of_slack_is_refused_before_the_search():
    with pytest.raises(provision.InputError, match="slack=maybe"):
        provision.solve("igniter-testbed-12", "auto", 1e-3, replay=False, slack="maybe")
