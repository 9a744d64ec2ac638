"""Steps of rates cut finer: bounds rise, and what was known before is kept."""

import provision
from provision.formulations.master.generation import Generation
from provision.formulations.master.refined import refined
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline


def test_finer_steps_prove_two_gpus():
    """A GPU carries 395 requests/s of a workload of 400: coarse steps prove one GPU, finer ones two."""
    instance = provision.read("igniter-testbed-12")
    workload = instance.workload["vgg19-app2"].model_copy(update={"max_replicas": None})
    instance = instance.with_policy(latency_budget="queueing").replace(workloads=[workload])
    coarse = fine = Generation(Problem(instance))
    bounds = [list(coarse.rounds(Deadline(float("inf"))))[-1]]
    while bounds[-1] < 2 and (fine := refined(fine)):
        bounds.append(list(fine.rounds(Deadline(float("inf"))))[-1])
    assert bounds[0] == 1 and bounds[-1] == 2
    assert {role.rate_rps for role in coarse.problem.roles} < {role.rate_rps for role in fine.problem.roles}
    assert len(fine.program.patterns) >= len(coarse.program.patterns)
