"""The cover bound: the strongest of its three, as strong as arithmetic says, and below every plan."""

import numpy as np
import pytest
from small_solver import optimum
from synthetic import random_instance

import provision
from provision.formulations.bounds.replica_set_bound import replica_set_bound
from provision.formulations.pricing.alone.price_bound import sharpest
from provision.formulations.search.partitions import partitions_of
from provision.formulations.search.segments import best_segments, cap_rps
from provision.heuristics.core.mixing import mixed
from provision.models.base.arrays import distinct_rows
from provision.models.base.clock import Deadline
from provision.models.performance.measured_segments import MeasuredSegments


def bound_of(instance):
    segments = best_segments(instance)
    useful_rps = np.minimum(segments.throughput_rps, cap_rps(instance)[:, None])
    return replica_set_bound(instance, useful_rps, segments, partitions_of(instance, segments))


def bounded(profile, workloads, **fleet):
    """The bound for some workloads that run on one profile only, where another runs on a 1g.10gb."""
    points = {"large": [(profile, 1, 1, 100.0, 10.0)], "small": [("1g.10gb", 1, 1, 100.0, 10.0)]}
    table = MeasuredSegments(version=1, name="table", kind="measured-segments", gpu="a100-80gb",
                             models={name: {"points": rows} for name, rows in points.items()})
    rows = [{"name": f"w{at}", "model": "large", "slo_ms": 30.0, "rate_rps": 100.0} for at in range(workloads)]
    rows.append({"name": "s", "model": "small", "slo_ms": 30.0, "rate_rps": 0.0, "min_replicas": 0})
    entries = [{"gpu": "a100-80gb", **fleet}]
    return bound_of(provision.Instance(version=1, name="bounded", fleet=entries, performance=table, workloads=rows))[0]


def test_the_strongest_price_counts():
    """Seven 3g take 21 of 7 compute slices a GPU, 28 of 8 memory slices; six 4g 24 of 7 and 24 of 8."""
    assert bounded("3g.40gb", 7) == 4
    assert bounded("4g.40gb", 6) == 4
    assert bounded("3g.40gb", 7, price_per_hour=2.5) == 10


def test_nothing_asked_for_costs_nothing():
    assert bounded("3g.40gb", 0) == 0


@pytest.mark.parametrize(("name", "gpus"), [("parvagpu-s3", 5), ("parvagpu-s4", 7), ("parvagpu-s5", 12)])
def test_it_proves_the_optima_of_shipped_scenarios(name, gpus):
    instance = provision.read(name)
    bound, replica_set = bound_of(instance)
    assert bound == pytest.approx(gpus * instance.fleet[0].price_per_hour, rel=1e-12)
    compute = [one.compute for one in best_segments(instance).slice_types]
    assert replica_set.cost.sum() == (replica_set.counts @ compute).sum()


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_is_below_it(seed):
    """Fleets of one and of two types with prices, against the best plan."""
    fleet = ("a30", "t4") if seed % 2 else ("a30",)
    instance = random_instance(seed, workloads=2, gpus=fleet, gpus_each=0.8)
    best = optimum(instance)
    assert best is None or bound_of(instance)[0] <= best


def test_a_gpu_that_is_cheap_for_its_slices_bounds_a_mixed_fleet():
    """One T4 of 1 an hour is worth a slice, an A30 of 3 four: 2.25 for three slices, and no plan costs less than 3."""
    points = {"a30": ("1g.6gb", 1, 1, 100.0, 10.0), "t4": ("whole", 1, 1, 100.0, 10.0)}
    tables = [MeasuredSegments(version=1, name=f"table-{gpu}", kind="measured-segments", gpu=gpu,
                               models={"m": {"points": [row]}}) for gpu, row in points.items()]
    instance = provision.Instance(
        version=1, name="mixed", performance=tables,
        fleet=[{"gpu": "a30", "price_per_hour": 3.0}, {"gpu": "t4", "price_per_hour": 1.0}],
        workloads=[{"name": "w", "model": "m", "slo_ms": 30.0, "rate_rps": 300.0}],
    )
    assert bound_of(instance)[0] == pytest.approx(2.25, rel=1e-12)
    assert bound_of(instance)[0] < 2.25


@pytest.mark.parametrize("seed", range(8))
def test_prices_of_the_mix_prove_no_more_than_the_best_plan(seed):
    """The bound of greedy's linear program, on fleets of one and of two types with prices."""
    instance = random_instance(seed, workloads=2, gpus=("a30", "t4") if seed % 2 else ("a30",), gpus_each=0.8)
    best, found = optimum(instance), mixed(instance, best_segments(instance), Deadline(9))
    assert best is None or found.bound <= best


def test_rounded_prices_keep_the_ratios_that_prove_most():
    instance = provision.read("parvagpu-s5")
    partitions = partitions_of(instance, best_segments(instance))
    assert sharpest(np.array([1, 2, 3, 4, 7]) * 5.12 / 7, partitions, 60).tolist() == [1, 2, 3, 4, 7]
    assert (sharpest(np.zeros(5), partitions, 60) == 1).all()


def test_distinct_rows_are_those_of_numpy():
    for table in (np.random.default_rng(0).integers(0, 3, (200, 3)), np.zeros((0, 2), int), np.eye(4)[[2, 0, 2]]):
        rows, index = distinct_rows(table)
        wanted, at = np.unique(table, axis=0, return_inverse=True)
        assert (rows == wanted).all() and (index == at.ravel()).all()
