"""The closed network: its shape, its two implementations, its fit, and what ships."""

import csv
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from provision.models.fitting.closed_network import fit
from provision.models.fitting.profile_points import ProfilePoints
from provision.models.performance.closed_network import ClosedNetwork, batch_latency_ms_array
from provision.models.performance.fitted_networks import fitted_error, relative_errors

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "models/performance/data/parvagpu-a100.yaml"
PROFILE = ROOT.parent / "shared/data/parvagpu/prof_data"
MEMORY_GIB = {1: 9.5, 2: 19.5, 3: 39.25, 4: 39.25, 7: 79.0}
GPCS = tuple(MEMORY_GIB)
KNOWN = ClosedNetwork(
    launch_ms=6.0,
    launch_contention=0.02,
    host_per_item_ms=0.07,
    gpu_fixed_ms=2.0,
    gpu_per_item_ms=2.5,
    batch_exponent=0.96,
    unbatched_ratio=0.9,
    bandwidth_share=0.45,
    unscaled_share=0.03,
    queueing=0.1,
    memory_fixed_gib=0.7,
    memory_per_item_gib=0.2,
    max_batch=256,
    max_processes=5,
)


def numbers(low, high):
    return st.floats(low, high, allow_subnormal=False)


NETWORKS = st.builds(
    ClosedNetwork,
    launch_ms=numbers(0.01, 50),
    launch_contention=numbers(0, 0.2),
    host_per_item_ms=numbers(0, 5),
    gpu_fixed_ms=numbers(0, 50),
    gpu_per_item_ms=numbers(0.01, 50),
    batch_exponent=numbers(0.8, 1.1),
    unbatched_ratio=numbers(0.3, 3),
    bandwidth_share=numbers(0, 1),
    unscaled_share=numbers(0, 1),
    queueing=numbers(0, 1),
    memory_fixed_gib=numbers(0, 10),
    memory_per_item_gib=numbers(0, 1),
    max_batch=st.just(256),
    max_processes=st.just(48),
)
BATCHES, PROCESSES, SLICES = st.integers(1, 256), st.integers(1, 48), st.sampled_from(GPCS)


def at_most(small, large):
    return small <= large * (1 + 1e-11)


@given(NETWORKS, BATCHES, PROCESSES, SLICES)
def test_scalar_and_array_agree(network, batch, processes, compute):
    array = batch_latency_ms_array(network, np.array([batch]), np.array([processes]), np.array([compute]))
    assert array[0] == pytest.approx(network.batch_latency_ms(batch, processes, compute), rel=1e-9)


def test_arrays_broadcast():
    latency_ms = batch_latency_ms_array(KNOWN, np.array([[1], [8]]), np.array([1, 2, 3]), 4)
    assert latency_ms.shape == (2, 3)
    assert latency_ms[1, 2] == pytest.approx(KNOWN.batch_latency_ms(8, 3, 4), rel=1e-9)


@given(NETWORKS, BATCHES, PROCESSES, SLICES)
def test_more_processes_never_shorten_a_batch(network, batch, processes, compute):
    fewer, more = (network.batch_latency_ms(batch, count, compute) for count in (processes, processes + 1))
    assert at_most(fewer, more)


@given(NETWORKS, st.integers(2, 256), PROCESSES, SLICES)
def test_larger_batches_take_no_less_time(network, batch, processes, compute):
    smaller, larger = (network.batch_latency_ms(items, processes, compute) for items in (batch, batch + 1))
    assert at_most(smaller, larger)


@given(NETWORKS, BATCHES, PROCESSES)
def test_larger_slices_never_slow_down(network, batch, processes):
    latencies_ms = [network.batch_latency_ms(batch, processes, compute) for compute in GPCS]
    assert all(at_most(larger, smaller) for smaller, larger in pairwise(latencies_ms))


@given(NETWORKS, BATCHES, PROCESSES, SLICES)
def test_latency_respects_the_asymptotes(network, batch, processes, compute):
    gpu_ms = network.gpu_ms(batch, compute)
    think_ms = network.exposed_host_ms(batch, processes, compute)
    latency_ms = network.batch_latency_ms(batch, processes, compute)
    assert at_most(max(think_ms + gpu_ms, processes * gpu_ms), latency_ms)
    assert at_most(latency_ms, think_ms + processes * gpu_ms)


@given(NETWORKS, BATCHES, SLICES)
def test_a_lone_process_waits_for_nobody(network, batch, compute):
    alone_ms = network.exposed_host_ms(batch, 1, compute) + network.gpu_ms(batch, compute)
    assert network.batch_latency_ms(batch, 1, compute) == pytest.approx(alone_ms, rel=1e-9)
    assert at_most(network.exposed_host_ms(batch, 1, compute), network.host_ms(batch))


@given(NETWORKS, BATCHES, PROCESSES, SLICES)
def test_throughput_is_what_latency_allows(network, batch, processes, compute):
    rate_rps = network.throughput_rps(batch, processes, compute)
    latency_s = network.batch_latency_ms(batch, processes, compute) / 1000
    assert rate_rps > 0
    assert rate_rps * latency_s == pytest.approx(batch * processes)


@given(NETWORKS, BATCHES, PROCESSES)
def test_memory_grows_with_batch_and_processes(network, batch, processes):
    need_gib = network.memory_gib(batch, processes)
    assert need_gib <= network.memory_gib(batch + 1, processes)
    assert need_gib <= network.memory_gib(batch, processes + 1)


@given(numbers(0.01, 50), numbers(0, 5), st.integers(1, 8))
@settings(max_examples=30)
def test_full_queueing_is_schweitzers_fixed_point(launch_ms, host_per_item_ms, processes):
    changes = {"launch_ms": launch_ms, "host_per_item_ms": host_per_item_ms, "queueing": 1.0}
    network = ClosedNetwork.model_validate(KNOWN.model_dump() | changes)
    gpu_ms, think_ms = network.gpu_ms(8, 2), network.exposed_host_ms(8, processes, 2)
    latency_ms = network.batch_latency_ms(8, processes, 2)
    others_at_gpu = (processes - 1) * (latency_ms - think_ms) / latency_ms
    assert latency_ms == pytest.approx(think_ms + gpu_ms * (1 + others_at_gpu), rel=1e-9)


@pytest.mark.parametrize(
    "change", [{"launch_ms": 0.0}, {"queueing": 1.5}, {"other": 1}, {"launch_ms": math.inf}]
)
def test_senseless_coefficients_are_refused(change):
    with pytest.raises(ValidationError):
        ClosedNetwork(**(KNOWN.model_dump() | change))


def synthetic_points(network):
    """Every batch size, process count and slice as ProfilePoints, with latencies of the network."""
    grid = np.meshgrid(2 ** np.arange(9), np.arange(1, 6), GPCS, indexing="ij")
    batch, processes, compute = (axis.ravel() for axis in grid)
    memory_gib = np.array([MEMORY_GIB[gpcs] for gpcs in compute])
    latency_ms = batch_latency_ms_array(network, batch, processes, compute)
    fits = network.memory_gib(batch, processes) <= memory_gib
    batch, processes, compute = (axis.astype(float) for axis in (batch, processes, compute))
    return ProfilePoints(batch, processes, compute, memory_gib, np.where(fits, latency_ms, np.nan))


def errors_of(network, points):
    measured = points.take(points.measured)
    return relative_errors(network.latency_ms(*measured.where), measured.latency_ms)


def test_fit_recovers_known_coefficients():
    points = synthetic_points(KNOWN)
    network = fit(points)
    assert errors_of(network, points).max() < 0.01
    for name in ("launch_ms", "gpu_per_item_ms", "bandwidth_share", "unbatched_ratio"):
        assert getattr(network, name) == pytest.approx(getattr(KNOWN, name), rel=0.05)
    fits = network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    np.testing.assert_array_equal(fits, points.measured)


def test_without_points_out_of_memory_hardly_more_fits_than_was_seen_to():
    points = synthetic_points(KNOWN)
    network = fit(points.take(points.measured))
    fits = network.memory_gib(points.batch, points.processes) <= points.slice_memory_gib
    assert fits[points.measured].all()
    assert fits[~points.measured].mean() < 0.1


def test_fit_is_deterministic_and_shrugs_off_outliers():
    points = synthetic_points(KNOWN)
    spoiled_ms = points.latency_ms.copy()
    spoiled_ms[:: len(spoiled_ms) // 5] *= 0.6
    first, second = (fit(points._replace(latency_ms=spoiled_ms)) for _ in range(2))
    assert first == second
    assert errors_of(first, points).mean() < 0.01


def measured_points(path):
    """Batch, processes, GPCs, slice memory (GiB) and batch latency (ms, NaN out of memory) of a profile."""
    with path.open(newline="") as lines:
        rows = [tuple(map(float, row[:4])) for row in list(csv.reader(lines))[1:]]
    compute, batch, processes, rate_rps = np.array(rows).T
    memory_gib = np.array([MEMORY_GIB[gpcs] for gpcs in compute])
    return batch, processes, compute, memory_gib, 1000 * batch / np.where(rate_rps > 0, rate_rps, np.nan)


@pytest.mark.skipif(not PROFILE.is_dir(), reason="the ParvaGPU profile is not part of the repository")
def test_shipped_errors_are_those_of_the_profile():
    models = yaml.safe_load(SHIPPED.read_text())["models"]
    errors = []
    for path in sorted(PROFILE.glob("*.csv")):
        network, stated = ClosedNetwork(**models[path.stem]["coefficients"]), models[path.stem]["error"]
        batch, processes, compute, memory_gib, latency_ms = measured_points(path)
        valid = ~np.isnan(latency_ms)
        predicted_ms = batch_latency_ms_array(network, batch[valid], processes[valid], compute[valid])
        errors.append(np.abs(predicted_ms / latency_ms[valid] - 1))
        assert fitted_error(errors[-1]).model_dump() == pytest.approx(stated, abs=1e-5)
        assert not (network.memory_gib(batch, processes) <= memory_gib)[~valid].any()
    everywhere = np.concatenate(errors)
    assert everywhere.mean() <= 0.035
    assert np.percentile(everywhere, 95) <= 0.10
