"""iGniter: the model against the published plans and predictions, its algorithms, fit and importer."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.heuristics.igniter.igniter import METHODS
from provision.instances.importers.igniter_profile import import_igniter
from provision.instances.read import generate, read
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.catalogue import load_performance
from provision.models.performance.igniter import Terms, solo_terms, together
from provision.models.performance.operating_points import Member
from provision.models.problem.objective import objective_of
from provision.models.problem.search import Search
from provision.models.problem.workload import FleetEntry, Workload
from provision.solving.solve import solve
from provision.verification.verify import verify

PROFILE = Path(__file__).resolve().parents[4] / "shared/data/igniter/v100_profile.jsonl"
NEEDS_PROFILE = pytest.mark.skipif(not PROFILE.exists(), reason="iGniter's public profile is not in shared/")

V100 = load_performance("igniter-v100")
T4 = load_performance("igniter-t4-derived")
METHOD = {method.name: method for method in METHODS}

# What iGniter's public program plans and predicts: percent of the GPU, batch, latency (ms), requests/s.
MOTIVATION = [
    {
        "vgg19": (37.5, 6, 28.730, 211.50),
        "resnet50": (30, 8, 18.908, 434.15),
        "alexnet": (10, 4, 6.918, 599.08),
    }
]
TESTBED = [
    {"ssd-app3": (92.5, 8, 26.980, 306.33)},
    {"vgg19-app2": (75, 6, 14.951, 411.25), "resnet50-app3": (15, 4, 18.562, 218.33)},
    {"vgg19-app1": (60, 3, 9.975, 306.30), "resnet50-app1": (32.5, 4, 9.687, 423.46)},
    {"ssd-app1": (60, 2, 12.277, 165.82), "vgg19-app3": (37.5, 4, 19.800, 204.51)},
    {
        "resnet50-app2": (45, 9, 14.810, 630.76),
        "alexnet-app1": (20, 6, 4.834, 1341.47),
        "ssd-app2": (15, 1, 19.661, 51.14),
    },
    {"alexnet-app3": (12.5, 8, 8.397, 1010.69), "alexnet-app2": (7.5, 3, 7.261, 423.73)},
]

members = st.builds(
    lambda model, batch, units: Member(model, batch, 1, units * V100.hardware.unit_share),
    st.sampled_from(sorted(V100.models)),
    st.integers(1, V100.max_batch),
    st.integers(1, V100.hardware.units),
)


def plan_of(instance, name="igniter"):
    return METHOD[name].run(instance, Search()).plan


def one_workload(model="resnet50", **changes):
    workload = {"name": "one", "model": model, "slo_ms": 40.0, "rate_rps": 200.0} | changes
    return read("igniter-motivation").replace(workloads=(Workload(**workload),))


@pytest.mark.parametrize("name, published", [("igniter-motivation", MOTIVATION), ("igniter-testbed-12", TESTBED)])
def test_published_plans_are_reproduced(name, published):
    instance = read(name)
    result = solve(instance, "igniter")
    planned = [
        {replica.workload: (round(100 * replica.sm_share, 6), replica.batch) for replica in gpu.slices[0].replicas}
        for gpu in result.plan.gpus
    ]
    assert planned == [{workload: row[:2] for workload, row in gpu.items()} for gpu in published]
    assert result.verified and result.objective == pytest.approx(3.06 * len(published))
    rows = {workload: row for gpu in published for workload, row in gpu.items()}
    for found in result.report.predictions:
        assert (found.latency_ms, found.throughput_rps) == pytest.approx(rows[found.workload][2:], rel=1e-3)


def test_ffd_takes_five_gpus_and_misses_slos_by_the_model():
    instance = read("igniter-testbed-12")
    result = solve(instance, "ffd")
    assert (result.status, len(result.plan.gpus), result.verified) == ("unknown", 5, False)
    missed = {violation.workload for violation in result.report.violations}
    assert result.reason.startswith(f"{len(missed)} of 12 workloads miss") and len(missed) >= 9
    assert {"ssd-app3", "alexnet-app2"} == {one.workload for one in result.plan.gpus[0].slices[0].replicas}


def test_ffd_with_allocation_keeps_slos():
    result = solve(read("igniter-testbed-12"), "ffd++")
    assert result.verified and len(result.plan.gpus) == 6


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from(["igniter", "ffd++"]))
def test_plans_of_generated_instances_verify(workloads, seed, name):
    instance = generate(workloads, seed)
    assert verify(instance, plan_of(instance, name)).ok


def test_generated_instances_are_repeatable():
    instance = generate(25, 3)
    assert instance == generate(25, 3) and instance.name == "igniter-25-seed3"
    testbed = read("igniter-testbed-12").workloads
    for turn, (one, base) in enumerate(zip(instance.workloads, testbed * 2, strict=False)):
        assert one.name == f"{base.name}-{turn // 12 + 1}" and base.rate_rps / 2 <= one.rate_rps <= base.rate_rps
    with pytest.raises(InputError, match="at least 1"):
        generate(0, 1)


@settings(max_examples=60)
@given(st.lists(members, min_size=1, max_size=5), st.sampled_from([V100, T4]))
def test_scalar_and_arrays_agree(group, data):
    found = data.predict("whole", group)
    solo = [solo_terms(data, one.model, one.batch, one.sm_share) for one in group]
    empty = Terms(*np.zeros((len(Terms._fields), 1)))
    terms = Terms(*(np.append(column, zero) for column, zero in zip(np.array(solo, float).T, empty, strict=True)))
    latency_ms, throughput_rps = together(data.hardware, terms)
    if found[0] is None:
        assert np.isinf(latency_ms[:-1]).all() and not throughput_rps.any()
    else:
        assert [one.latency_ms for one in found] == pytest.approx(latency_ms[:-1], rel=1e-12)
        assert [one.throughput_rps for one in found] == pytest.approx(throughput_rps[:-1], rel=1e-12)


@settings(max_examples=60)
@given(st.lists(members, min_size=1, max_size=5), members)
def test_more_neighbours_never_make_faster(group, newcomer):
    before, after = V100.predict("whole", group), V100.predict("whole", [*group, newcomer])
    for old, new in zip(before, after, strict=False):
        if old is None or new is None:
            assert new is None
        else:
            assert new.latency_ms >= old.latency_ms and new.throughput_rps <= old.throughput_rps


@pytest.mark.parametrize("data", [V100, T4], ids=["v100", "t4"])
@pytest.mark.parametrize("model", sorted(V100.models))
def test_more_units_never_make_slower_alone(data, model):
    points = data.operating_points(model, "whole")
    latency_ms = points.latency_ms.reshape(data.max_batch, data.hardware.units)
    assert (np.diff(latency_ms, axis=1) < 0).all()


def test_operating_points_are_predictions_alone():
    points = V100.operating_points("ssd", "whole")
    for at in range(0, len(points.batch), 97):
        [alone] = V100.predict("whole", [Member("ssd", int(points.batch[at]), 1, points.sm_share[at])])
        assert alone.latency_ms == pytest.approx(points.latency_ms[at])
        assert alone.throughput_rps == pytest.approx(points.throughput_rps[at])


@pytest.mark.parametrize(
    "profile, member",
    [
        ("1g.5gb", Member("ssd", 1, 1, 1.0)),
        ("whole", Member("ssd", 1, 2, 1.0)),
        ("whole", Member("ssd", 33, 1, 1.0)),
        ("whole", Member("ssd", 1, 1, 0.01)),
    ],
)
def test_what_the_model_does_not_describe_is_none(profile, member):
    assert V100.predict(profile, [member, Member("alexnet", 1, 1, 0.1)]) == [None, None]
    assert not len(V100.operating_points("ssd", "1g.5gb").batch)


def test_an_slo_that_no_gpu_meets_is_infeasible_and_the_nearest_works():
    outcome = METHOD["igniter"].run(one_workload(slo_ms=2.0), Search())
    assert (outcome.status, outcome.plan) == ("infeasible", None)
    enough = float(re.search(r"one: .* slo_ms ([\d.]+) or more would work", outcome.reason)[1])
    nearest = one_workload(slo_ms=enough, rate_rps=1.0)
    assert verify(nearest, plan_of(nearest)).ok


@pytest.mark.parametrize("slo_ms", [40.0, 400.0], ids=["batch by Theorem 1", "batch at its limit"])
def test_a_rate_too_large_for_a_gpu_is_split_over_whole_gpus(slo_ms):
    """Each is loaded to 0.9 of what the largest batch carries there, while more than that is left."""
    instance = one_workload(slo_ms=slo_ms, rate_rps=9000.0)
    plan = plan_of(instance)
    *whole, rest = [one for *_, one in plan.replicas()]
    assert verify(instance, plan).ok and len(whole) > 1
    points = V100.operating_points(instance.workloads[0].model, "whole")
    meets = np.isclose(points.sm_share, 1) & (points.latency_ms <= slo_ms / 2)
    at = np.flatnonzero(meets)[points.batch[meets].argmax()]
    loaded = math.ceil(0.9 * points.throughput_rps[at])
    assert {(one.batch, one.rate_rps, one.sm_share) for one in whole} == {(points.batch[at], loaded, 1.0)}
    assert 0 < rest.rate_rps <= loaded and sum(one.rate_rps for one in (*whole, rest)) == pytest.approx(9000)


def test_too_few_replicas_to_split_names_a_rate_for_one_gpu():
    enough = plan_of(one_workload(rate_rps=9000.0))
    limited = one_workload(rate_rps=9000.0, max_replicas=len(enough.gpus) - 1)
    outcome = METHOD["igniter"].run(limited, Search())
    assert outcome.plan is None and outcome.status in ("unknown", "infeasible") and "or less" in outcome.reason


def test_a_workload_without_requests_keeps_a_replica():
    idle = one_workload(rate_rps=0.0)
    assert verify(idle, plan_of(idle)).ok


def test_a_fleet_that_is_too_small_is_said():
    testbed = read("igniter-testbed-12").replace(fleet=(FleetEntry(gpu="v100", price_per_hour=3.06, count=5),))
    outcome = METHOD["igniter"].run(testbed, Search())
    assert (outcome.status, outcome.plan) == ("unknown", None) and "needs 6 GPUs" in outcome.reason


@pytest.mark.parametrize(
    "name, changes, word",
    [
        ("parvagpu-s1", {}, "how all models interfere"),
        ("igniter-motivation", {"fleet": (FleetEntry(gpu="v100", mps=False),)}, "MPS"),
    ],
)
def test_other_instances_are_refused(name, changes, word):
    with pytest.raises(UnsupportedError, match=word):
        METHOD["igniter"].check(read(name).replace(**changes))


def twelve_on(*gpus):
    """The testbed with workloads that may be split, on these GPU types at the paper's prices."""
    prices = {"v100": 3.06, "t4": 0.526}
    testbed = read("igniter-testbed-12")
    return testbed.replace(
        fleet=tuple(FleetEntry(gpu=gpu, price_per_hour=prices[gpu]) for gpu in gpus),
        performance=tuple({"v100": V100, "t4": T4}[gpu] for gpu in gpus),
        workloads=tuple(one.model_copy(update={"max_replicas": None}) for one in testbed.workloads),
    )


def test_the_t4_needs_two_gpus_for_the_workloads_that_the_paper_names():
    """Split are just those four, over five whole T4s; 13 in all by the derived coefficients (paper: 15)."""
    on_t4 = twelve_on("t4")
    plan = plan_of(on_t4)
    assert verify(on_t4, plan).ok and len(plan.gpus) == 13
    served = [one.workload for *_, one in plan.replicas()]
    assert {name for name in served if served.count(name) > 1} == {"vgg19-app1", "vgg19-app2", "ssd-app1", "ssd-app3"}
    assert "NOT measured" in T4.source


def test_the_cheapest_gpu_type_serves_all():
    """Section 5.3: T4s, for less than half of the V100s' price; alone each type gives the same plan as before."""
    both, on_v100, on_t4 = (twelve_on(*gpus) for gpus in (("v100", "t4"), ("v100",), ("t4",)))
    plan = plan_of(both)
    assert verify(both, plan).ok and {gpu.gpu for gpu in plan.gpus} == {"t4"}
    assert plan.gpus == plan_of(on_t4).gpus and len(plan_of(on_v100).gpus) == 6
    assert objective_of(both).value(plan) == pytest.approx(13 * 0.526)
    few = both.replace(fleet=(both.fleet[0], both.fleet[1].model_copy(update={"count": 12})))
    assert plan_of(few).gpus == plan_of(on_v100).gpus


@NEEDS_PROFILE
def test_the_fit_gives_the_published_coefficients_and_the_shipped_file():
    fitted = import_igniter(PROFILE)
    assert fitted.hardware.clock_slope_mhz_per_w == pytest.approx(-1.0254, abs=5e-5)
    assert fitted.hardware.scheduling_slope_ms == pytest.approx(0.00475, abs=5e-6)
    assert fitted.hardware.scheduling_intercept_ms == pytest.approx(-0.00902, abs=5e-6)
    for name, model in fitted.models.items():
        shipped = V100.models[name].model_dump(exclude={"error"})
        assert model.model_dump(exclude={"error"}) == pytest.approx(shipped, rel=1e-5)
    assert fitted.hardware == V100.hardware


def damaged(text, kind):
    if kind == "truncated":
        return text[: len(text) // 2], "not well-formed JSON"
    if kind == "missing":
        return "\n".join(line for line in text.splitlines() if "kernel" not in line), "kernel: .*missing"
    if kind == "nan":
        return text.replace('"bandwidth": 10000000', '"bandwidth": NaN'), "bandwidth"
    return "", "empty"


def small_profile():
    """A profile made up, one model."""
    hardware = {
        "idlepower": 50.0, "power": [100.0, 200.0, 290.0, 299.0], "frequency": [1500.0, 1500.0, 1450.0, 1400.0],
        "idletime": [0.001, 0.002, 0.006, 0.01], "maxGPUfrequency": 1500, "maxGPUpower": 250, "unit": 2.5,
        "bandwidth": 10000000,
    }
    latency = [[(batch * 2 + 1) / share + 1 for share in (0.1, 0.5, 1)] for batch in (1, 16, 32)]
    model = {
        "inputdata": 600000, "outputdata": 4000, "kernel": 10, "gpulatency": latency,
        "power": [[60.0, 90.0, 120.0]] * 3, "frequency": [[1500.0] * 3] * 3, "l2caches": [3.0, 10.0, 20.0],
        "l2cache": 12.0, "idletime_1": 0.02, "activetime_1": 60.0, "activetime_2": 66.0, "frequency_2": 1500.0,
    }
    parts = [("hardware", hardware), ("toy", model)]
    return "\n".join(json.dumps({name: {key: value}}) for name, part in parts for key, value in part.items())


def test_the_fit_recovers_what_a_made_up_profile_was_made_of(tmp_path):
    path = tmp_path / "profile.jsonl"
    path.write_text(small_profile())
    fitted = import_igniter(path)
    toy = fitted.models["toy"]
    assert (toy.k2_ms, toy.k3_ms, toy.k5_ms) == pytest.approx((2, 1, 0.98), rel=1e-4)
    assert (toy.k1_ms, toy.k4_share) == pytest.approx((0, 0), abs=1e-6)
    assert toy.cache_sensitivity == pytest.approx(0.1 / 0.12)
    assert fitted.hardware.clock_slope_mhz_per_w == pytest.approx(-(50 * 50 + 150 * 100) / (50**2 + 150**2))


@pytest.mark.parametrize("kind", ["truncated", "missing", "nan", "empty"])
def test_a_damaged_profile_is_one_line(tmp_path, kind):
    path = tmp_path / "profile.jsonl"
    text, problem = damaged(small_profile(), kind)
    path.write_text(text)
    with pytest.raises(InputError, match=problem) as caught:
        import_igniter(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_shares_of_a_plan_add_up_to_no_more_than_a_gpu():
    for gpu in plan_of(generate(200, 1)).gpus:
        assert sum(replica.sm_share for replica in gpu.slices[0].replicas) <= 1 + TOLERANCE


def test_a_method_that_would_prove_too_much_refuses_interference():
    with pytest.raises(UnsupportedError, match="--method auto"):
        solve(read("igniter-motivation"), "parvagpu")
