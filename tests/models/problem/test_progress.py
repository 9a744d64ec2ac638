"""What a search keeps back to write its plan."""

import pytest

import provision
from provision.models.problem.search import Progress, Search


def reserved_s(name, method):
    """The time that is kept back for each replica of a plan."""
    instance = provision.read(name)
    plan = provision.solve(instance, method, replay=False).plan
    return Progress(instance, Search(10, 0, start=plan)).writing_s / len(list(plan.replicas()))


def test_replicas_beside_others_are_given_twice_the_time():
    """Their predictions depend on each other, so that verifying takes longer."""
    assert reserved_s("igniter-motivation", "ffd++") == pytest.approx(2 * reserved_s("parvagpu-s3", "parvagpu"))
