"""An interruption makes a search end with the plan that it is building, not without any."""

import signal
import time

import pytest

import provision
from provision.heuristics.core import mixing
from provision.models.base.clock import Deadline
from provision.models.problem.interrupts import ending_early
from provision.solving.cut_off import cut_off


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell starts processes in the background deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interruption_ends_the_time_and_the_second_the_block():
    until, before = Deadline(1000.0), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ending_early(until) as ended:
        assert not until.over and not ended.asked
        signal.raise_signal(signal.SIGINT)
        assert until.over and ended.asked
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_time_limit_is_noted_however_often_it_rings():
    until = Deadline(1000.0)
    with cut_off(0.01), ending_early(until) as ended:
        while not ended.asked:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGALRM)
    assert until.over


@pytest.mark.parametrize("method", ["greedy", "auto"])
@pytest.mark.parametrize("limited", [False, True])
def test_an_interrupted_first_round_still_gives_a_plan_and_a_bound(monkeypatch, method, limited):
    whole = mixing._Search.round

    def interrupted(self, most):
        if limited:
            time.sleep(2.0)  # beyond the limit and its grace
        elif self.prices is None:  # once: a second Ctrl-C would end it
            signal.raise_signal(signal.SIGINT)
        return whole(self, most)

    monkeypatch.setattr(mixing._Search, "round", interrupted)
    found = provision.solve("parvagpu-s4", method, 0.5 if limited else 60.0, strict=True, replay=False)
    assert found.verified and found.bound > 0
    assert found.termination == ("time_limit" if limited else "stopped") or found.status == "optimal"
