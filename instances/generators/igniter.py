"""Generates instances like those of iGniter's paper at any size."""

import numpy as np

from provision.instances.files.instance_file import shipped
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

TESTBED, INSS = "igniter-testbed-12", "inss"


def generate(workloads: int, seed: int) -> Instance:
    """Generate ``workloads`` copies of the testbed's workloads in turn, with rates multiplied by U(0.5, 1). Raises
    InputError if there is less than one workload or the seed is negative.
    """
    if workloads < 1 or seed < 0:
        raise InputError(f"{workloads} workloads, seed {seed}: give at least 1 workload and a seed from 0 on")
    testbed = shipped(TESTBED)
    factors = np.random.default_rng(seed).uniform(0.5, 1, workloads).tolist()
    rounds = [(*divmod(index, len(testbed.workloads)), factor) for index, factor in enumerate(factors)]
    return testbed.replace(
        name=f"igniter-{workloads}-seed{seed}",
        source=f"generated: the workloads of {TESTBED} in turn, rates times U(0.5, 1), seed {seed}",
        workloads=tuple(
            _varied(testbed.workloads[which], f"-{turn + 1}", factor) for turn, which, factor in rounds
        ),
    )


def generate_inss(seed: int) -> Instance:
    """The shipped instance ``inss`` with rates multiplied by U(0.5, 1.5)."""
    inss = shipped(INSS)
    factors = np.random.default_rng(seed).uniform(0.5, 1.5, len(inss.workloads)).tolist()
    return inss.replace(
        name=f"{INSS}-seed{seed}",
        source=f"generated: {INSS}, rates times U(0.5, 1.5), seed {seed}",
        workloads=tuple(_varied(one, "", factor) for one, factor in zip(inss.workloads, factors, strict=True)),
    )


def _varied(workload: Workload, suffix: str, factor: float) -> Workload:
    """A workload with another name and its rate multiplied by a factor."""
    return workload.model_copy(update={"name": workload.name + suffix, "rate_rps": workload.rate_rps * factor})
