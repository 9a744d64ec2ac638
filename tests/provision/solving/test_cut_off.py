"""A search that does not look at its clock is broken off soon after its limit, with the best plan that it told."""

import time

import pytest

import provision
from provision.models.base.clock import COMPILING
from provision.models.problem.search import Incumbent, Outcome
from provision.solving.cut_off import GRACE, GRACE_S, TimeOver, cut_off

FAR_S = 60.0
SOON_S = 10.0


@pytest.fixture(scope="module")
def plan():
    return provision.solve("parvagpu-s1", "greedy", replay=False).plan


def _sleeps(instance, search):
    """A method that forgets the time."""
    time.sleep(FAR_S)
    return Outcome("unknown", "completed")


def _says_that_it_was_stopped(instance, search):
    try:
        return _sleeps(instance, search)
    except KeyboardInterrupt:
        return Outcome("unknown", "stopped")


def test_the_best_plan_told_is_the_answer(plan):
    def tells_and_sleeps(instance, search):
        search.report(Incumbent(2.0, 1.0, plan))
        return _sleeps(instance, search)

    began = time.perf_counter()
    found = provision.solve("parvagpu-s1", tells_and_sleeps, 0.2, strict=True)
    assert time.perf_counter() - began < SOON_S
    assert (found.status, found.termination, found.bound) == ("feasible", "time_limit", 1.0) and found.verified


def test_a_method_that_handles_it_ended_by_the_time_limit():
    found = provision.solve("parvagpu-s1", _says_that_it_was_stopped, 0.2, strict=True)
    assert (found.status, found.termination, found.plan) == ("unknown", "time_limit", None)


def test_compilation_does_not_count():
    COMPILING.begin()
    try:
        with cut_off(0.1) as cut:
            time.sleep(0.1 * (1 + GRACE) + 2 * GRACE_S)
    finally:
        COMPILING.end()
    assert not cut.made


def test_it_ends_what_goes_on_after_the_first_time():
    with pytest.raises(TimeOver), cut_off(0.1):
        try:
            time.sleep(FAR_S)
        except TimeOver:
            time.sleep(FAR_S)
