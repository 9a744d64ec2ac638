"""MIG-serving's fast algorithm (Tan et al. 2021): it chooses the GPU configuration with the highest score again and
again. From the public description: the score, at most two workloads on a GPU, one whole GPU after the other, and MIG
instances with one process each (MIG-serving does not use MPS). The following is guessed, as the description does not
mention it:

- utilities count in full, even beyond the rate that a workload still needs; therefore the first GPUs of workloads with
  low rates have far more instances than they need, as ParvaGPU (SC 2024, section IV-B) observes of MIG-serving;
- partitions are those to which no instance can be added; instances that no workload needs are left out;
- an instance has the batch size with the highest throughput inside the latency budget;
- nothing is repacked at the end.
"""

import numpy as np

from provision.formulations.search.segments import Segments
from provision.heuristics.mig_serving.configs import FEATURES, Config, Configs, planned
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search, Termination

NAME = "mig-serving-fast"


def solve(instance: Instance, control: Search) -> Outcome:
    """Plan an instance with MIG-serving's fast algorithm."""

    def deploy(segments: Segments) -> tuple[Segments, list[Config], Termination]:
        return segments, Configs(instance, segments).fill(np.zeros(len(instance.workloads))), "completed"

    return planned(instance, control, NAME, deploy)


METHODS = (
    Method(
        name=NAME,
        summary="GPU configurations of at most two workloads by the outstanding rate they carry; no MPS",
        run=solve,
        source="MIG-serving, Tan et al. 2021, fast algorithm",
        features=FEATURES,
    ),
)
