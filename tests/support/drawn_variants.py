"""Variants for random instances: models of other workloads, or any that the performance data knows."""

import numpy as np


def with_variants(instance, seed, most=2):
    """An instance whose workloads have up to so many variants each, the first workload at least one if it can."""
    rng = np.random.default_rng(seed)
    known = sorted({model for data in instance.performance for model in data.models})
    return instance.replace(workloads=tuple(_varied(rng, known, one, at, most)
                                            for at, one in enumerate(instance.workloads)))


def _varied(rng, known, workload, at, most):
    others = [model for model in known if model != workload.model]
    many = min(int(rng.integers(at == 0, most + 1)), len(others))
    return workload.model_copy(update={"variants": tuple(rng.permutation(others)[:many].tolist())})
