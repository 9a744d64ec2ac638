"""Callbacks and functions in the place of methods: nothing is lost, and what came before counts."""

from importlib import import_module

import pytest

import provision
from provision.models.problem.search import Outcome


def test_a_callback_that_fails_ends_the_search_not_the_result():
    def report(news):
        if news.plan is not None:
            raise RuntimeError("the screen is gone")

    found = provision.solve("igniter-testbed-12", report=report)
    assert found.verified
    assert any("RuntimeError: the screen is gone" in note for note in found.notes)


def test_a_callback_sees_plans():
    seen = []
    found = provision.solve("parvagpu-s5", report=seen.append)
    plans = [news.plan for news in seen if news.plan is not None]
    assert plans
    assert all(provision.verify(provision.read("parvagpu-s5"), plan).ok for plan in plans)
    assert seen[-1].objective == found.objective


def test_a_function_is_a_method():
    known = provision.solve("parvagpu-s1").plan

    def mine(instance, search):
        assert 20 <= search.time_limit_s <= 40
        return Outcome("feasible", "completed", known)

    found = provision.solve("parvagpu-s1", mine, time_limit_s=40)
    assert (found.method, found.status, found.verified) == ("mine", "feasible", True)


@pytest.mark.parametrize(("spent_s", "left_s"), [(0, 40), (10, 30), (100, 0.5)])
def test_what_came_before_counts_and_half_a_second_is_left(spent_s, left_s, monkeypatch):
    limits_s = []
    monkeypatch.setattr(import_module("provision.models.base.clock"), "perf_counter", lambda: 1000.0)

    def mine(instance, search):
        limits_s.append(search.time_limit_s)
        return Outcome("unknown", "completed")

    provision.solve(provision.read("parvagpu-s1"), mine, time_limit_s=40, started=1000.0 - spent_s)
    assert limits_s == [left_s]


def test_a_function_whose_plan_fails_is_told():
    short = provision.solve("parvagpu-s1").plan

    def mine(instance, search):
        return Outcome("feasible", "completed", short.model_copy(update={"gpus": short.gpus[:-1]}))

    with pytest.raises(provision.MethodError, match="method mine returned a plan that fails"):
        provision.solve("parvagpu-s1", mine)
