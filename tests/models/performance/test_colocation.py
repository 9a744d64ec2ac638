"""Co-location: scalar path against arrays, what never shortens a batch, the shipped data against measurements."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import provision
from provision.instances.importers.pairs import read_alone, read_beside
from provision.instances.read import read
from provision.models.fitting.colocation import errors, kept_apart
from provision.models.performance.catalogue import load_performance
from provision.models.performance.colocation import Colocation, Terms, solo_terms, together
from provision.models.performance.fitted_networks import relative_errors
from provision.models.performance.operating_points import Member

V100 = load_performance("colocation-v100")
MEASURED = Path(__file__).resolve().parents[4] / "shared/data/igniter"
NEEDS_TABLES = pytest.mark.skipif(
    not (MEASURED / "v100_pairs.csv").exists(), reason="iGniter's measured pairs are not in shared/"
)

UNITS = round(1 / V100.unit_share)
members = st.builds(
    lambda model, batch, units: Member(model, batch, 1, units * V100.unit_share),
    st.sampled_from(sorted(V100.models)),
    st.integers(1, V100.max_batch),
    st.integers(1, UNITS),
)


def times_ms(group):
    """Batch times of members side by side."""
    return np.array([one.latency_ms for one in V100.predict("whole", group)])


def changed(**fields):
    """The shipped content with some fields of AlexNet replaced."""
    content = V100.model_dump()
    content["models"]["alexnet"] |= fields
    return content


@settings(max_examples=80)
@given(st.lists(members, min_size=1, max_size=5), st.integers(0, 2))
def test_scalar_and_arrays_agree(group, absent):
    solo = [solo_terms(V100, one.model, one.batch, one.sm_share) for one in group]
    joined = (np.stack(axis) for axis in zip(*solo, strict=True))
    padded = Terms(*(np.pad(axis, [(0, absent)] + [(0, 0)] * (axis.ndim - 1)) for axis in joined))
    latency_ms, throughput_rps = together(padded, V100.norm_order)
    found = V100.predict("whole", group)
    assert latency_ms[: len(group)] == pytest.approx([one.latency_ms for one in found], rel=1e-12)
    assert throughput_rps[: len(group)] == pytest.approx([one.throughput_rps for one in found], rel=1e-12)
    assert not throughput_rps[len(group) :].any()


@settings(max_examples=60)
@given(st.lists(members, min_size=1, max_size=4), members)
def test_a_further_neighbour_never_shortens_a_batch(group, further):
    assert (times_ms([*group, further])[: len(group)] >= times_ms(group)).all()


@settings(max_examples=60)
@given(st.lists(members, min_size=2, max_size=4), st.integers(0, V100.max_batch), st.integers(0, UNITS))
def test_a_stronger_neighbour_never_shortens_a_batch(group, batches, units):
    last = group[-1]
    stronger = last._replace(
        batch=min(last.batch + batches, V100.max_batch), sm_share=min(last.sm_share + units * V100.unit_share, 1.0)
    )
    assert (times_ms([*group[:-1], stronger])[:-1] >= times_ms(group)[:-1] * (1 - 1e-12)).all()


@settings(max_examples=60)
@given(st.lists(members, min_size=1, max_size=3), st.integers(0, V100.max_batch), st.integers(0, UNITS))
def test_a_larger_batch_or_smaller_share_never_shortens_it(group, batches, units):
    first = group[0]
    harder = first._replace(
        batch=min(first.batch + batches, V100.max_batch),
        sm_share=max(first.sm_share - units * V100.unit_share, V100.unit_share),
    )
    assert times_ms([harder, *group[1:]])[0] >= times_ms(group)[0] * (1 - 1e-12)


def test_sums_of_demands_tell_all_about_neighbours():
    points = solo_terms(V100, "vgg19", np.array([4, 16]), np.array([0.2, 0.3]))
    own = solo_terms(V100, "ssd", np.array(8), np.array(0.5))
    summed = points.demand.sum(axis=0)
    expected = own.solo_ms + (own.slope_ms * summed ** (1 / V100.norm_order)).sum()
    group = [Member("ssd", 8, 1, 0.5), Member("vgg19", 4, 1, 0.2), Member("vgg19", 16, 1, 0.3)]
    assert times_ms(group)[0] == pytest.approx(expected)


def test_operating_points_are_predictions_alone():
    points = V100.operating_points("resnet50", "whole")
    assert len(points.batch) == V100.max_batch * UNITS
    for at in range(0, len(points.batch), 97):
        [alone] = V100.predict("whole", [Member("resnet50", int(points.batch[at]), 1, float(points.sm_share[at]))])
        assert (points.latency_ms[at], points.throughput_rps[at]) == pytest.approx(alone[:2])
    assert not len(V100.operating_points("resnet50", "3g.40gb").batch)


@pytest.mark.parametrize(
    "member",
    [Member("ssd", 33, 1, 0.5), Member("ssd", 8, 2, 0.5), Member("ssd", 8, 1, 0.51), Member("ssd", 8, 1, 0.01)],
)
def test_what_is_not_described_has_no_prediction(member):
    assert V100.predict("whole", [member, Member("ssd", 1, 1, 0.1)]) == [None, None]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"wait_ms": [0.1]}, "models.alexnet.wait_ms: has 1 numbers"),
        ({"overlap_ms": 9.0}, "models.alexnet.overlap_ms: is all the time"),
        ({"stretch": [-0.1, 0.0]}, "greater than or equal to 0"),
        ({"solo": dict.fromkeys(("fixed_ms", "request_ms", "fixed_work_ms", "request_work_ms"), 0.0)}, "no time"),
    ],
)
def test_senseless_coefficients_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        Colocation(**changed(**fields))


def test_igniters_plan_for_the_testbed_is_judged():
    """Under measured interference four of twelve workloads miss half of their SLO, by at most 3 %."""
    testbed = read("igniter-testbed-12")
    plan = provision.solve(testbed, "igniter").plan
    report = provision.verify(testbed.replace(performance="colocation-v100"), plan)
    late = {found.workload: found for found in report.violations if found.kind == "latency"}
    assert sorted(late) == ["alexnet-app1", "resnet50-app2", "vgg19-app2", "vgg19-app3"]
    budgets = {one.name: testbed.budget_ms(one) for one in testbed.workloads}
    over = [one.latency_ms / budgets[one.workload] for one in report.predictions if one.workload in late]
    assert 1 < max(over) < 1.03


@NEEDS_TABLES
def test_shipped_data_predicts_pairs_that_it_was_not_fitted_to():
    pairs = read_beside(str(MEASURED / "v100_pairs.csv"))
    apart = kept_apart(pairs)
    assert (np.isin(pairs.keys, V100.fitted_pairs) == ~apart).all() and apart.sum() > 100
    wrong = errors(V100, pairs.take(apart))
    assert wrong.mean() < 0.02 and np.percentile(wrong, 95) < 0.06


@NEEDS_TABLES
def test_shipped_data_predicts_single_models():
    for name, runs in read_alone(str(MEASURED / "v100_solo.csv")).items():
        found = solo_terms(V100, name, runs.batch, runs.sm_share)
        alone = Terms(*(axis[:, None] for axis in found))
        latency_ms, throughput_rps = (column[:, 0] for column in together(alone, V100.norm_order))
        assert relative_errors(latency_ms, runs.latency_ms).mean() < 0.012
        assert relative_errors(throughput_rps, runs.throughput_rps).mean() < 0.04
