"""A signal asks a search to stop: it ends with the plan that it has, and nothing is raised."""

import signal
import threading

import pytest

import provision
from provision.heuristics.core import mixing
from provision.models.base.clock import Deadline, Stop, present_stop, stopping
from provision.models.problem.search import Search, stoppable


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell starts processes in the background deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_leaves_no_time_and_raises_nothing():
    before, outside = signal.getsignal(signal.SIGINT), Deadline(1000.0)
    with stoppable(signal.SIGINT) as stop:
        search = Search(1000.0)
        assert search.left_s > 900 and not stop.asked
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert stop.asked and search.left_s == 0 and search.apart(5.0).left_s == 0
        assert search.within(3.0).over and search.anew(time_limit_s=9.0).left_s == 0 and Deadline(10.0).over
    assert signal.getsignal(signal.SIGINT) is before and not outside.over and not present_stop().asked


def test_a_part_ends_with_the_whole_and_not_the_whole_with_a_part():
    with stopping() as whole:
        with stopping(Stop(whole)) as part:
            part.ask()
            assert Deadline(10.0).over
        assert not Deadline(10.0).over
        whole.ask()
        with stoppable(signal.SIGINT) as part:
            assert part.asked


def test_signals_are_left_alone_in_other_threads_and_where_they_are_ignored():
    handlers = []

    def look():
        with stoppable(signal.SIGINT):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look()
    assert handlers[1] is signal.SIG_IGN


@pytest.mark.parametrize("method", ["greedy", "auto"])
def test_an_interrupted_first_round_still_gives_a_plan_and_a_bound(monkeypatch, method):
    whole = mixing._Mixing._round

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        return whole(self)

    monkeypatch.setattr(mixing._Mixing, "_round", interrupted)
    found = provision.solve("parvagpu-s4", method, 60.0, replay=False)
    assert found.verified and found.bound > 0
    assert found.termination == "stopped" or found.status == "optimal"
