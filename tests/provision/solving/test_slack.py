"""The most slack at the same cost."""

from collections import Counter

import pytest

import provision
from provision.models.base.errors import InputError


def least_slack(instance, plan):
    """The least part by which a workload's throughput exceeds its planned rate."""
    held = Counter()
    for found in provision.verify(instance, plan).predictions:
        held[found.workload] += found.throughput_rps
    return min(held[one.name] / instance.planned_rps(one) - 1 for one in instance.workloads)


@pytest.mark.parametrize("name", ["parvagpu-s1", "parvagpu-s2", "parvagpu-s3", "igniter-testbed-12"])
def test_slack_costs_nothing_and_is_never_less(name):
    instance = provision.read(name)
    tight, loose = (provision.solve(instance, slack=asked) for asked in ("no", "yes"))
    assert loose.objective == tight.objective and loose.status == tight.status == "optimal" and loose.verified
    assert least_slack(instance, loose.plan) >= least_slack(instance, tight.plan) - 1e-9
    routed = Counter()
    for _, _, _, replica in loose.plan.replicas():
        routed[replica.workload] += replica.rate_rps
    assert all(routed[one.name] == pytest.approx(instance.planned_rps(one)) for one in instance.workloads)


def test_what_the_gpus_have_left_is_given_to_all():
    """S3 fits its five GPUs with 14 % to spare, where the first plan found runs replicas at full throughput."""
    instance = provision.read("parvagpu-s3")
    assert least_slack(instance, provision.solve(instance, slack="no").plan) < 0.05
    assert least_slack(instance, provision.solve(instance).plan) > 0.1


def test_headroom_and_shares_per_gpu_hold_with_slack():
    instance = provision.read("parvagpu-s2")
    policy = instance.policy.model_copy(update={"headroom": 0.1})
    workloads = tuple(one.model_copy(update={"max_share_per_gpu": 0.5}) for one in instance.workloads)
    spread = instance.replace(policy=policy, workloads=workloads)
    assert provision.solve(spread, "auto").verified


def test_slack_is_yes_or_no():
    with pytest.raises(InputError, match="yes or no"):
        provision.solve(provision.read("parvagpu-s1"), slack="much")
