"""The latency models to compare with, pairwise interference, and the choice of points: what must hold of any."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.models.base.errors import InputError
from provision.models.fitting import few_points, latency_models
from provision.models.fitting.colocation import fit_pairwise
from provision.models.fitting.design import LEAST_GAIN, NOISE, d_optimal, farthest_points, log_jacobians
from provision.models.fitting.families import FAMILIES, population
from provision.models.fitting.few_points import propose
from provision.models.fitting.latency_models import IgniterSlices, fit_igniter_slices, fit_lwr, fit_table
from provision.models.fitting.profile import LEAST_POINTS, choose, fit_profile
from provision.models.fitting.profile_points import ProfilePoints, profile_points
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.catalogue import load_performance
from provision.models.performance.gpulets import GpuletInterference

A100 = gpu_type("a100-80gb")
RESNET = load_performance("parvagpu-a100").models["resnet50"].coefficients
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
KEYS = [(profile, batch, count) for profile in PROFILES for batch in (1, 4, 16, 64) for count in (1, 2, 4)]
GRID = profile_points(A100, KEYS, np.ones(len(KEYS)))
NAMES = tuple(GpuletInterference.model_fields)
seeds = st.integers(0, 2**32 - 1)


def points_of(model, grid=GRID):
    return grid._replace(latency_ms=model.latency_ms(*grid.where))


def power_law(grid=GRID):
    """Latencies that are a straight plane in logarithms."""
    batch, processes, compute = grid.where
    return grid._replace(latency_ms=3 * batch**0.9 * processes**0.5 / compute**0.8)


def test_igniters_form_recovers_its_own_coefficients():
    known = IgniterSlices(0.001, 0.2, 1.5, 2.0, 0.3, 0.1, 0.01, 0.05, 0.1)
    points = points_of(known)
    fitted = fit_igniter_slices(points)
    assert fitted.latency_ms(*points.where) == pytest.approx(points.latency_ms, rel=1e-3)
    assert (fitted.k2_ms, fitted.k4_share, fitted.cache_base) == pytest.approx((0.2, 0.05, 0.1), rel=0.05)


def test_igniters_form_is_equation_11_for_a_lone_process():
    known = IgniterSlices(0.01, 0.2, 1.5, 2.0, 9.0, 9.0, 9.0, 0.05, 9.0)
    [found] = known.latency_ms(np.array([8.0]), np.array([1.0]), np.array([7.0]))
    assert found == pytest.approx((0.01 * 64 + 0.2 * 8 + 1.5) / (1 + 0.05) + 2.0)


def test_local_regression_is_exact_where_logarithms_are_linear():
    points = power_law()
    model = fit_lwr(points.take(slice(None, None, 2)))
    assert model.latency_ms(*points.where) == pytest.approx(points.latency_ms, rel=0.01)


def test_local_regression_follows_its_neighbours_not_the_far_ones():
    batch = 2.0 ** np.arange(10)
    ones = np.ones(10)
    bent = ProfilePoints(batch, ones, ones, ones, np.where(batch < 32, 5.0, 5.0 * (batch / 32) ** 2))
    near = latency_models.LocalRegression(latency_models._places(*bent.where), np.log(bent.latency_ms), span=0.5)
    assert near.latency_ms(batch[:1], ones[:1], ones[:1])[0] == pytest.approx(5, rel=0.01)
    flat = near._replace(span=2.0).latency_ms(batch[:1], ones[:1], ones[:1])[0]
    assert abs(flat / 5 - 1) > 0.2


@settings(max_examples=20)
@given(seeds, st.integers(1, len(KEYS)))
def test_a_table_is_exact_at_measured_points(seed, count):
    random = np.random.default_rng(seed)
    points = GRID._replace(latency_ms=random.uniform(1, 100, len(KEYS)))
    some = points.take(random.choice(len(KEYS), count, replace=False))
    assert fit_table(some).latency_ms(*some.where) == pytest.approx(some.latency_ms)


def test_a_table_is_linear_in_logarithms_between_points():
    points = GRID._replace(latency_ms=np.random.default_rng(0).uniform(1, 100, len(KEYS)))
    table, by_key = fit_table(points), dict(zip(KEYS, points.latency_ms, strict=True))
    [between] = table.latency_ms(np.array([2.0]), np.array([2.0]), np.array([2.0]))
    assert between == pytest.approx(np.sqrt(by_key["2g.20gb", 1, 2] * by_key["2g.20gb", 4, 2]))


def test_a_table_with_holes_continues_straight_lines():
    points = power_law()
    holes = np.random.default_rng(1).random(len(KEYS)) < 0.4
    found = fit_table(points.take(~holes)).latency_ms(*points.where)
    assert found == pytest.approx(points.latency_ms, rel=0.05)


@settings(max_examples=30)
@given(seeds, st.tuples(*[st.floats(0, 2)] * 4, st.floats(0.5, 1.5)))
def test_pairwise_recovers_known_coefficients(seed, coefficients):
    known, random = GpuletInterference(**dict(zip(NAMES, coefficients, strict=True))), np.random.default_rng(seed)
    utilisation = random.uniform(0, 1, (4, 60))
    fitted = fit_pairwise(*utilisation, known.slowdown(*utilisation))
    assert vars(fitted) == pytest.approx(vars(known), abs=2e-3)


def test_pairwise_shrugs_off_outliers_and_stays_above_zero():
    known = GpuletInterference(l2_own=0.11, l2_other=0.72, dram_own=0.35, dram_other=0.0, constant=0.9)
    random = np.random.default_rng(3)
    utilisation = random.uniform(0, 1, (4, 200))
    slowdown = known.slowdown(*utilisation) + random.normal(0, 0.02, 200)
    slowdown[::20] += 3
    fitted = fit_pairwise(*utilisation, slowdown)
    assert vars(fitted) == pytest.approx(vars(known), abs=0.06)
    assert min(vars(fitted)[name] for name in NAMES[:4]) >= 0


def test_pairs_that_tell_nothing_apart_are_refused():
    with pytest.raises(InputError, match="4 pairs do not tell five"):
        fit_pairwise(*np.random.default_rng(0).uniform(0, 1, (4, 4)), np.ones(4))


def information(jacobians, chosen):
    """The criterion, written out: mean log determinant with the prior."""
    rows = jacobians[:, list(chosen)] / NOISE
    return np.mean([np.linalg.slogdet(np.eye(rows.shape[-1]) + one.T @ one)[1] for one in rows])


@settings(max_examples=25)
@given(seeds, st.integers(1, 4))
def test_no_exchange_of_one_point_improves_a_design(seed, count):
    jacobians = np.random.default_rng(seed).normal(0, 0.1, (2, 9, 3))
    chosen = d_optimal(jacobians, count)
    assert len(set(chosen)) == count
    for place in range(count):
        for other in set(range(9)) - set(chosen):
            exchanged = [*chosen[:place], other, *chosen[place + 1 :]]
            assert information(jacobians, exchanged) <= information(jacobians, chosen) + 2 * LEAST_GAIN


def test_designs_come_near_the_best_of_all():
    jacobians = np.random.default_rng(5).normal(0, 0.1, (3, 10, 3))
    best = max(information(jacobians, subset) for subset in combinations(range(10), 4))
    assert information(jacobians, d_optimal(jacobians, 4)) >= best - 0.2


def test_log_jacobians_are_derivatives():
    grid = np.array([1.0, 2.0, 4.0])
    found = log_jacobians(lambda c: c[0] * grid ** c[1], np.array([[2.0, 0.5]]), np.array([0.1, 3.0]))
    expected = np.column_stack([np.full(3, 0.1 / 2), 3 * np.log(grid)])
    assert found[0] == pytest.approx(expected, abs=1e-6)


def test_farthest_points_take_the_corners_first():
    square = np.array([(x, y) for x in range(5) for y in range(5)], float)
    assert {tuple(square[at]) for at in farthest_points(square, 4)} == {(0, 0), (0, 4), (4, 0), (4, 4)}


@pytest.mark.parametrize("family", FAMILIES)
def test_points_are_chosen_once_and_again_the_same(family):
    points = points_of(RESNET)
    chosen = choose("resnet50", points, family, 12)
    assert len(set(chosen)) == 12 and list(chosen) == list(choose("resnet50", points, family, 12))
    fit = fit_profile("resnet50", points, family, chosen)
    assert not set(fit.fitted) & set(fit.judged) and len(fit.fitted) + len(fit.judged) == len(KEYS)


def test_the_choice_does_not_look_at_latencies():
    points = points_of(RESNET)
    shuffled = points._replace(latency_ms=np.random.default_rng(2).permutation(points.latency_ms))
    for family in FAMILIES:
        assert list(choose("x", points, family, 12)) == list(choose("x", shuffled, family, 12))


def test_a_dnn_tells_nothing_about_itself():
    assert RESNET in population("vgg16") and RESNET not in population("resnet50")
    assert len(population("unheard of")) == len(population("resnet50")) + 1


def test_few_points_of_a_closed_network_predict_the_others():
    points = points_of(RESNET)
    fit = fit_profile("resnet50", points, "closed-network", choose("resnet50", points, "closed-network", 12))
    assert fit.errors.mean() < 0.02


@pytest.mark.parametrize("count", [LEAST_POINTS - 1, len(KEYS)])
def test_too_few_and_too_many_points_are_refused(count):
    with pytest.raises(InputError, match=f"x: {count} points"):
        choose("x", points_of(RESNET), "closed-network", count)


@pytest.mark.parametrize("family", FAMILIES)
def test_proposals_are_distinct_points_of_the_gpu(family):
    keys = propose(A100, family, 9)
    assert len(set(keys)) == 9 and {profile for profile, _, _ in keys} <= set(A100.profiles)
    assert keys == propose(A100, family, 9)


def test_the_next_point_leaves_the_least_squared_deviations():
    """By brute force: with every point added in turn, at the same coefficients."""
    points = points_of(RESNET)
    fitted = few_points.fit_few(points, np.arange(6))
    left = np.array([(few_points.spread_around(fitted.network, points, np.append(np.arange(6), at)).deviations(points)
                      ** 2).sum() for at in range(len(KEYS))])
    best, second = fitted.telling(points, 2)
    assert left[best] == pytest.approx(left.min(), rel=1e-3) and second != best


def test_proposals_have_a_least_and_a_most():
    for count in (few_points.LEAST_POINTS - 1, 1000):
        with pytest.raises(InputError, match=f"--propose {count}"):
            propose(A100, "closed-network", count)
