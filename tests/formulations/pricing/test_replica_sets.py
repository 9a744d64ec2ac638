"""Cheapest replica sets against exhaustive search, and the bounds that their prices prove."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_solver import optimum
from synthetic import random_instance

import provision
from provision.formulations.pricing.replica_sets import cheapest_replica_sets, sharpest
from provision.formulations.search.segments import best_segments, partitions_of
from provision.heuristics.core.mixing import mixed
from provision.models.base.arrays import distinct_rows
from provision.models.base.clock import Deadline

COSTS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


@given(data=st.data(), costs=COSTS, least=st.integers(0, 3))
@settings(max_examples=150)
def test_no_cheaper_cover_exists(data, costs, least):
    """The cover carries the rate with enough segments, and brute force finds none cheaper."""
    rates = st.integers(0, 30)
    throughput = data.draw(st.lists(st.integers(0, 12), min_size=len(costs), max_size=len(costs)).filter(any))
    rate = data.draw(rates)
    (counts,) = cheapest_replica_sets(
        np.array([throughput], float), np.array(costs), np.array([float(rate)]), np.array([least])
    )
    cost = int(counts @ costs)
    assert counts @ throughput >= rate
    assert counts.sum() >= least
    assert all(count == 0 for count, one in zip(counts, throughput, strict=True) if one == 0)
    assert not _cheaper_exists(throughput, costs, rate, least, cost)


def _cheaper_exists(throughput, costs, rate, least, cost):
    """Whether some counts of smaller cost carry the rate with enough usable segments."""
    ranges = [range((cost - 1) // c + 1) if one else range(1) for c, one in zip(costs, throughput, strict=True)]
    return any(
        np.dot(counts, costs) < cost and np.dot(counts, throughput) >= rate and sum(counts) >= least
        for counts in itertools.product(*ranges)
    )


def test_large_rates_are_divided_not_tabulated():
    """A million requests/s on segments of 7 for 3 and 2 for 1 costs what arithmetic says."""
    counts = cheapest_replica_sets(np.array([[2.0, 7.0]]), np.array([1, 3]), np.array([1e6]), np.array([1]))
    assert counts.tolist() == [[1, 142857]]


@pytest.mark.parametrize("copies", [1, 3])
def test_rate_that_is_an_exact_multiple_takes_no_segment_more(copies):
    """Segments whose throughputs add up to the rate are enough, rounding or not."""
    counts = cheapest_replica_sets(np.array([[0.1]]), np.array([2]), np.array([copies * 0.1]), np.array([1]))
    assert counts.tolist() == [[copies]]


def test_workloads_are_covered_together_as_they_are_alone():
    """Small and large rates, with and without a least number of segments, in one call and one by one."""
    throughput, costs = np.array([[3.0, 10.0, 0.0], [1.0, 4.0, 9.0], [2.0, 0.0, 11.0]] * 2), np.array([2, 3, 7])
    rate, least = np.array([1.0, 40.0, 25.0, 90.0, 5.0, 12.0]), np.array([0, 2, 0, 2, 1, 4])
    together = cheapest_replica_sets(throughput, costs, rate, least)
    alone = [cheapest_replica_sets(throughput[[at]], costs, rate[[at]], least[[at]]) for at in range(len(rate))]
    assert together.tolist() == [one[0].tolist() for one in alone]


def test_of_equal_kinds_the_first_is_taken():
    counts = cheapest_replica_sets(np.array([[5.0, 5.0]]), np.array([2, 2]), np.array([12.0]), np.array([1]))
    assert counts.tolist() == [[3, 0]]


@pytest.mark.parametrize("seed", range(8))
def test_prices_of_the_mix_prove_no_more_than_the_best_plan(seed):
    """The bound of greedy's linear program, on fleets of one and of two types with prices."""
    instance = random_instance(seed, workloads=2, gpus=("a30", "t4") if seed % 2 else ("a30",), gpus_each=0.8)
    _, bound = mixed(instance, best_segments(instance), Deadline(9))
    best = optimum(instance)
    assert best is None or bound <= best


def test_rounded_prices_keep_the_ratios_that_prove_most():
    instance = provision.read("parvagpu-s5")
    partitions = partitions_of(instance, best_segments(instance))
    assert sharpest(np.array([1, 2, 3, 4, 7]) * 5.12 / 7, partitions, 60).tolist() == [1, 2, 3, 4, 7]
    assert (sharpest(np.zeros(5), partitions, 60) == 1).all()


def test_distinct_rows_are_those_of_numpy():
    for table in (np.random.default_rng(0).integers(0, 3, (200, 3)), np.zeros((0, 2), int), np.eye(4)[[2, 0, 2]]):
        rows, index = distinct_rows(table)
        wanted, at = np.unique(table, axis=0, return_inverse=True)
        assert (rows == wanted).all() and (index == at.ravel()).all()
