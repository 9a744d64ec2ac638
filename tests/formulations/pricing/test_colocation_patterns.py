"""The content oracle under co-location, against every set, share and batch of a few workloads by the scalar path."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.pricing.mps.laws import law_of
from provision.formulations.pricing.mps.schedule import SCHEDULE
from provision.formulations.pricing.oracle import oracles_of
from provision.formulations.search.problem import Problem
from provision.instances.read import read
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.performance.catalogue import load_performance
from provision.models.performance.colocation import Colocation
from provision.models.performance.operating_points import Member
from provision.models.problem.objective import objective_of

UNITS, BATCHES, WORKLOADS = 4, 3, 3
TOLERANCE = 1e-9
"""The verifier's."""


def random_data(rng, resources, order):
    """Co-location data of a few models with coarse shares; some coefficients are 0."""
    def some(high):
        return (rng.uniform(0, high, resources) * rng.integers(0, 2, resources)).tolist()

    models = {
        name: {
            "solo": {"fixed_ms": rng.uniform(0.1, 1), "request_ms": rng.uniform(0, 1),
                     "fixed_work_ms": rng.uniform(0, 1), "request_work_ms": rng.uniform(0.1, 1)},
            "stretch": some(1), "wait_ms": some(1), "base_demand": some(1), "load_demand": some(1),
            "overlap_ms": rng.uniform(0, 0.1),
        }
        for name in ("a", "b")
    }
    return Colocation(version=1, name="drawn", gpu="v100", kind="colocation", unit_share=1 / UNITS, max_batch=BATCHES,
                      half_load_batch=2.0, norm_order=order, models=models)


def random_instance(rng, data):
    """Workloads that a GPU can each serve alone, with one replica each."""
    workloads = []
    for number in range(WORKLOADS):
        model, units = str(rng.choice(["a", "b"])), int(rng.integers(1, UNITS + 1))
        batch = int(rng.integers(1, BATCHES + 1))
        [alone] = data.predict("whole", [Member(model, batch, 1, units / UNITS)])
        tight = rng.choice([1.0, rng.uniform(1, 2)])
        workloads.append({"name": f"w{number}", "model": model, "slo_ms": 2 * alone.latency_ms * float(tight),
                          "rate_rps": alone.throughput_rps * float(rng.choice([1.0, rng.uniform(0.2, 1)])),
                          "max_replicas": 1})
    return provision.Instance.model_validate(
        {"version": 1, "name": "drawn", "policy": {"latency_budget": "half_slo", "safety": 1.0, "headroom": 0.0},
         "fleet": [{"gpu": "v100"}], "performance": [data.model_dump()], "workloads": workloads})


def keeps(data, role, found):
    budget_ms = role.slo_ms / 2
    return (found.latency_ms <= budget_ms * (1 + TOLERANCE)
            and found.throughput_rps * (1 + TOLERANCE) >= role.rate_rps)


def can_share(data, roles):
    """Whether some shares and batches let all roles keep SLO and rate on one GPU."""
    ways = list(product(range(1, UNITS + 1), range(1, BATCHES + 1)))
    for chosen in product(ways, repeat=len(roles)):
        if sum(units for units, _ in chosen) <= UNITS:
            members = [Member(role.models[0], batch, 1, units / UNITS)
                       for role, (units, batch) in zip(roles, chosen, strict=True)]
            if all(map(keeps, [data] * len(roles), roles, data.predict("whole", members))):
                return True
    return False


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), resources=st.integers(1, 2), order=st.sampled_from([1.0, 2.0, 3.0, 40.0]),
       effort=st.integers(0, 1))
def test_contents_run_and_nothing_is_worth_more_than_the_bound(seed, resources, order, effort):
    rng = np.random.default_rng(seed)
    data = random_data(rng, resources, order)
    problem = Problem(random_instance(rng, data))
    [[oracle]], roles = oracles_of(problem).values(), problem.roles
    copies = [sum(group.rate_rps == role.rate_rps and group.workload_class == role.workload_class
                  for group in problem.groups for _ in group.members) for role in roles]
    each = [at for at, many in enumerate(copies) for _ in range(many)]
    values = rng.integers(1, 1000, len(roles))
    found = oracle.price(values, 0, effort)
    for pattern in [*found.patterns, *oracle.seeds()]:
        runs = oracle.running(pattern)
        assert runs is not None
        assert sum(one.sm_share for one in runs) <= 1 + TOLERANCE
        members = [Member(roles[at].models[one.model], one.batch, one.processes, one.sm_share)
                   for at, one in zip(pattern, runs, strict=True)]
        together = data.predict("whole", members)
        assert all(keeps(data, roles[at], one) for at, one in zip(pattern, together, strict=True))
    possible = {tuple(sorted(chosen)) for size in range(1, len(each) + 1) for chosen in combinations(each, size)}
    best = max(int(values[list(one)].sum()) for one in possible if can_share(data, [roles[at] for at in one]))
    assert found.most >= best
    if found.exhaustive and order <= 3:
        assert found.most <= best * (1 + SCHEDULE.roles.close) + 2


def igniter_testbed(**changes):
    """iGniter's testbed with measured co-location in place of its own model."""
    instance = read("igniter-testbed-12").replace(performance=(load_performance("colocation-v100"),))
    workloads = tuple(one.model_copy(update=changes) for one in instance.workloads)
    return instance.replace(workloads=workloads)


@pytest.mark.parametrize(("most", "gpus", "gap"), [(1, 5, 0.0), (None, 6, 0.17)])
def test_the_testbed_is_planned_with_a_bound(most, gpus, gap):
    instance = igniter_testbed(max_replicas=most)
    found = provision.solve(instance, "master", gap=gap)
    assert provision.verify(instance, found.plan).ok
    assert found.bound == pytest.approx(5 * objective_of(instance).weight(instance.fleet[0]))
    assert len(found.plan.gpus) <= gpus


def test_a_method_that_knows_no_colocation_says_so():
    with pytest.raises(UnsupportedError, match="further kind"):
        provision.solve(igniter_testbed(max_replicas=None), "parvagpu")


def test_a_third_resource_is_refused():
    data = random_data(np.random.default_rng(0), 3, 2.0)
    with pytest.raises(InputError, match="3 shared resources"):
        law_of(data, {"a"}, partly_filled=False)
