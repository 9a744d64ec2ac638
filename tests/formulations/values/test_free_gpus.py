"""GPUs that cost nothing: plans of them are proven, by every way of pricing."""

import pytest

import provision


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("name", ["igniter-testbed-12", "parvagpu-s1-shared"])
def test_a_plan_of_free_gpus_is_optimal(name: str, limited: bool) -> None:
    """With ``limited`` each workload has at most its number of replicas in the instance."""
    base = provision.read(name)
    workloads = base.workloads if limited else [one.model_copy(update={"max_replicas": None}) for one in base.workloads]
    fleet = [entry.model_copy(update={"price_per_hour": 0.0}) for entry in base.fleet]
    found = provision.solve(base.replace(objective="min_cost", workloads=workloads, fleet=fleet), time_limit_s=4,
                            replay=False)
    assert (found.status, found.objective, found.bound) == ("optimal", 0.0, 0.0)


def test_owned_gpus_come_before_rented_ones() -> None:
    """Two A100s that cost nothing serve both workloads."""
    base = provision.read("parvagpu-s1-shared")
    entry = base.fleet[0]
    fleet = [entry.model_copy(update={"price_per_hour": 0.0, "count": 2}),
             entry.model_copy(update={"price_per_hour": 5.0})]
    found = provision.solve(base.replace(objective="min_cost", workloads=base.workloads[:2], fleet=fleet),
                            time_limit_s=4, replay=False)
    assert (found.status, found.objective) == ("optimal", 0.0)
