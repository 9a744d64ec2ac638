"""Arrival processes: what their samples are like, what is refused, and what routing makes of them."""

from importlib import resources

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import provision
from provision.models.base.errors import InputError
from provision.models.traffic.arrivals import Arrivals, Mmpp, Poisson, Renewal, Trace, arrival_times_s, by_lot, in_turns

PROCESSES = [
    Poisson(), Renewal(cv=0.0), Renewal(cv=0.4), Renewal(cv=3.0),
    Mmpp(high_over_mean=3, high_share=0.2, mean_high_s=0.5), Mmpp(high_over_mean=4, high_share=0.25, mean_high_s=0.5),
]


@pytest.mark.parametrize("arrivals", PROCESSES, ids=str)
def test_samples_are_in_order_and_have_the_rate(arrivals):
    """Sorted, inside the time, and about as many as the rate says; the same seed draws the same."""
    times_s = arrival_times_s(arrivals, 200.0, 500.0, np.random.default_rng(0))
    assert (np.diff(times_s) >= 0).all()
    assert times_s[0] >= 0
    assert times_s[-1] < 500
    assert len(times_s) == pytest.approx(100_000, rel=0.06)
    assert np.array_equal(times_s, arrival_times_s(arrivals, 200.0, 500.0, np.random.default_rng(0)))
    assert len(arrival_times_s(arrivals, 0.0, 500.0, np.random.default_rng(0))) == 0


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gaps_of_renewals_vary_as_stated(cv):
    """Their coefficient of variation, within what 200,000 gaps may stray."""
    gaps_s = np.diff(arrival_times_s(Renewal(cv=cv), 1000.0, 200.0, np.random.default_rng(1)))
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.03)


def test_an_mmpp_has_two_rates():
    """Counts in short windows vary by the variance of the rate beside Poisson's: (3^2 0.2 + 0.5^2 0.8 - 1) mean^2."""
    arrivals = Mmpp(high_over_mean=3, high_share=0.2, mean_high_s=50.0)
    assert arrivals.low_over_mean == pytest.approx(0.5)
    times_s = arrival_times_s(arrivals, 100.0, 100_000.0, np.random.default_rng(2))
    counts = np.histogram(times_s, np.arange(0, 100_001))[0]
    assert counts.var() == pytest.approx(counts.mean() + counts.mean() ** 2, rel=0.1)


@pytest.mark.parametrize(("record", "expected"), [
    ({"process": "renewal", "cv": -1}, "cv"),
    ({"process": "renewal"}, "cv"),
    ({"process": "poisson", "cv": 1}, "cv"),
    ({"process": "mmpp", "high_over_mean": 3, "high_share": 0.5, "mean_high_s": 1}, "lower one of them"),
    ({"process": "mmpp", "high_over_mean": 1, "high_share": 0.5, "mean_high_s": 1}, "high_over_mean"),
    ({"process": "fractal"}, "process"),
])
def test_records_out_of_range_are_refused(record, expected):
    """Each complaint names the field."""
    with pytest.raises(ValidationError, match=expected):
        TypeAdapter(Arrivals).validate_python(record)


@pytest.mark.parametrize(("text", "expected"), [
    ("1.0\n3.0\n2.0\n", "time 2 comes after 3; sort"),
    ("1.0\nx\n", "no list of arrival times"),
    ("", "fewer than two"),
    ("1\n1\n", "fewer than two"),
    ("1\nnan\n", "not finite"),
])
def test_traces_that_cannot_be_used_are_named(tmp_path, text, expected):
    """One line with the file and the remedy."""
    file = tmp_path / "trace.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=expected):
        arrival_times_s(Trace(path=str(file)), 1.0, 1.0, np.random.default_rng(0))
    with pytest.raises(InputError, match="no list of arrival times"):
        arrival_times_s(Trace(path=str(tmp_path / "absent")), 1.0, 1.0, np.random.default_rng(0))


def test_traces_stand_beside_the_instance_that_names_them(tmp_path):
    """Paths of the policy and of workloads are relative to the file; absolute ones stay."""
    content = yaml.safe_load((resources.files("provision.instances") / "data" / "parvagpu-s1.yaml").read_text())
    content["policy"]["arrivals"] = {"process": "trace", "path": "all.txt"}
    content["workloads"][0]["arrivals"] = {"process": "trace", "path": "/one.txt"}
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(content))
    found = provision.read(tmp_path / "shop.yaml")
    assert found.policy.arrivals.path == str(tmp_path / "all.txt")
    assert found.workloads[0].arrivals.path == "/one.txt"


def test_traces_are_stretched_to_the_rate(tmp_path):
    """Five arrivals with a mean gap of 1 s, replayed at 2 requests/s."""
    file = tmp_path / "trace.txt"
    file.write_text("10\n11\n11.5\n12\n14\n")
    times_s = arrival_times_s(Trace(path=str(file)), 2.0, 9.0, np.random.default_rng(0))
    assert times_s == pytest.approx([0, 0.5, 0.75, 1, 2])


@pytest.mark.parametrize(("cv", "routing", "expected"), [
    (1.0, "random", 1.0), (1.0, "round_robin", 0.5), (3.0, "random", 3**0.5), (3.0, "round_robin", 1.5),
    (1.0, "least_loaded", 1.0),
])
def test_a_replica_sees_what_routing_leaves(cv, routing, expected):
    """At one of four replicas: a lot moves the squared variation of gaps to 1 by three quarters, turns halve theirs."""
    random = np.random.default_rng(3)
    times_s = arrival_times_s(Renewal(cv=cv), 1000.0, 400.0, random)
    owner = in_turns(len(times_s), [0.25] * 4) if routing == "round_robin" else by_lot(len(times_s), [0.25] * 4, random)
    gaps_s = np.diff(times_s[owner == 1])
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(expected, rel=0.03)


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=6), st.integers(0, 300))
def test_turns_follow_the_parts_at_any_time(weights, count):
    """After any number of requests each replica has its part to within about one."""
    parts = np.array(weights) / sum(weights)
    owner = in_turns(count, parts.tolist())
    dealt = np.cumsum(owner[:, None] == np.arange(len(parts)), axis=0)
    assert (np.abs(dealt - parts * np.arange(1, count + 1)[:, None]) < 2).all()
