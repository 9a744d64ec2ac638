"""A search in a process of its own: whatever becomes of it, the answer is the best plan that it told."""

import os
import signal
import sys
import threading
import time
from importlib import import_module

import pytest
from option_grid import TABLE

import provision
from provision.cli import main
from provision.models.base import kept
from provision.models.base.clock import COMPILING
from provision.models.problem.search import Incumbent, Outcome
from provision.models.traffic import queue_tables
from provision.solving.schedule import SolveSchedule

FAR_S = 60.0
SOON_S = 20.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there searches run in a process of their own")


@pytest.fixture(scope="module")
def plan():
    return provision.solve("parvagpu-s1", "greedy", replay=False).plan


def _solved(ends, plan=None, limit_s=FAR_S, report=None):
    """What becomes of a search that tells a plan, if any, and then ends in a way of its own; it has little time."""
    def method(instance, search):
        if plan is not None:
            search.report(Incumbent(20.48, 1.0, plan))
        ends(search)
        return Outcome("unknown", "time_limit")

    began = time.perf_counter()
    found = provision.solve("parvagpu-s1", method, limit_s, strict=True, replay=False, report=report)
    assert time.perf_counter() - began < SOON_S
    return found


def test_a_search_that_forgets_the_time_is_left_with_its_plan(plan):
    found = _solved(lambda search: time.sleep(FAR_S), plan, 0.2)
    assert (found.status, found.termination, found.bound, found.plan) == ("feasible", "time_limit", 1.0, plan)
    assert found.verified and "did not end at its time limit" in found.notes[-1]


def test_without_a_plan_the_answer_is_unknown():
    found = _solved(lambda search: time.sleep(FAR_S), None, 0.2)
    assert (found.status, found.termination, found.plan) == ("unknown", "time_limit", None)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_search_that_dies_loses_nothing(plan, number):
    found = _solved(lambda search: os.kill(os.getpid(), number), plan)
    assert found.verified and found.termination == "died" and found.plan == plan
    assert f"died ({number.name})" in found.notes[-1]


def test_a_search_that_dies_is_missed_although_a_child_of_it_lives(plan):
    def leaves_a_child(search):
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FAR_S)

    found = _solved(leaves_a_child, plan)
    assert found.verified and found.termination == "died"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("looks", [True, False])
def test_a_signal_stops_a_search_that_looks_and_one_that_does_not(plan, number, looks):
    def waits(search):
        os.kill(os.getppid(), number)
        while not looks or search.left_s:
            time.sleep(0.01)

    before = signal.signal(number, signal.SIG_DFL), signal.getsignal(number)
    try:
        found = _solved(waits, plan, 10.0)
        assert signal.getsignal(number) is before[1]
    finally:
        signal.signal(number, before[0])
    assert found.termination == "stopped"
    assert (found.plan is None) == looks  # the method that looked returned no plan; the other was left with its own


def test_what_it_raises_is_raised_and_says_where():
    def raises(search):
        raise provision.InputError("first line", "second line")

    with pytest.raises(provision.InputError) as caught:
        _solved(raises)
    assert caught.value.lines == ("first line", "second line") and "in raises" in caught.value.__notes__[0]


def test_a_callback_that_fails_stops_it(plan):
    def report(news):
        raise RuntimeError("the screen is gone")

    def looks(search):
        while search.left_s:
            time.sleep(0.01)

    with pytest.raises(RuntimeError, match="the screen is gone"):
        _solved(looks, plan, report=report)


def test_compiling_there_does_not_count(plan):
    def compiles(search):
        COMPILING.begin()
        time.sleep(2.0)
        COMPILING.end()

    before_s = COMPILING.spent_s
    found = _solved(compiles, None, 0.5)
    assert not any("left" in note for note in found.notes) and COMPILING.spent_s - before_s > 1.5


def test_it_ends_with_its_caller():
    """The caller dies of a signal that it cannot handle; nothing of the search stays."""
    reading, writing = os.pipe()

    def search_in_vain():
        def method(instance, search):
            time.sleep(FAR_S)

        provision.solve("parvagpu-s1", method, FAR_S, strict=True)

    caller = os.fork()
    if not caller:
        os.close(reading)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()
        search_in_vain()
    os.close(writing)
    os.waitpid(caller, 0)
    assert os.read(reading, 1) == b""  # until the last copy of the other end is closed
    os.close(reading)


@pytest.fixture
def bursty(monkeypatch, tmp_path):
    """An instance with arrivals of which no table is kept, and no time for any."""
    monkeypatch.setattr(kept, "user_folder", lambda: tmp_path)
    monkeypatch.setattr(queue_tables, "COARSE_REQUESTS", 2**12)
    for module in ("solving.solve", "commands.planning.solve"):
        monkeypatch.setattr(import_module(f"provision.{module}"), "SOLVE", SolveSchedule(tables=0.0))
    return provision.Instance(
        version=2, name="bursty", fleet=[{"gpu": "a30", "price_per_hour": 1.0}], performance=[TABLE], workloads=[
            {"name": "w", "model": "m0", "slo_ms": 150, "rate_rps": 20, "arrivals": {"process": "renewal", "cv": 2.5}}])


def test_coarse_latency_tables_prove_nothing(bursty, monkeypatch, tmp_path):
    monkeypatch.setattr(queue_tables.Limited, "refine", lambda block, until: not until.over)
    found = provision.solve(bursty, time_limit_s=FAR_S, strict=True, replay=False)
    assert (found.status, found.bound) == ("feasible", None) and found.verified
    assert "coarse" in found.notes[-1] and found.notes[-1].endswith("complete now")
    assert len(list(tmp_path.glob("*.npy"))) > 1


def test_no_answer_waits_for_a_latency_table(bursty, monkeypatch, tmp_path, capsys):
    """Neither the search, nor margins, nor what is printed after them computes one that is not coarse."""
    monkeypatch.setattr(queue_tables.Limited, "refine", lambda block, until: False)
    monkeypatch.setattr(queue_tables, "computed_turns", lambda *key: pytest.fail("computed a whole table"))
    provision.write(bursty, tmp_path / "bursty.yaml")
    assert main(["solve", str(tmp_path / "bursty.yaml"), "--time-limit", str(FAR_S), "--no-replay"]) == 0
    assert "P99 promised at most" in capsys.readouterr().out
