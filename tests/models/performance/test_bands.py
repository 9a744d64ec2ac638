"""Bands of predictions: what distributions of errors say at any spot and confidence, for every kind of data."""

import math

import numpy as np
import pytest
import results
import trust
from hypothesis import given, settings
from hypothesis import strategies as st
from token_instances import performance

import provision
from provision.models.fitting.left_out import LEAST_POINTS, distributions, quantiles
from provision.models.performance.bands import LEVELS, Band, ErrorBands, SeenErrors, Spot
from provision.models.performance.catalogue import band_of, load_performance, overall_bands, shipped_performance
from provision.models.performance.tokens.data import TokenModels

FITTED = [name for name in shipped_performance() if load_performance(name).bands is not None]
logs = st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=60).map(np.array)


def seen(high, **where):
    """A distribution that is symmetric around 1; ``high`` is its 95 % quantile."""
    deviations = (-1.2, -1, -0.4, 0, 0.4, 1, 1.2)
    return SeenErrors(points=30, quantiles=tuple(high**one for one in deviations), **where)


@settings(max_examples=60)
@given(logs, st.floats(0.05, 0.95), st.floats(0.001, 0.049))
def test_more_confidence_is_never_a_narrower_band(found, confidence, more):
    one = SeenErrors(points=len(found), quantiles=quantiles(found))
    narrow, wide = one.band(confidence), one.band(confidence + more)
    assert wide.low <= narrow.low <= one.ratio(0.5) * (1 + 1e-9) and narrow.high <= wide.high
    assert [one.ratio(level) for level in LEVELS] == pytest.approx(one.quantiles)


@settings(max_examples=60)
@given(logs)
def test_levels_that_a_sample_does_not_resolve_lie_outside_of_it(found):
    low, *_, high = quantiles(found)
    if len(found) < 39:
        assert low <= round(math.exp(found.min()), 4) and high >= round(math.exp(found.max()), 4)


def test_few_points_give_wider_bands_than_many_of_the_same_spread():
    draws = np.random.default_rng(3).normal(0, 0.05, 2000)
    few = np.mean([math.log(quantiles(draws[at : at + 5])[5]) for at in range(0, 500, 5)])
    assert few > 1.3 * math.log(quantiles(draws)[5])


def test_ranges_with_enough_points_get_a_distribution_of_their_own():
    batch = np.array([1] * LEAST_POINTS + [16] * (LEAST_POINTS - 1))
    found = distributions(np.linspace(-0.1, 0.1, len(batch)), batch, np.full(len(batch), 0.6), beside=True)
    assert [(one.batches, one.sm_shares) for one in found] == [(None, None), ((1, 1), None), (None, (0.5, 0.75))]
    assert all(one.beside for one in found)


def test_the_most_specific_distributions_count_and_of_these_the_widest():
    bands = ErrorBands(source="made up", command="", models={"a": (
        seen(1.5), seen(1.1, profile="1g.10gb"), seen(1.2, batches=(1, 8)), seen(1.3, beside=True))})
    both = bands.band("a", Spot("1g.10gb", 8), 0.9)
    assert (both.low, both.high) == pytest.approx((1 / 1.2, 1.2))
    assert bands.band("a", Spot("1g.10gb", 9), 0.9).high == pytest.approx(1.1)
    assert bands.band("a", Spot("7g.80gb", 9), 0.9).high == pytest.approx(1.5)
    assert bands.band("b", Spot("7g.80gb", 9), 0.9) is None
    assert [one.ratio(0.95) for one in bands.overall("a")] == pytest.approx([1.5, 1.3])


def test_quantiles_that_do_not_ascend_are_refused():
    with pytest.raises(ValueError, match="must ascend"):
        SeenErrors(points=9, quantiles=(1, 1, 1, 1.1, 1, 1, 1))


@pytest.mark.parametrize("name", FITTED)
def test_shipped_data_has_a_band_at_every_operating_point(name):
    data = load_performance(name)
    assert data.bands.source and data.bands.command.startswith(data.command)
    for model in data.bands.models:
        for profile in getattr(data, "profiles", ("whole",)):
            points = data.operating_points(model, profile)
            share = np.broadcast_to(points.sm_share, points.batch.shape)
            for batch, part in set(zip(points.batch.tolist(), share.tolist(), strict=True)):
                band = band_of(data, model, Spot(profile, batch, part, beside=part < 1)).service
                assert band.low < 1.03 and band.high > 0.97


def test_errors_that_a_fit_states_are_lognormal_and_wider_for_few_points():
    """MLPerf's data were compared with three models on another system."""
    data = load_performance("mlperf-a30")
    model = next(iter(data.models))
    found = band_of(data, model, Spot("whole", 8)).service
    assert data.error.points == 3  # Student's t has 3.182 in place of 1.960
    assert found.high == pytest.approx(math.exp(math.log1p(data.error.p95) * 1.64485 * 3.18245 / 1.95996**2), 1e-4)
    assert found.low == pytest.approx(1 / found.high)


def test_language_models_have_bands_of_first_and_of_further_tokens():
    data = performance("h100-80gb", whole=(400_000, 1.0))
    assert band_of(TokenModels(**data), "llama-8b", Spot("whole", 1024)) is None
    bands = {"ttft": {"low": 0.5, "high": 1.6}, "tpot": {"low": 0.9, "high": 1.2}, "source": "made up"}
    data["models"]["llama-8b"]["slices"]["whole"] |= {"bands": bands}
    found = band_of(TokenModels(**data), "llama-8b", Spot("whole", 1024))
    assert found.first_token.high == pytest.approx(1.6) and found.service.high == pytest.approx(1.2)
    wider = band_of(TokenModels(**data), "llama-8b", Spot("whole", 1024), 0.99)
    assert wider.service.high > 1.2 and wider.service.low < 0.9
    assert overall_bands(TokenModels(**data), "llama-8b")[0].first_token == Band(low=0.5, high=1.6)


def test_the_page_on_trust_has_what_the_files_state():
    shown = results.read(results.FOLDER / "trust-bands.csv").rows
    found = [dict(zip(trust.BANDS, row, strict=True)) for row in trust.bands()]
    assert [(one["data"], one["place"]) for one in shown] == [(one["data"], one["place"]) for one in found]
    for said, one in zip(shown, found, strict=True):
        assert [float(said[name]) for name in trust.BANDS[4:]] == pytest.approx(
            [one[name] for name in trust.BANDS[4:]], 1e-4)


def test_bands_leave_the_digest_alone_but_for_plans_that_hold_within_them():
    """A plan depends on them only if it must hold with some confidence and takes the errors from the data."""
    data = load_performance("igniter-v100")
    bare = data.model_copy(update={"bands": None})
    assert data.digest == bare.digest
    problem = provision.read("igniter-motivation")
    assert problem.digest == problem.replace(performance=(bare,)).digest
    sure = problem.with_policy(confidence=0.9)
    assert sure.digest != sure.replace(performance=(bare,)).digest
