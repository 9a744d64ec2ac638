"""Replicas that take turns, replayed: the round by hand and against a slow oracle, and what plans of them meet."""

import itertools
import math

import numpy as np
import pytest
from gpulets_scenarios import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from played_lines import MS, one_row, played, sojourns_ms
from replayed_plans import piece_of, plan_of

import provision
from provision.models.performance.catalogue import load_performance
from provision.models.performance.operating_points import Member
from provision.simulation import latencies
from provision.simulation.latencies import batch_times
from provision.simulation.replay import arrivals_ns, process_of

DATA = load_performance("gpulets-2080ti")
INSTANCE = requests("made", [100.0] * 5)


def parts(*replicas):
    """A slice; replicas are (workload, batch, share, turn)."""
    fields = ("workload", "batch", "sm_share", "turn")
    made = [provision.Replica(rate_rps=50.0, **dict(zip(fields, one, strict=True))) for one in replicas]
    return provision.Slice(profile="whole", replicas=tuple(made))


def test_one_batch_at_a_time_in_order():
    """Three with two requests each, all at once: first each one batch, in their order, then each the other."""
    line = played(one_row([[0, 2.0], [0, 3.0], [0, 5.0]]), [(1, 1, 7)] * 3, [[0, 0]] * 3)
    assert [sojourns_ms(line, at).tolist() for at in range(3)] == [[2, 12], [5, 15], [10, 20]]


def test_who_has_nothing_due_is_passed_over():
    """A batch starts when full or old enough; a turn that comes round before that goes to the next."""
    times = one_row([[0, 4.0, 4.0], [0, 3.0, 3.0], [0, 2.0, 2.0]])
    line = played(times, [(2, 1, 0)] * 3, [[0, 0, 5], [1], [1, 2]], delays_ms=[10.0, 8.0, 10.0])
    # The first has the turn until 4; the second is due at 9 only, so the third follows, until 6.
    assert sojourns_ms(line, 0) == pytest.approx([4, 4, 14], abs=1e-5)
    assert sojourns_ms(line, 2) == pytest.approx([5, 4], abs=1e-5)
    assert sojourns_ms(line, 1) == pytest.approx([11], abs=1e-5)


def test_two_rings_and_a_neighbour_do_not_wait_for_each_other():
    line = played(one_row([[0, 4.0]] * 5), [(1, 1, 0), (1, 1, 1), (1, 1, 0), (1, 1, 1), (1, 1)], [[0]] * 5)
    assert [sojourns_ms(line, at)[0] for at in range(5)] == [4, 4, 8, 8, 4]


@pytest.mark.parametrize("load", [0.4, 0.8])
def test_conservation_law(load):
    """Batches of one that never wait while nobody is served: Kleinrock's law for the waits of M/G/1 queues."""
    hold_ms, parts_of_load = np.array([1.0, 2.0, 5.0]), load * np.array([0.5, 0.3, 0.2])
    rates = parts_of_load / hold_ms
    expected = load / (1 - load) * (rates @ hold_ms**2) / 2
    found = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        arrivals = [arrivals_ns(process_of(1.0), 1000 * rate, 60.0, random) / MS for rate in rates]
        line = played(one_row([[0, hold] for hold in hold_ms]), [(1, 1, 0)] * 3, arrivals)
        waits = [sojourns_ms(line, at).mean() - hold for at, hold in enumerate(hold_ms)]
        found.append(parts_of_load @ waits)
    half = 4 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(np.mean(found) - expected) < half < 0.1 * expected


MEMBER = st.fixed_dictionaries({
    "arrivals": st.lists(st.integers(0, 60), max_size=20).map(sorted),
    "batch": st.integers(1, 4),
    "delay": st.integers(0, 8),
})


@settings(max_examples=150)
@given(st.lists(MEMBER, min_size=1, max_size=4))
def test_agrees_with_oracle(members):
    """Any ring: the same answers."""
    members = [one | {"arrivals": [1.0137 * ms + 0.01 * k + at * 0.0031 for k, ms in enumerate(one["arrivals"])],
                      "hold": [3.03 + at + 1.37 * size for size in range(one["batch"] + 1)]}
               for at, one in enumerate(members)]
    hold_ms = [one["hold"] + [0] * (4 - one["batch"]) for one in members]
    turns = [(one["batch"], 1, 0) for one in members]
    line = played(one_row(hold_ms), turns, [one["arrivals"] for one in members],
                  delays_ms=[one["delay"] for one in members])
    for at, expected in enumerate(_rounds(members)):
        assert sojourns_ms(line, at) == pytest.approx(expected, abs=1e-4)


def _rounds(members):
    """Sojourn times of all requests when one member of a ring at a time runs a batch, by the rule in words."""
    free, last, found = 0.0, -1, [[] for _ in members]
    while waiting := [at for at, one in enumerate(members) if len(found[at]) < len(one["arrivals"])]:
        due = {at: _due(members[at], members[at]["arrivals"][len(found[at]):]) for at in waiting}
        start = max(free, min(due.values()))
        order = (at % len(members) for at in itertools.count(last + 1))
        last = next(at for at in order if due.get(at, np.inf) <= start)
        one, served = members[last], len(found[last])
        taken = [ms for ms in one["arrivals"][served : served + one["batch"]] if ms <= start]
        free = start + one["hold"][len(taken)]
        found[last] += [free - ms for ms in taken]
    return found


def _due(one, left):
    """When a batch of the requests left is full, or its oldest has waited long enough."""
    full = left[one["batch"] - 1] if len(left) >= one["batch"] else np.inf
    return min(full, left[0] + one["delay"])


def test_a_batch_takes_what_the_model_says_beside_whoever_is_busy():
    """Two in turns beside one: a row for each that may be busy; executions without the round, pairwise interference."""
    names = ("googlenet", "resnet50", "vgg16")
    piece = parts(("googlenet", 8, 0.4, 3), ("resnet50", 8, 0.4, 3), ("vgg16", 8, 0.6, None))
    times = batch_times(INSTANCE, "rtx2080ti", piece)
    assert times.hold_ms.shape[:2] == (6, 3)

    def execution_ms(name, *others):
        share = {"vgg16": 0.6}
        members = [Member(one, 8, 1, share.get(one, 0.4)) for one in (name, *others)]
        return DATA.predict("whole", members)[0].latency_ms

    for at, name in enumerate(names[:2]):
        alone, together = times.step[at], times.step[at] + times.step[2]
        assert times.hold_ms[alone, at, 8] == pytest.approx(execution_ms(name))
        assert times.hold_ms[together, at, 8] == pytest.approx(execution_ms(name, "vgg16"))
        assert times.hold_ms[together, 2, 8] == pytest.approx(execution_ms("vgg16", name))
        assert times.latency_ms[together, at, 8] == pytest.approx(times.hold_ms[together, at, 8])


def test_too_many_combinations_leave_out_only_the_own_turn(monkeypatch):
    """Neighbours then count as always busy, the worst of those that take turns; nobody is slowed by its own round."""
    piece = parts(("googlenet", 8, 0.4, 3), ("resnet50", 8, 0.4, 3), ("vgg16", 8, 0.6, None))
    every = batch_times(INSTANCE, "rtx2080ti", piece)
    monkeypatch.setattr(latencies, "MOST_PREDICTIONS", 10)
    worst = batch_times(INSTANCE, "rtx2080ti", piece)
    assert worst.always_busy and not every.always_busy
    assert worst.hold_ms[0, :, 8] == pytest.approx(every.hold_ms[:, :, 8].max(axis=0))


@pytest.mark.parametrize("name", ["game", "traffic", "equal"])
def test_plans_meet_under_constant_arrivals_what_the_duty_cycle_promises(name):
    """A request waits a round at most, then for its batch; the same seed gives the same, and no request is lost."""
    instance = provision.read(f"gpulets-{name}")
    for method in ("nexus", "gpulets"):
        plan = provision.solve(instance, method).plan
        assert any(replica.turn is not None for *_, replica in plan.replicas()) or method == "nexus"
        report = provision.simulate(instance, plan, 5, arrival_cv=0.0)
        assert report.ok and report == provision.simulate(instance, plan, 5, arrival_cv=0.0)
        assert all(one.arrived == one.served + one.in_flight for one in report.workloads)


def test_turns_cost_what_they_take():
    """Two that would each keep a part busy alone: in turns they get half, and their queues grow."""
    instance = requests("made", [0.0, 0.0, 300.0, 0.0, 200.0])
    shared = parts(("resnet50", 32, 1.0, 0), ("vgg16", 32, 1.0, 0))
    plan = plan_of(instance, shared, gpu="rtx2080ti", mig=False)
    apart = plan_of(instance, *(piece_of("whole", (one.workload, 32, 1, 50.0)) for one in shared.replicas),
                    gpu="rtx2080ti", mig=False)
    report = provision.simulate(instance, plan, 10)
    assert provision.simulate(instance, apart, 10).ok and not provision.verify(instance, plan).ok
    assert sum(one.utilisation for one in report.workloads) == pytest.approx(1.0, abs=0.02)
