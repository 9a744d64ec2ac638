"""Replanning where replicas share slices or GPUs, or are spread over GPUs: the least weighted sum, by brute force."""

import numpy as np
import pytest
from replan_oracle import tiny
from synthetic_networks import random_mixed
from synthetic_sharing import random_sharing
from weighted_oracle import least_weighted

import provision
from provision.replanning.replan import after_loss, replan, replan_lost


def served(instance, factor=1.0, **limits):
    """The instance at other rates and with limits on replicas."""
    workloads = (one.model_copy(update=limits | {"rate_rps": one.rate_rps * factor}) for one in instance.workloads)
    return instance.replace(workloads=tuple(workloads))


def interfering(seed, workloads, max_replicas):
    """Whole GPUs under interference, of 4 units and with batches up to 3."""
    instance = random_sharing(seed, workloads=workloads, hot=seed % 2 == 0)
    hardware = instance.performance[0].hardware.model_copy(update={"unit_share": 0.25})
    data = instance.performance[0].model_copy(update={"hardware": hardware, "max_batch": 3})
    return served(instance.replace(performance=(data,)), 0.5, max_replicas=max_replicas)


def turning(seed):
    """GPUs on which two models take turns, with few batch sizes and ways to split a GPU."""
    instance = provision.read(["gpulets-equal", "gpulets-traffic"][seed % 2])
    data = instance.performance[0].model_copy(update={"batches": (4, 16), "splits": ((1.0,), (0.4, 0.6), (0.5, 0.5))})
    fleet = tuple(one.model_copy(update={"count": None}) for one in instance.fleet)
    few = instance.workloads[seed % 2 : seed % 2 + 2]
    return served(instance.replace(performance=(data,), fleet=fleet, workloads=few, workflows=()), 3.0)


def spread(seed):
    """MIG slices of one replica each, no GPU with more than half of a workload's rate."""
    return served(tiny((40.0 + 20 * seed, 50.0)), max_share_per_gpu=0.5)


MAKERS = {
    "one replica each": lambda seed: interfering(seed, 3, 1),
    "split": lambda seed: interfering(seed, 2, None),
    "MIG slices": lambda seed: served(random_mixed(seed, workloads=2 + seed % 2, gpus_each=0.5), max_replicas=1),
    "turns": turning,
    "shares per GPU": spread,
}
ROUGH = ("split", "MIG slices")
"""Where the program does not know all contents of slices, and whole GPUs go on."""


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("seed", range(2))
def test_the_weighted_sum_is_that_of_brute_force(kind, seed):
    """New rates, and the GPUs of the running plan but one where it has several."""
    before, draw = MAKERS[kind](seed), np.random.default_rng(seed)
    plan = provision.solve(before, replay=False, time_limit_s=10).plan
    workloads = tuple(one.model_copy(update={"rate_rps": one.rate_rps * draw.choice([0.5, 1.0, 1.5])})
                      for one in before.workloads)
    instance, cost = before.replace(workloads=workloads), float(draw.choice([0.02, 0.3]))
    found = replan(instance, plan, cost, time_limit_s=10)
    least = least_weighted(instance, plan, cost, 2)
    if least is None:
        assert found.plan is None and found.status.startswith("infeasible")
    else:
        assert found.report.ok and found.bound - 1e-4 <= least <= found.weighted + 1e-4
        assert kind in ROUGH or (found.status == "optimal" and found.weighted == pytest.approx(least, abs=1e-4))


def test_the_way_back_after_a_loss_is_the_shortest():
    instance = served(MAKERS["one replica each"](1), 1.4)
    plan = provision.solve(instance, replay=False, time_limit_s=10).plan
    found, left = replan_lost(instance, plan, 0, 0.05), after_loss(instance, plan, 0)[1]
    assert found.status == "optimal" and found.changes.replicas_started > 0
    assert found.weighted == pytest.approx(least_weighted(instance, left, 0.05, 2), abs=1e-4)


def test_levels_of_spread_slices():
    """More than some plan from scratch may be needed where nothing is to be destroyed; nobody is told otherwise."""
    before = spread(0)
    plan = provision.solve(before, replay=False, time_limit_s=10).plan
    more = served(before, 1.5)
    added, free = (replan(more, plan, 0.3, allow, time_limit_s=3) for allow in ("replicas", "slices"))
    assert added.report.ok and added.changes.slices_destroyed == 0
    assert free.status == "optimal" and free.weighted <= added.weighted * (1 + 1e-9)
    assert replan(more, plan, 0.3, "batches", time_limit_s=1).plan is None


def test_bounds_hold_where_rates_are_split_over_shared_slices():
    """There contents are not listed, and the bound on the cost alone stands beside a plan."""
    before = random_mixed(3, workloads=2, gpus_each=0.7)
    plan = provision.solve(before, replay=False, time_limit_s=10).plan
    found = replan(served(before, 1.2), plan, 0.3, time_limit_s=3)
    assert found.report.ok and 1 < found.bound <= found.weighted * (1 + 1e-9)
