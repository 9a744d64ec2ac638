"""Plans that exporters are tried on: what random instances do not show."""

from functools import cache

from hypothesis import strategies as st
from synthetic import random_instance

import provision
from provision.exporters.common import TARGETS
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

FLEETS = [("a100-80gb",), ("a30",), ("a100-40gb", "h100-80gb"), ("h200-141gb", "v100"), ("t4",)]


def parts_of_whole_gpus():
    """iGniter's testbed: several workloads with parts of the SMs on whole GPUs."""
    instance = provision.read("igniter-testbed-12")
    return instance, provision.solve(instance, "igniter").plan


def shared_slices():
    """ParvaGPU's scenario 1 on one GPU: six workloads share its 3g.40gb, others have slices of their own."""
    alone = [
        ("resnet50", 32, 1, 407.05), ("resnet50", 32, 1, 407.05),
        ("vgg19", 32, 1, 224.565), ("inceptionv3", 32, 2, 425.06),
    ]  # fmt: skip
    together = [
        ("bert", 48, 1, 19), ("densenet121", 8, 4, 353), ("inceptionv3", 8, 1, 34.94), ("mobilenetv2", 8, 3, 677),
        ("resnet50", 2, 1, 14.9), ("vgg19", 12, 2, 129.435),
    ]  # fmt: skip
    slices = [Slice(profile="1g.10gb", start=start, replicas=(_replica(*one),)) for start, one in enumerate(alone)]
    slices.append(Slice(profile="3g.40gb", start=4, replicas=tuple(_replica(*one) for one in together)))
    gpu = PlannedGpu(gpu="a100-80gb", mig=True, slices=tuple(slices))
    instance = provision.read("parvagpu-s1-shared")
    plan = Plan(version=1, instance=instance.name, gpus=(gpu,))
    assert provision.verify(instance, plan).ok
    return instance, plan


def _replica(workload, batch, processes, rate_rps):
    return Replica(workload=workload, batch=batch, processes=processes, rate_rps=float(rate_rps))


@cache
def planned(seed):
    """A random instance with a plan that holds; the first two are of the kinds that random instances do not show."""
    if seed < 2:
        return (parts_of_whole_gpus, shared_slices)[seed]()
    instance = random_instance(seed, 1 + seed % 4, FLEETS[seed % len(FLEETS)])
    return instance, provision.solve(instance, "greedy").plan


cases = st.tuples(st.integers(0, 24), st.sampled_from([1, 3, 8])).filter(lambda case: planned(case[0])[1] is not None)


def exported(to, case):
    """Instance, plan and texts by file name; the texts are None where the target refuses."""
    instance, plan = planned(case[0])
    try:
        return instance, plan, TARGETS[to](plan, instance, case[1]).files
    except provision.InputError as error:
        assert str(error).startswith((to.partition("-")[0], "kubernetes")) and "\n" not in str(error)
        return instance, plan, None
