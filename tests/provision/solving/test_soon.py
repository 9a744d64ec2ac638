"""Plans that are there soon, without sharing; and no work beyond the deadline."""

import pytest

import provision
from provision.formulations.pricing.oracle import settings_of
from provision.formulations.search.problem import Problem
from provision.instances.read import generate
from provision.models.base.clock import NEVER, Deadline, TimeIsUpError


def drawn(many):
    """Workloads of iGniter's generator with SLOs and rates of their own."""
    base = generate(many, 3)
    several = [one.model_copy(update={"slo_ms": one.slo_ms * (1 + at / many), "max_replicas": None,
                                      "rate_rps": one.rate_rps * (1 + at / many)})
               for at, one in enumerate(base.workloads)]
    return base.replace(workloads=several)


@pytest.mark.parametrize("method", ["greedy", "lns"])
def test_a_search_without_time_has_a_plan_in_which_replicas_share_nothing(method):
    instance = drawn(30)
    found = provision.solve(instance, method, 1e-3, replay=False)
    assert found.plan is not None and found.report.ok
    alone = instance.replace(fleet=[entry.model_copy(update={"mps": False}) for entry in instance.fleet])
    assert found.objective <= provision.solve(alone, "greedy", replay=False).objective


@pytest.mark.parametrize("name", ["igniter-testbed-12", "parvagpu-s2-shared"])
def test_settings_are_not_made_after_the_deadline(name):
    instance = provision.read(name)
    longer = [one.model_copy(update={"slo_ms": one.slo_ms * 1.001}) for one in instance.workloads]
    problem = Problem(instance.replace(workloads=longer))  # nothing about it is cached
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
