"""Lists families of instances for benchmarks, and generates instances by name.

``igniter-1000-seed0`` has 1,000 workloads like those of iGniter's testbed (``igniter.generate``), ``inss-seed0`` has
InSS's workloads at random rates, and ``parvagpu-s5-x10`` is scenario S5 with every workload ten times.

Generates instances like those of iGniter's paper at any size.
"""

import re

import numpy as np

from provision.instances.files.instance_file import shipped, shipped_instances
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


PATTERNS = ("igniter-N-seedS", "inss-seedS", "parvagpu-sK-xN")
"""The forms of names of generated instances."""
FAMILIES = {
    "parvagpu": tuple(f"parvagpu-s{row}" for row in range(1, 7)),
    "parvagpu-shared": tuple(f"parvagpu-s{row}-shared" for row in range(1, 7)),
    "parvagpu-repeated": ("parvagpu-s5-x10", "parvagpu-s6-x10", "parvagpu-s5-x100"),
    "igniter": ("igniter-motivation", "igniter-testbed-12", "igniter-120-seed0", "igniter-1000-seed0"),
    "gpulets": tuple(f"gpulets-{name}" for name in ("equal", "long-only", "short-skew", "game", "traffic")),
    "gpulets-2022": tuple(f"gpulets-scen{number}" for number in range(1, 6)),
    "inss": ("inss", *(f"inss-seed{seed}" for seed in range(4)), "inss-six"),
    "variants": ("igniter-variants-12",),
    "mlperf": ("mlperf-llama-3.1-8b-server", "mlperf-llama-3.1-8b-interactive"),
}
"""The instances that ``provision bench`` solves, by family."""


def generated(name: str) -> Instance | None:
    """Generate the instance of this name; return None if the name has none of the forms in PATTERNS. Raises InputError
    if the instance would have no workload.
    """
    if found := re.fullmatch(r"igniter-(\d{1,6})-seed(\d{1,9})", name):
        return generate(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"inss-seed(\d{1,9})", name):
        return generate_inss(int(found[1]))
    if (found := re.fullmatch(r"(parvagpu-.+)-x([1-9]\d{0,3})", name)) and found[1] in shipped_instances():
        return repeated(shipped(found[1]), int(found[2]))
    return None


def repeated(instance: Instance, times: int) -> Instance:
    """The instance with ``times`` copies of every workload; every copy has another name."""
    return instance.replace(
        name=f"{instance.name}-x{times}",
        source=f"generated: {instance.name} with every workload {times} times",
        workloads=tuple(
            one.model_copy(update={"name": f"{one.name}-{copy}"})
            for copy in range(1, times + 1) for one in instance.workloads
        ),
        workflows=(),
    )
