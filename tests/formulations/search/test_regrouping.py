"""Workloads in equal parts: every part has one replica, and the parts carry the rate together."""

import math
from collections import Counter

import numpy as np
import pytest

import provision
from provision.formulations.search.problem import Problem, in_parts
from provision.instances.read import generate
from provision.models.problem.workload import FleetEntry

V100, T4 = FleetEntry(gpu="v100", price_per_hour=3.06), FleetEntry(gpu="t4", price_per_hour=0.53)
LIMITS = ({}, {"max_replicas": 1}, {"min_replicas": 3}, {"max_share_per_gpu": 0.5}, {"max_replicas": 3})


def limited(seed):
    """A Problem of workloads with limits of all kinds; some have rates that no GPU carries alone."""
    base, draw = generate(30, seed), np.random.default_rng(seed)
    several = [one.model_copy(update={"max_replicas": None, "rate_rps": one.rate_rps * float(draw.uniform(0.5, 3))}
                              | LIMITS[at % len(LIMITS)]) for at, one in enumerate(base.workloads)]
    data = ["igniter-t4-derived", "igniter-v100"]
    return Problem(base.replace(workloads=several, fleet=(T4, V100), performance=data))


@pytest.mark.parametrize("seed", range(4))
def test_parts_carry_the_rates_of_their_workloads_within_their_limits(seed):
    problem = limited(seed)
    whole, parts = ({one: [(group, number) for group in several for member, number in Counter(group.members).items()
                           if member == one] for one in range(30)} for several in (problem.groups, in_parts(problem)))
    for at, workload in enumerate(problem.instance.workloads):
        [(group, _)], [(part, number)] = whole[at], parts[at]
        assert (part.models, part.slo_ms, part.cap_rps) == (group.models, group.slo_ms, group.cap_rps)
        if workload.max_share_per_gpu < 1:
            assert (part.rate_rps, part.least, part.most) == (group.rate_rps, group.least, group.most) and number == 1
            continue
        assert (part.least, part.most) == (1, 1) and number * part.rate_rps == pytest.approx(group.rate_rps)
        assert workload.min_replicas <= number <= (workload.max_replicas or math.inf)
        if workload.max_replicas is None:
            assert part.rate_rps <= problem.single_rps[problem.position[group]].max() * (1 + 1e-9)


def test_equal_parts_are_in_one_group():
    groups = in_parts(limited(0))
    assert len(groups) == len({group._replace(members=()) for group in groups})


def test_a_fleet_that_no_data_describes_offers_no_slice_type():
    """As one of the narrower fleets with which methods begin."""
    instance = provision.read("parvagpu-s1")
    unmeasured = instance.replace(fleet=[instance.fleet[0].model_copy(update={"gpu": "a100-80gb", "mig": False})])
    problem = Problem(unmeasured)
    assert problem.single_rps.shape == (len(problem.groups), 0)
    assert provision.solve(unmeasured, "greedy", time_limit_s=2, replay=False).plan is None
