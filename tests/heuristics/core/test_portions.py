"""Many replicas on shared slices are planned in portions, one after the other."""

from collections import Counter
from itertools import chain

import pytest

from provision import solve
from provision.formulations.pricing.oracle import role_ways
from provision.formulations.search.problem import Problem
from provision.heuristics.core import greedy
from provision.heuristics.core.greedy import portions, problem_of
from provision.instances.read import generate
from provision.models.problem.workload import FleetEntry


def free(workloads, seed):
    """Workloads with any number of replicas each."""
    instance = generate(workloads, seed)
    return instance.replace(workloads=[one.model_copy(update={"max_replicas": None}) for one in instance.workloads])


@pytest.mark.parametrize("most", [7, 30, 10**6])
def test_portions_are_alike_and_together_the_problem(most):
    problem = problem_of(free(90, 1))
    several = portions(problem, most)
    members = [[member for group in one.groups for member in group.members] for one in several]
    assert max(map(len, members)) <= most and max(map(len, members)) - min(map(len, members)) <= 1
    every = chain.from_iterable(group.members for group in problem.groups)
    assert Counter(chain.from_iterable(members)) == Counter(every)
    models = [Counter(group.models for group in one.groups for _ in group.members) for one in several]
    assert all(max(one[name] for one in models) - min(one[name] for one in models) <= 2
               for name in {group.models for group in problem.groups})


def test_plans_of_portions_hold_and_are_little_dearer(monkeypatch):
    instance = free(120, 2)
    whole = solve(instance, "greedy")
    monkeypatch.setattr(greedy, "SCHEDULE", greedy.SCHEDULE._replace(portion=40))
    parts = solve(instance, "greedy")
    assert parts.verified and whole.objective <= parts.objective <= 1.1 * whole.objective


def test_portions_share_what_the_fleet_has(monkeypatch):
    """Later portions do not use the GPUs of earlier ones: two entries of one type, the cheaper one with a count."""
    monkeypatch.setattr(greedy, "SCHEDULE", greedy.SCHEDULE._replace(portion=20))
    few = FleetEntry(gpu="v100", count=7, price_per_hour=1.0), FleetEntry(gpu="v100", price_per_hour=3.0)
    result = solve(free(60, 3).replace(fleet=few), "greedy")
    assert result.verified and result.objective == 7 + 3 * (result.report.gpus - 7)


def test_ways_of_roles_are_those_of_every_group_that_may_have_them():
    """Roles of equal rates, of smaller rates of split workloads, and without requests."""
    problem = Problem(free(24, 4))
    ways = {(one.group, one.role) for one in role_ways(problem, dict.fromkeys(range(len(problem.roles)), 0.5))}
    wanted = {(at, number) for number, role in enumerate(problem.roles) for at, group in enumerate(problem.groups)
              if group.workload_class == role.workload_class and 0 < role.rate_rps <= group.rate_rps}
    assert ways == wanted
