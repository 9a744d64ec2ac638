"""Pricing under co-location, against every set, share and batch of a few workloads by the scalar path."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.master.plans import Judge
from provision.formulations.master.rated import named
from provision.formulations.pricing.mps.kernels import feasible_sets, runs_of
from provision.formulations.pricing.mps.laws import law_of
from provision.formulations.pricing.mps.oracle import InterferencePatterns
from provision.formulations.pricing.mps.tables import tables_of
from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.search.problem import Problem
from provision.instances.read import read
from provision.models.base.clock import Deadline
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


def keeps(data, group, found):
    budget_ms = group.slo_ms / 2
    return (found.latency_ms <= budget_ms * (1 + TOLERANCE)
            and found.throughput_rps * (1 + TOLERANCE) >= group.rate_rps)


def can_share(data, groups):
    """Whether some shares and batches let a replica of each group keep SLO and rate on one GPU."""
    ways = list(product(range(1, UNITS + 1), range(1, BATCHES + 1)))
    for chosen in product(ways, repeat=len(groups)):
        if sum(units for units, _ in chosen) <= UNITS:
            members = [Member(group.models[0], batch, 1, units / UNITS)
                       for group, (units, batch) in zip(groups, chosen, strict=True)]
            if all(map(keeps, [data] * len(groups), groups, data.predict("whole", members))):
                return True
    return False


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), resources=st.integers(1, 2), order=st.sampled_from([1.0, 2.0, 3.0, 40.0]),
       effort=st.integers(0, 1))
def test_contents_run_and_nothing_is_worth_more_than_the_bound(seed, resources, order, effort):
    rng = np.random.default_rng(seed)
    data = random_data(rng, resources, order)
    problem = named(Problem(random_instance(rng, data)))
    oracle, groups, judge = InterferencePatterns(problem, data), problem.groups, Judge(problem)
    rates_rps = np.array([group.rate_rps for group in groups])
    values, endless = rng.integers(1, 1000, len(groups)), np.full(len(groups), np.inf)
    found = oracle.price(GroupPrices(values / rates_rps, np.zeros(len(groups)), endless, endless), 0.0, effort)
    judged = [judge.held(0, listing.rated(at).members) for listing in (found.patterns, oracle.listed())
              for at in range(min(len(listing.rps), 100))]
    for column in filter(None, judged):  # others are feasible only within the tolerances of bounds
        runs = [one.run for one in column.members]
        assert sum(one.sm_share for one in runs) <= 1 + TOLERANCE
        members = [Member(groups[at].models[one.model], one.batch, one.processes, one.sm_share)
                   for at, one in column.members]
        together = data.predict("whole", members)
        assert all(keeps(data, groups[at], one) for (at, _), one in zip(column.members, together, strict=True))
    possible = [chosen for size in range(1, len(groups) + 1) for chosen in combinations(range(len(groups)), size)]
    held = [one for one in possible if can_share(data, [groups[at] for at in one])]
    best = max(int(values[list(one)].sum()) for one in held)
    assert best <= found.most * (1 + 1e-9)
    if order <= 3:
        assert found.most <= best * (1 + 1e-5) + 2e-3


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), resources=st.integers(1, 2), order=st.sampled_from([1.0, 2.0, 3.0, 40.0]))
def test_every_set_that_can_share_a_gpu_is_listed_and_runs(seed, resources, order):
    rng = np.random.default_rng(seed)
    data = random_data(rng, resources, order)
    instance = random_instance(rng, data)
    groups = Problem(instance).groups
    tables = tables_of(data, instance.shared_rule, [(one.models, one.slo_ms / 2, one.rate_rps) for one in groups])
    copies = [len(one.members) for one in groups]
    listed = feasible_sets(tables, copies, Deadline(60))
    each = [at for at, many in enumerate(copies) for _ in range(many)]
    possible = {chosen for size in range(1, len(each) + 1) for chosen in combinations(each, size)}
    assert {one for one in possible if can_share(data, [groups[at] for at in one])} <= set(listed)
    for one in listed:
        runs = runs_of(tables, one)
        if runs is None:  # feasible only within the limits of bounds, if at all
            continue
        assert sum(run.sm_share for run in runs) <= 1 + TOLERANCE
        members = [Member(groups[at].models[run.model], run.batch, run.processes, run.sm_share)
                   for at, run in zip(one, runs, strict=True)]
        together = data.predict("whole", members)
        assert all(keeps(data, groups[at], found) for at, found in zip(one, together, strict=True))


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
