"""Errors of fits on points left out: bands of badly placed points are wide, and what ships is what the data say."""

import math
from pathlib import Path

import numpy as np
import pytest

from provision.instances.importers.parvagpu_profiles import read_profiles
from provision.models.fitting.files import performance_data
from provision.models.fitting.left_out import network_errors
from provision.models.fitting.profile import fit_profile
from provision.models.fitting.profile_points import profile_points
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.bands import Spot
from provision.models.performance.catalogue import band_of, load_performance

SHARED = Path(__file__).resolve().parents[4] / "shared/data"
A100, SHIPPED = gpu_type("a100-80gb"), load_performance("parvagpu-a100")
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
KEYS = [(name, batch, count) for name in PROFILES for batch in (1, 2, 4, 8, 16, 32, 64) for count in (1, 2, 3, 4)]


def measured(name, seed):
    """Measurements of a shipped network, with errors of 1 % that depend on the batch size and the slice."""
    network, random = SHIPPED.models[name].coefficients, np.random.default_rng(seed)
    points = profile_points(A100, KEYS, np.ones(len(KEYS)))
    cells = {(name, batch): random.normal(0, 0.01) for name, batch, _ in KEYS}
    return points._replace(latency_ms=network.latency_ms(*points.where) * np.exp([cells[key[:2]] for key in KEYS]))


def judged(points, chosen):
    """For a table of the chosen points alone: (points, 3), the ratio and the ends of its band at every other operating
    point that the fit offers; and the band of batches of 4 on the largest slice.
    """
    rows = [KEYS[at] for at in chosen]
    fit = fit_profile("x", points.take(chosen), "closed-network")
    data = performance_data("closed-network", {"x": (rows, points.take(chosen))}, {"x": fit}, name="x", gpu=A100.name,
                            source="")
    left = [at for at, (profile, batch, _) in enumerate(KEYS)
            if at not in chosen and profile in data.profiles and batch <= data.batches[-1]]
    ratios = points.latency_ms[left] / fit.model.latency_ms(*points.take(left).where)
    bands = [band_of(data, "x", Spot(*KEYS[at][:2])).service for at in left]
    rows = np.array([(ratio, band.low, band.high) for ratio, band in zip(ratios, bands, strict=True)])
    return rows, band_of(data, "x", Spot("7g.80gb", 4)).service


@pytest.mark.parametrize("name", ["resnet50", "vgg16"])
def test_sixteen_points_in_one_corner_have_wide_bands_that_hold(name):
    """Many points on the smallest slice and one on the largest say little of what lies between; spread points say more,
    and their bands are narrower.
    """
    points, random = measured(name, 1), np.random.default_rng(2)
    corner = [at for at, (profile, batch, _) in enumerate(KEYS) if profile == "1g.10gb" and batch <= 8][:15]
    placed, bad = judged(points, np.sort(random.choice(len(KEYS), 16, replace=False))), judged(
        points, [*corner, KEYS.index(("7g.80gb", 64, 1))])
    for rows, _ in (placed, bad):
        ratio, low, high = rows.T
        assert np.mean((low <= ratio) & (ratio <= high)) >= 0.85
    narrow, wide = (math.log(band.high / band.low) for _, band in (placed, bad))
    assert wide > 1.2 * narrow


def test_points_that_were_not_fitted_judge_where_there_are_any():
    points = measured("resnet50", 4)
    fit = fit_profile("x", points, "closed-network", range(0, len(KEYS), 4))
    [overall, *_] = network_errors(A100, [key[0] for key in KEYS], points, fit, SHIPPED.batches)
    assert overall.points == len(KEYS) * 3 // 4
    assert 0.85 < overall.quantiles[1] < 1 < overall.quantiles[5] < 1.15


@pytest.mark.skipif(not (SHARED / "parvagpu").is_dir(), reason="ParvaGPU's tables are not in shared/")
def test_shipped_bands_of_networks_are_those_of_the_profile():
    profile = read_profiles(SHARED / "parvagpu")["vgg16"]
    fit = fit_profile("vgg16", profile.points, "closed-network")
    found = network_errors(A100, [key[0] for key in profile.keys], profile.points, fit, SHIPPED.batches)
    for one, shipped in zip(found, SHIPPED.bands.models["vgg16"], strict=True):
        assert one.model_dump(exclude={"quantiles"}) == shipped.model_dump(exclude={"quantiles"})
        assert one.quantiles == pytest.approx(shipped.quantiles, abs=2e-3)


def test_the_shipped_v100_was_judged_by_what_it_was_not_fitted_to():
    """iGniter's profile has nine times per model; its bands come from hundreds of others, alone and beside."""
    for seen in load_performance("igniter-v100").bands.models.values():
        overall = [one for one in seen if one.conditions == 0]
        assert [one.beside for one in overall] == [False, True] and all(one.points > 150 for one in overall)
    assert load_performance("igniter-t4-derived").bands is None
    assert all(math.isfinite(one.quantiles[-1]) for seen in load_performance("gpulets-2080ti").bands.models.values()
               for one in seen)
