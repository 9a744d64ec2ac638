"""Plans by local search carry the whole demand within the slots and the limits on replicas."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.formulations.master.exchange import Demand, best_pair, drawn_slots, exchanged
from provision.formulations.master.rated import RatedSearch, named, rated_oracles
from provision.formulations.search.problem import Problem
from provision.models.base.clock import NEVER, Deadline
from provision.models.problem.instance import Instance
from provision.models.problem.search import Search


def on_t4s(workloads, **limits) -> Instance:
    """An instance with (model, SLO in ms, requests/s) of each workload."""
    return Instance.model_validate({
        "version": 1, "name": "t4s", "policy": {"latency_budget": "half_slo"},
        "fleet": [{"gpu": "t4", "price_per_hour": 0.53}], "performance": ["igniter-t4-derived"],
        "workloads": [{"name": f"w{at}", "model": model, "slo_ms": slo_ms, "rate_rps": rate_rps, **limits}
                      for at, (model, slo_ms, rate_rps) in enumerate(workloads)]})


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans())
def test_the_best_pair_is_that_of_all_pairs(seed, limited):
    draw = np.random.default_rng(seed)
    carried, number = draw.random((12, 3)) * (draw.random((12, 3)) < 0.7), draw.integers(0, 3, (12, 2)).astype(float)
    most = np.array([1.0, 2.0]) if limited else np.full(2, np.inf)
    demand = Demand(carried, np.ones(3), draw.random(3), number, most, 0.5)
    needed, floor = draw.random(3), float(draw.random())
    first, second = np.arange(12)[:8], np.arange(12)[4:]

    def score(one, two):
        over = np.maximum(number[one] + number[two] - most, 0).sum()
        return np.minimum(carried[one] + carried[two], needed) @ demand.value - demand.excess * over

    best = max(score(*pair) for pair in product(first, second))
    found = best_pair(demand, first, second, needed, most, floor, 10**6)
    assert found == (-1, -1) if best <= floor else score(*found) == pytest.approx(best)


@pytest.mark.parametrize("limits", [{}, {"max_replicas": 2}, {"min_replicas": 2}])
def test_exchanged_patterns_carry_all_rates_within_the_limits(limits):
    problem = named(Problem(on_t4s([("vgg19", 134, 210), ("resnet50", 60, 300), ("vgg19", 80, 120)], **limits)))
    rated = RatedSearch(problem, rated_oracles(problem, NEVER), Search(20.0), "master")
    assert list(rated.plans())
    columns, gpus = rated.master, round(rated.best / problem.dearest)
    found, draw = columns.relaxed(), np.random.default_rng(0)
    patterns = np.flatnonzero(columns.fits)
    partitions, slots = drawn_slots(columns, found, [gpus], 0.1, draw)
    assert [int(one.sum()) for one in partitions] == [gpus] == [len(slots)]
    chosen = exchanged(columns, found, patterns, slots, draw, Deadline(20.0))
    assert chosen is not None and len(chosen) == gpus
    assert (columns.part[chosen].sum(axis=0) >= 1 - 1e-9).all()
    replicas = columns.number[chosen].sum(axis=0)
    assert (replicas <= columns.most).all() and (replicas >= columns.least).all()
    assert len(drawn_slots(columns, found, [gpus], -0.1, draw)[1]) == gpus  # a bound below the linear program's value
    fewer = np.repeat(slots[:1], int(np.ceil(found.value - 1e-6)) - 1)
    assert len(fewer) == 0 or exchanged(columns, found, patterns, fewer, draw, Deadline(20.0)) is None
