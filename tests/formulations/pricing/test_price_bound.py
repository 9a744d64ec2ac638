"""Bounds by prices of slices: greedy's linear program proves no more than the best plan, and rounding keeps ratios."""

import numpy as np
import pytest
from small_solver import optimum
from synthetic import random_instance

import provision
from provision.formulations.pricing.alone.price_bound import sharpest
from provision.formulations.search.fleet import partitions_of
from provision.formulations.search.segments import best_segments
from provision.heuristics.core.mixing import mixed
from provision.models.base.arrays import distinct_rows
from provision.models.base.clock import Deadline


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
