"""Traces replayed, and what else of a replay's input decides what is measured."""

import numpy as np
import pytest
from replayed_plans import piece_of, plan_of, table

import provision
from provision.models.plans.simulation_report import SimulationSettings
from provision.simulation.replay import Tally
from provision.simulation.simulate import summarise


def test_trace(tmp_path):
    """A trace is replayed as it stands; what comes after the end is left out."""
    (tmp_path / "trace.csv").write_text("time_s,workload\n0.1,w\n0.1,w\n0.15,w\n3,w\n")
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    one = provision.simulate(
        instance, plan, 2.0, trace=str(tmp_path / "trace.csv"), max_delay_ms=0.0, warmup_s=0.0
    ).workloads[0]
    assert one.violation_rate == 0
    # Two start at 100 ms as one batch of up to 4 and end at 120; the third takes 10 from 150 on.
    assert (one.arrived, one.p50.mean_ms, one.p99.mean_ms, one.tail_ms[0]) == (3, 20, 20, 10)


def test_what_is_not_measured_is_told(tmp_path):
    """Requests after the end are counted in a note; so is a workload whose SLO nothing was measured of."""
    (tmp_path / "trace.csv").write_text("time_s,workload\n0.1,w\n2,w\n3,w\n")
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    report = provision.simulate(instance, plan, 2.0, trace=str(tmp_path / "trace.csv"))
    assert [note.split(",")[0] for note in report.notes] == [
        "2 requests of the trace come after 2 seconds and are left out", "w has no request after the warm-up",
    ]
    assert not provision.simulate(table(rate_rps=0.0), plan, 2.0).notes


def test_lines_of_a_trace_are_those_of_the_file(tmp_path):
    """Byte order mark, CRLF and blank lines change neither the requests nor the line that is complained about."""
    text = "\ufefftime_s,workload\r\n0.5,w\r\n\r\n{},w\r\n"
    for last in (1.25, 0.25):
        (tmp_path / f"{last}.csv").write_bytes(text.format(last).encode())
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    assert provision.simulate(instance, plan, 2.0, trace=str(tmp_path / "1.25.csv")).workloads[0].arrived == 2
    with pytest.raises(provision.InputError, match=r"0\.25\.csv:4: time_s 0\.25 comes after 0\.5"):
        provision.simulate(instance, plan, 2.0, trace=str(tmp_path / "0.25.csv"))


def test_replications_without_requests_say_nothing():
    """A workload that is asked in some replications only has the quantiles of these; dropped requests do count."""
    none, some = Tally(np.zeros(0), *[0] * 8), Tally(np.array([40.0]), 0, 1, 0, 1, 1, 1, 0, 0)
    lost = none._replace(measured_drops=1, arrived=1, dropped=1)
    cases = ([none, some, none], 40, True), ([none, none], None, True), ([some, lost], None, False)
    for tallies, p99_ms, ok in cases:
        one = summarise(table().workloads[0], 1, SimulationSettings(replications=len(tallies)), tallies)
        assert (one.p99.mean_ms, one.tail_ms[-1], one.ok) == (p99_ms, p99_ms, ok)


def test_gaps_that_hardly_vary_are_even():
    """A variation too small to draw from is none; Gamma's shape would overflow."""
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    even, hardly = (provision.simulate(instance, plan, 2.0, arrival_cv=cv).workloads for cv in (0.0, 1e-200))
    assert even == hardly


@pytest.mark.parametrize(("latency_ms", "throughput_rps"), [(1e15, 100.0), (1e300, 100.0), (10.0, 1e-300)])
def test_times_beyond_the_clock_are_refused(latency_ms, throughput_rps):
    """Answers or batches that end later than whole nanoseconds can count are one line, not wrong numbers."""
    data = {"version": 1, "name": "t", "gpu": "t4", "kind": "measured-segments",
            "models": {"m": {"points": [["whole", 4, 1, throughput_rps, latency_ms]]}}}
    instance = provision.Instance.model_validate(table().model_dump() | {"performance": [data]}, strict=False)
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    with pytest.raises(provision.InputError, match="would take a century"):
        provision.simulate(instance, plan, 2.0)


@pytest.mark.parametrize(("text", "complaint"), [
    ("time,workload\n1,w\n", "'time_s' is missing"),
    ("time_s,workload\n", "no rows"),
    ("time_s,workload\nsoon,w\n", ":2: time_s 'soon'"),
    ("time_s,workload\nnan,w\n", ":2: time_s 'nan'"),
    ("time_s,workload\n-1,w\n", ":2: time_s '-1'"),
    ("time_s,workload\n2,w\n1,w\n", ":3: time_s 1 comes after 2"),
    ("time_s,workload\n1,w\n2,x\n", ":3: workload 'x'"),
    ("time_s,workload\n1\n", ":2: workload is empty"),
])
def test_bad_traces(tmp_path, text, complaint):
    """Whatever is wrong with a trace is named with its line."""
    (tmp_path / "trace.csv").write_text(text)
    instance = table()
    plan = plan_of(instance, piece_of("whole", ("w", 4, 1, 50.0)), gpu="t4", mig=False)
    with pytest.raises(provision.InputError, match=r"trace\.csv") as error:
        provision.simulate(instance, plan, trace=str(tmp_path / "trace.csv"))
    assert complaint in str(error.value)
