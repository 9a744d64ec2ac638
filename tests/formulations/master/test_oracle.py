"""Exact methods against brute force, heuristics against proven bounds, on tiny random instances."""

import math

import pytest
from oracle import best_value
from synthetic import random_instance

import provision

MOST_GPUS = 4
CASES = [
    ("a30", dict(workloads=2, gpus=("a30",))),
    ("a30 limited", dict(workloads=2, gpus=("a30",), limited=True)),
    ("a30 tolerant", dict(workloads=2, gpus=("a30",), tolerant=True, gpus_each=0.8)),
    ("a100", dict(workloads=2, gpus=("a100-80gb",), gpus_each=0.8)),
    ("whole", dict(workloads=2, gpus=("t4",))),
    ("mixed", dict(workloads=2, gpus=("a30", "t4"))),
    ("mixed limited tolerant", dict(workloads=2, gpus=("a30", "t4"), limited=True, tolerant=True, gpus_each=0.8)),
]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("block", range(3))
def test_exact_method_agrees_with_brute_force(name, kind, block):
    """partition-counts is optimal exactly when brute force says so, and its bound never exceeds the optimum."""
    proved = 0
    for seed in range(block * 15, block * 15 + 15):
        instance = random_instance(seed, **kind)
        best = best_value(instance, MOST_GPUS)
        result = provision.solve(instance, "partition-counts")
        proved += _agree(instance, result, best)
    assert proved >= 6


def _agree(instance, result, best):
    """Check one result against the oracle; 1 when the instance was decided by both."""
    if best is None:
        assert result.status != "optimal" or len(result.plan.gpus) > MOST_GPUS
        return int(result.status == "infeasible")
    assert result.status != "infeasible"
    if result.bound is not None:
        assert result.bound <= best * (1 + 1e-9)
    if result.plan is None:
        return 0
    if len(result.plan.gpus) <= MOST_GPUS:
        assert result.objective >= best * (1 - 1e-9)
    if result.status == "optimal":
        assert math.isclose(result.objective, best, rel_tol=1e-9) or len(result.plan.gpus) > MOST_GPUS
        return 1
    return 0
