"""The method ``auto`` against the small solver on random instances of isolated slices."""

import pytest
from small_solver import optimum
from synthetic import random_instance
from synthetic_sharing import same

import provision

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
def test_auto_agrees_with_brute_force(name, kind, block):
    """It proves what the small solver finds, or that there is no plan; where it does not, its bound is no higher."""
    proved = 0
    for seed in range(block * 5, block * 5 + 5):
        instance = random_instance(seed, **kind)
        best, result = optimum(instance), provision.solve(instance, time_limit_s=4, replay=False)
        proved += result.status in ("optimal", "infeasible")
        if result.status in ("optimal", "infeasible"):
            assert same(result.objective, best)
        elif best is not None:
            assert (result.bound or 0) <= best * (1 + 1e-9)
            assert result.objective is None or result.objective >= best * (1 - 1e-9)
    assert proved >= 4
