"""Stations replayed and P99 predicted by calibrated constants."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fit_tails import fit_tail
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_tails import Station, queue_p99_ms, shipped_tails
from stations import answers

ROOT = Path(__file__).parents[2]
SERVER = ROOT.parent / "shared" / "data" / "mlperf" / "server.csv"


def test_batches_share_a_device_equally():
    """Two batches of one request at a time: the first runs alone for 1, then both at half speed."""
    done = answers(np.array([0.0, 1.0, 9.0]), 1, 2, 1, 0.0, 2.0, 0.0)
    assert done == pytest.approx([3.0, 4.0, 11.0])


def test_batches_go_to_the_device_with_the_fewest():
    """With two devices the second batch has one to itself; the third waits for the first process that is idle."""
    done = answers(np.array([0.0, 1.0, 1.5]), 2, 1, 1, 0.0, 2.0, 0.0)
    assert done == pytest.approx([2.0, 3.0, 4.0])


def test_batches_start_full_or_after_the_delay():
    """The third request fills the batch; the fourth waits for the delay, alone; sizes set the times."""
    done = answers(np.array([0.0, 0.5, 1.0, 6.0]), 1, 1, 3, 2.0, 1.0, 1.0)
    assert done == pytest.approx([5.0, 5.0, 5.0, 10.0])


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 8), st.floats(0, 2), st.floats(0.1, 0.9))
def test_all_are_answered_after_their_own_time_and_work_is_kept(devices, processes, batch, delay, load):
    """Nobody is answered before a lone batch of one could be; nothing is left out."""
    arrivals = np.random.default_rng(0).exponential(1 / load, 400).cumsum()
    done = answers(arrivals, devices, processes, batch, delay, 0.5, 0.5)
    assert (done - arrivals >= 1 - 1e-9).all()
    assert done.max() <= arrivals.max() + delay + 1.0 * len(arrivals) + 1e-6


def test_one_process_without_batching_is_m_d_1():
    """At half load one request in a hundred waits for longer than the replayed P99 says (Erlang's formula)."""
    station = Station(devices=1, processes=1, batch=1, delay_ms=0.0, rate_rps=50.0, full_rps=100.0)
    wait = queue_p99_ms(station, 0.0) / 10 - 1
    terms = ((0.5 * (k - wait)) ** k / math.factorial(k) * math.exp(0.5 * (wait - k)) for k in range(int(wait) + 1))
    assert 0.5 * sum(terms) == pytest.approx(0.99, abs=0.0015)


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=12))
def test_a_fitted_tail_covers_what_it_was_fitted_to(pairs):
    """No measurement is above the line, and one touches it unless the overhead is 0."""
    queue_ms, measured_ms = np.array(pairs).T
    tail = fit_tail(0.0, queue_ms, measured_ms)
    above_ms = tail.stretch * queue_ms + tail.overhead_ms - measured_ms
    assert above_ms.min() >= -1e-9
    assert tail.overhead_ms == 0 or above_ms.min() == pytest.approx(0, abs=1e-9)


def test_unknown_models_and_systems_are_predicted():
    """Accuracies do not matter, unknown systems take the constants from all, unknown models the fallback."""
    tails, station = shipped_tails(), Station(2, 2, 8, 1.0, 700.0, 1000.0)
    assert tails.tail("resnet50", "new") == tails.tail("resnet50")
    assert tails.tail("bert-99.9") == tails.tail("bert-99") != tails.unknown
    assert tails.tail("new") == tails.unknown
    assert tails.p99_ms(station, "new") > queue_p99_ms(station, 1.0)


@pytest.mark.skipif(not SERVER.exists(), reason="the measurements are not beside this checkout")
def test_few_measured_rows_lie_above_their_prediction():
    """The target on the benchmark's last line: at most 5 % of the rows below, a median ratio of 1.5 at most."""
    ran = subprocess.run(
        [sys.executable, "benchmarks/traffic/mlperf.py", SERVER], cwd=ROOT, capture_output=True, text=True, check=True
    )
    _, rows, _, below, _, median = ran.stdout.splitlines()[-1].split()
    assert int(below) <= 0.05 * int(rows)
    assert float(median) <= 1.5


@pytest.mark.parametrize(("cells", "expected"), [
    ("a,m,1,0,5,100,4", "server_qps should be above 0 (got 0)"),
    ("a,m,1,x,5,100,4", "server_qps 'x' is not a number"),
])
def test_bad_rows_are_named_in_one_line(tmp_path, cells, expected):
    """Exit code 2 and the line, the field and the value."""
    file = tmp_path / "rows.csv"
    file.write_text(f"system,model,devices,server_qps,server_p99_ms,offline_sps,batch\n{cells}\n")
    ran = subprocess.run(
        [sys.executable, "benchmarks/traffic/mlperf.py", file], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert f"{file}:2: {expected}" in ran.stderr
    assert ran.stderr.count("\n") == 1
