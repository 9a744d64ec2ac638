"""Random small variations of iGniter's testbed."""

import numpy as np

from provision.instances.read import generate


def random_testbed(workloads, seed):
    """Workloads of the testbed in random order, SLOs and rates varied: some GPUs hold one, others many."""
    draw = np.random.default_rng(seed)
    base = generate(24, seed)
    picked = [base.workloads[at] for at in draw.permutation(24)[:workloads]]
    varied = [
        one.model_copy(update={"slo_ms": one.slo_ms * float(draw.uniform(1, 2)),
                               "rate_rps": one.rate_rps * float(draw.uniform(0.2, 1))})
        for one in picked
    ]
    return base.replace(workloads=tuple(varied))
