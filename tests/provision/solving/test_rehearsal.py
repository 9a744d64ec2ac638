"""Compiling kernels does not use up the time that a search was given."""

from dataclasses import replace
from importlib import import_module

import provision
from provision.models.base.clock import COMPILING, Stopwatch, started_s
from provision.models.problem.search import Outcome, Search
from provision.solving import rehearsal
from provision.solving.methods import methods


def test_a_method_is_rehearsed_until_nothing_is_compiled(monkeypatch):
    """Two kernels, each of which takes longer than a rehearsal: then a third time, in which all are there."""
    runs = []
    monkeypatch.setattr(rehearsal, "unwarmed", lambda: min(len(runs), 2))
    rehearsal.rehearse(provision.read("igniter-motivation"), lambda few, seconds: runs.append(few))
    assert len(runs) == 3


def test_a_search_has_all_its_time_however_long_compiling_takes(monkeypatch):
    clock, limits_s = [0.0], []

    def slow(instance, search):
        clock[0] += 50
        limits_s.append(search.time_limit_s)
        return Outcome("unknown", "completed")

    monkeypatch.setattr("provision.models.base.clock.perf_counter", lambda: clock[0])
    monkeypatch.setattr(rehearsal, "_rehearsed", set())
    provision.solve("igniter-testbed-12", replace(methods()["master"], run=slow), time_limit_s=3.0)
    assert len(limits_s) == 2 and limits_s[1] == 3


def test_no_search_counts_what_is_compiled_meanwhile(monkeypatch):
    """Not the one in whose step it happens, and none around it; what comes after counts again."""
    clock = [0.0]
    monkeypatch.setattr("provision.models.base.clock.perf_counter", lambda: clock[0])
    search, watch = Search(3.0), Stopwatch(started_s())
    COMPILING.begin()
    clock[0] += 50
    COMPILING.end()
    assert search.left_s == 3 and watch.elapsed_s == 0
    clock[0] += 1
    assert search.left_s == 2 and watch.elapsed_s == 1


def test_a_stop_in_the_rehearsal_ends_the_solve(monkeypatch):
    instance, left_s = provision.read("igniter-motivation"), []

    def stopped(few, search):
        search.stop.ask()
        left_s.append(search.left_s)
        return Outcome("unknown", "completed")

    method = replace(methods()["master"], run=stopped)
    solving = import_module("provision.solving.solve")
    monkeypatch.setattr(solving, "find_method", lambda name: method)
    monkeypatch.setattr(rehearsal, "_rehearsed", set())
    found = provision.solve(instance, "master")
    assert (found.status, found.termination) == ("unknown", "stopped") and set(left_s) == {0.0}


def test_answers_of_first_steps_do_not_wait_for_the_kernels_of_later_ones(monkeypatch):
    """A plan of one GPU is proven before anything but greedy is rehearsed; else the plan is told before."""
    told, rehearsed = [], []

    def noted(name, instance, moment):
        rehearsed.append((name, len(told)))

    monkeypatch.setattr(import_module("provision.solving.auto"), "rehearse_once", noted)
    result = provision.solve("igniter-motivation")
    assert (result.status, result.objective) == ("optimal", 3.06)
    assert not any("master" in name for name, _ in rehearsed)
    provision.solve("igniter-testbed-12", time_limit_s=5, report=told.append)
    assert {known > 0 for name, known in rehearsed if "master" in name} == {True}
