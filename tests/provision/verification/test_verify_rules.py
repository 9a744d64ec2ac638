"""The verifier's rules one by one: what it says, to the number, and where each begins to hold."""

import pytest
from tiny_plans import BIG, SMALL, make_instance, plan, replica

import provision
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.plans.plan import Plan, PlannedGpu, Slice
from provision.models.problem.policy import Survive
from provision.verification.deployment import capacity_rps

LATE = Slice(profile="1g.10gb", replicas=(replica(batch=8, processes=2),))
WHOLE = Slice(profile="whole", replicas=(replica(400.0),))


def messages(report):
    return [violation.message for violation in report.violations]


def several(*gpus):
    """A plan of GPUs with these slices each."""
    return Plan(version=1, instance="tiny",
                gpus=[PlannedGpu(gpu="a100-80gb", mig=True, slices=slices) for slices in gpus])


def whole_gpus(*slices, gpu="v100", **policy):
    """An instance with two types of GPUs without MIG, each enough for it, and a plan of one with these slices."""
    tables = [MeasuredSegments(version=1, name=f"whole-{name}", kind="measured-segments", gpu=name,
                               models={"m": {"points": [("whole", 4, 1, 500.0, 10.0)]}})
              for name in ("v100", "a100-80gb")]
    fleet = [{"gpu": "v100", "mps": False, "price_per_hour": 2.0},
             {"gpu": "a100-80gb", "mig": False, "price_per_hour": 3.0}]
    return make_instance(performance=tables, fleet=fleet, policy=policy), plan(*slices, gpu=gpu, mig=False)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (plan(BIG, LATE),
         "GPU 0, slice 1, workload a: batch latency 20 ms is 33.3% over the 15 ms that slo_ms 30 leaves"),
        (plan(BIG, SMALL, mig=False),
         "GPU 0: a100-80gb (MIG off) is not in the fleet, which has a100-80gb (MIG on)"),
        (plan(BIG, Slice(profile="1g.10gb", replicas=(replica(batch=5),))),
         "GPU 0, slice 1, workload a: no performance data for m at batch 5, 1 processes, SM share 1 on 1g.10gb with 0 "
         "neighbours (out of memory or never measured)"),
        (plan(BIG, Slice(profile="1g.10gb", replicas=(replica(processes=7),))),
         "GPU 0, slice 1: 7 processes, MPS serves at most 6 on 1g.10gb"),
        (plan(BIG, SMALL, Slice(profile="1g.10gb", start=1, replicas=(replica(workload="b"),))),
         "GPU 0, slice 2, workload b: the instance tiny has no such workload"),
        (plan(BIG, SMALL, Slice(profile="1g.10gb", start=1, replicas=(replica(model="n"),))),
         "GPU 0, slice 2, workload a: runs n, the models of the workload are m"),
        (plan(BIG), "workload a: 300 of 400 requests/s are routed"),
    ],
)
def test_a_violation_says_where_and_by_how_much(broken, said):
    assert said in messages(provision.verify(make_instance(), broken))


def test_overlaps_name_each_memory_slice_once():
    """Other slices of the GPU, also ones of unknown profiles before, change nothing."""
    unknown = Slice(profile="5g.50gb", replicas=(replica(),))
    report = provision.verify(make_instance(), plan(unknown, SMALL, BIG, Slice(profile="2g.20gb", start=4)))
    [found] = [one for one in report.violations if one.kind == "overlap"]
    assert (found.slice, found.value, found.limit) == (3, 2, 0)
    assert found.message.endswith("2g.20gb at 4 overlaps 3g.40gb at 4 (slice 2) on memory slices 4, 5")


def test_slices_without_replicas_and_one_set_of_media_engines_are_allowed():
    report = provision.verify(make_instance(), plan(BIG, SMALL, Slice(profile="1g.10gb+me", start=1)))
    assert report.ok and len(report.predictions) == 2


def test_whole_gpus_start_at_zero_and_hold_one_slice():
    instance, good = whole_gpus(WHOLE)
    report = provision.verify(instance, good)
    assert report.ok and len(report.predictions) == 1
    assert (report.cost_per_hour, report.gpcs, report.external_fragmentation) == (2.0, 0, 0.0)
    _, late = whole_gpus(WHOLE.model_copy(update={"start": 1}))
    assert messages(provision.verify(instance, late)) == [
        "GPU 0, slice 0: a whole GPU starts at memory slice 0, not 1"]
    _, twice = whole_gpus(WHOLE, Slice(profile="whole"))
    [found] = provision.verify(instance, twice).violations
    assert (found.kind, found.value) == ("overlap", 1)


def test_a_gpu_without_mig_has_all_its_sms_and_no_profiles():
    """An A100 has 108 SMs, of which MIG reaches 98."""
    instance, good = whole_gpus(WHOLE, gpu="a100-80gb")
    empty = good.gpus[0].model_copy(update={"slices": ()})
    report = provision.verify(instance, good.model_copy(update={"gpus": (*good.gpus, empty)}))
    assert (report.ok, report.cost_per_hour, report.external_fragmentation) == (True, 6.0, 0.5)
    _, sliced = whole_gpus(SMALL, gpu="a100-80gb")
    report = provision.verify(instance, sliced)
    assert "GPU 0, slice 0: profile 1g.10gb needs MIG, which is off; use whole" in messages(report)
    assert (report.predictions, report.gpcs) == ((), 0)


def test_a_plan_without_gpus_has_no_slack_and_no_fragmentation():
    report = provision.verify(make_instance(), several())
    assert (report.internal_slack, report.external_fragmentation, report.cost_per_hour) == (0.0, 0.0, 0.0)


def test_overfull_gpus_have_no_fragmentation_and_gpus_out_of_the_fleet_no_price():
    """Three slices of 42 SMs do not fit 98."""
    assert provision.verify(make_instance(), plan(BIG, BIG, BIG)).external_fragmentation == 0.0
    assert provision.verify(make_instance(), plan(BIG, SMALL, gpu="h100-80gb")).cost_per_hour is None


@pytest.mark.parametrize(("counts", "gpus", "said"), [
    ((2,), 2, []), ((1, 1), 2, []), ((1, None), 3, []),
    ((1, 1), 3, ["3 GPUs of type a100-80gb, the fleet has 2"]),
])
def test_price_tiers_together_limit_a_gpu_type(counts, gpus, said):
    """Types and ways beside it, of any number of GPUs, do not count."""
    fleet = [{"gpu": "a100-80gb", "count": count, "price_per_hour": 4.0 + at} for at, count in enumerate(counts)]
    fleet += [{"gpu": "a100-80gb", "mig": False, "price_per_hour": 4.0}, {"gpu": "v100", "price_per_hour": 1.0}]
    assert messages(provision.verify(make_instance(fleet=fleet), plan(BIG, SMALL, copies=gpus))) == said


def one_workload(**changes):
    return [{"name": "a", "model": "m", "slo_ms": 30.0, "rate_rps": 400.0} | changes]


def test_shares_per_gpu_limit_rates_and_not_surpluses():
    """Half of the rate on each of two GPUs is allowed; without a limit so is more than the rate on one."""
    half = BIG.model_copy(update={"replicas": (replica(200.0, batch=8, processes=2),)})
    limited = make_instance(workloads=one_workload(max_share_per_gpu=0.5))
    assert provision.verify(limited, several((half,), (half,))).ok
    [found] = provision.verify(limited, several((half,), (BIG,))).violations
    assert (found.gpu, found.value, found.limit) == (1, 300.0, 200.0)
    more = BIG.model_copy(update={"replicas": (replica(340.0, batch=8, processes=2),)})
    assert provision.verify(make_instance(), plan(more, SMALL)).ok


@pytest.mark.parametrize(("excess", "holds"), [(0.5, True), (2.0, False)])
def test_rounding_is_forgiven_in_proportion(excess, holds):
    full = SMALL.model_copy(update={"replicas": (replica(100.0 * (1 + excess * TOLERANCE)),)})
    assert provision.verify(make_instance(), plan(BIG, full)).ok == holds


def test_without_mps_one_process_runs():
    one = make_instance(fleet=[{"gpu": "a100-80gb", "mps": False}], workloads=one_workload(rate_rps=100.0))
    assert provision.verify(one, plan(SMALL)).ok
    found = [v for v in provision.verify(one, plan(BIG)).violations if v.kind == "clients"]
    assert [(v.message, v.limit) for v in found] == [
        ("GPU 0, slice 0: 2 processes, without MPS a slice runs one", 1)]


def test_replicas_that_interfere_hold_parts_of_the_sms():
    """Under iGniter's model two replicas do not have all SMs each, and one with a quarter leaves three."""
    instance = provision.read("igniter-motivation")
    one = instance.workloads[0]
    pair, quarter = (
        plan(Slice(profile="whole", replicas=(replica(1.0, workload=one.name, batch=1, sm_share=share),) * many),
             gpu="v100", mig=False) for share, many in ((1.0, 2), (0.25, 1)))
    [found] = [v for v in provision.verify(instance, pair).violations if v.kind == "capacity"]
    assert (found.message, found.limit) == ("GPU 0, slice 0: SM shares add up to 2", 1)
    report = provision.verify(instance, quarter)
    assert report.external_fragmentation == 0.75
    [predicted] = report.predictions
    assert report.internal_slack == pytest.approx(1 - 1 / predicted.throughput_rps)


@pytest.mark.parametrize(
    ("gpus", "even", "rate", "said"),
    [
        (1, False, 400.0, [(0, 0.0)]), (2, False, 400.0, []), (2, False, 460.0, [(0, 450.0), (1, 450.0)]),
        (3, True, 390.0, []), (3, True, 410.0, [(0, 400.0), (1, 400.0), (2, 400.0)]),
    ],
)
def test_what_is_left_after_a_loss_is_the_sum_or_even(gpus, even, rate, said):
    """A 3g and a 1g on each GPU carry up to 350 and 100, dealt evenly as often 100 as there are replicas."""
    instance = make_instance(workloads=one_workload(rate_rps=rate),
                             policy={"survive": Survive(gpu_failures=1), "even_replicas": even})
    mine = rate / gpus
    small = mine / 2 if even else 50.0
    slices = (BIG.model_copy(update={"replicas": (replica(mine - small, batch=8, processes=2),)}),
              SMALL.model_copy(update={"replicas": (replica(small),)}))
    report = provision.verify(instance, several(*[slices] * gpus))
    assert [(v.gpu, v.value) for v in report.violations] == said
    assert all("after its loss the others carry" in v.message and v.limit == rate for v in report.violations)


def test_even_replicas_carry_equal_rates():
    """A workload without replicas has none that differ."""
    even = make_instance(policy={"even_replicas": True})
    assert messages(provision.verify(even, plan(BIG, SMALL))) == [
        "workload a: replicas carry 100 to 300 requests/s, even_replicas asks for equal rates"]
    assert provision.verify(even.replace(workloads=one_workload(rate_rps=0.0, min_replicas=0)), several()).ok


def test_under_queueing_the_p99_counts():
    """It holds at half of the throughput, is over the budget at most of it, and has no end at all of it."""
    instance, _ = whole_gpus(latency_budget="queueing")
    reports = {}
    for load in (0.5, 0.97, 1.0):
        asked = instance.replace(workloads=one_workload(rate_rps=500.0 * load))
        piece = WHOLE.model_copy(update={"replicas": (replica(500.0 * load),)})
        placed = plan(piece, gpu="v100", mig=False)
        reports[load] = provision.verify(asked, placed)
        held = capacity_rps(asked, placed, reports[load].predictions)
        assert 250.0 < held["a"] < 485.0
    assert reports[0.5].ok
    assert 10.0 < reports[0.5].predictions[0].p99_ms <= 30.0
    [late], [endless] = reports[0.97].violations, reports[1.0].violations
    assert f"is {late.margin:.1%} over the 30 ms" in late.message and late.value > late.limit == 30.0
    assert "no P99 holds at 100.00% of the throughput" in endless.message
    assert reports[1.0].predictions[0].p99_ms is None
