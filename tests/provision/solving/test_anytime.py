"""What is known at some second does not depend on the time limit: steps and turns take seconds, not parts of it."""

from itertools import pairwise

import pytest

import provision
from provision.models.base import clock
from provision.models.problem.policy import Survive
from provision.models.problem.search import Search
from provision.models.problem.workflow import Workflow
from provision.solving import auto, values
from provision.solving.methods import method
from provision.solving.schedule import SCHEDULE
from provision.solving.staged import planned

CASES = ("parvagpu-s1", "parvagpu-s1-shared", "igniter-testbed-12", "gpulets-equal", "inss")


@pytest.mark.parametrize("name", CASES)
def test_steps_have_the_same_seconds_under_every_limit(name):
    instance = provision.read(name)
    short, long = ([(step.__qualname__, seconds) for step, seconds in auto._steps(instance, Search(limit_s))]
                   for limit_s in (8.0, 800.0))
    assert short == long


@pytest.mark.parametrize("name", ["inss", "gpulets-equal", "parvagpu-s1-shared", "igniter-motivation"])
def test_plans_and_bounds_come_at_the_same_moments_under_every_limit(name, monkeypatch):
    """The clock of this test goes on at every look, so that moments do not depend on the machine."""
    instance, limits_s = provision.read(name), (24.0, 24.0, 12.0)  # both leave time for whole solver runs
    _, long, short = (moments(instance, limit_s, monkeypatch) for limit_s in limits_s)  # the first run fills caches
    before_s = limits_s[-1] - 1.0  # what begins just before the limit may be cut off
    assert [one for one in short if one[0] < before_s] == [one for one in long if one[0] < before_s]
    assert all(before <= after for (before, *_), (after, *_) in pairwise(long)) and long


@pytest.mark.parametrize("rule", ["survive", "even_replicas", "bursts"])
def test_other_instances_get_the_same_turns_under_every_limit(rule, monkeypatch):
    """Rules that are planned through other instances keep their moments too."""
    instance = ruled(provision.read("parvagpu-s1"), rule)
    _, long, short = (moments(instance, limit_s, monkeypatch) for limit_s in (12.0, 12.0, 4.0))
    assert [one for one in short if one[0] < 3.0] == [one for one in long if one[0] < 3.0] and long


def ruled(instance, rule):
    """The instance with a rule that is planned through other instances."""
    if rule == "bursts":
        first, second, *_ = instance.workloads
        flow = Workflow(name="flow", edges=((first.name, second.name),))
        equal = [second.model_copy(update={"rate_rps": first.rate_rps}) if one is second else one
                 for one in instance.workloads]
        return instance.with_policy(latency_budget="queueing").replace(workloads=equal, workflows=(flow,))
    return instance.with_policy(**{rule: Survive(gpu_failures=1) if rule == "survive" else True})


def moments(instance, limit_s, monkeypatch):
    """The second, objective and bound of every Incumbent that ``auto`` reports."""
    found, looks = [], [0]

    def look():
        looks[0] += 1
        return looks[0] * 0.02

    def report(news):
        found.append((round(looks[0] * 0.02 - clock.COMPILING.spent_s, 6), news.objective, news.bound))

    monkeypatch.setattr(clock, "perf_counter", look)
    monkeypatch.setattr(clock.COMPILING, "spent_s", 0.0)
    planned(method("auto"), instance, Search(limit_s, 0, method("auto").parameters, report))
    return found


@pytest.mark.parametrize("limit_s", [60.0, 600.0])
def test_turns_of_bounds_and_walks_are_alike_under_every_limit(limit_s, monkeypatch):
    """Where many workloads share GPUs, each turn has seconds of its own."""
    turns = list[float]()

    def turn(seconds):
        turns.append(seconds)
        return len(turns) < 6

    monkeypatch.setattr(values.bound.ValueBound, "prove", lambda bound, progress, seconds: turn(seconds))
    monkeypatch.setattr(values.lns, "walking", lambda progress: turn)
    values.solve(provision.read("igniter-testbed-12"), Search(limit_s))
    assert turns == [0.0, SCHEDULE.walk_s, *[SCHEDULE.values_s, SCHEDULE.walks_s] * 3]


def test_the_limit_only_cuts_off():
    """No deadline is later than the limit, and seconds within it are given in full."""
    search = Search(5.0)
    assert search.within(1.0).left_s == pytest.approx(1.0, abs=0.5)
    assert search.within(100.0).left_s <= 5.0 and search.apart(100.0).time_limit_s <= 5.0
    assert search.apart(1.0).time_limit_s == 1.0
