"""The verifier: every kind of violation, from plans that differ from a good one in a single thing."""

import pytest
from synthetic import random_instance
from tiny_plans import BIG, SMALL, kinds, make_instance, plan, replica

import provision
from provision.models.plans.plan import PlannedGpu, Replica, Slice
from provision.verification.deployment import capacity_rps


def test_good_plan_holds_with_its_totals():
    """A 3g and a 1g carry 400 requests/s: nothing violated, 4 GPCs, 56 of 98 SMs held, slack from 300/350."""
    report = provision.verify(make_instance(), plan(BIG, SMALL))
    assert report.ok
    assert (report.gpus, report.gpcs, report.cost_per_hour) == (1, 4, 4.0)
    assert report.external_fragmentation == pytest.approx(1 - 56 / 98)
    assert report.internal_slack == pytest.approx(1 - (42 * 300 / 350 + 14) / 56)


@pytest.mark.parametrize(
    ("expected", "broken"),
    [
        ("profile", plan(BIG, SMALL, Slice(profile="5g.50gb", start=0))),
        ("profile", plan(BIG, SMALL, mig=True, copies=1).model_copy(update={"gpus": (
            PlannedGpu(gpu="a100-80gb", mig=True, slices=(BIG, SMALL, Slice(profile="whole"))),)})),
        ("start", plan(BIG.model_copy(update={"start": 3}), SMALL)),
        ("overlap", plan(BIG, SMALL.model_copy(update={"start": 6}))),
        ("overlap", plan(BIG, SMALL, Slice(profile="2g.20gb", start=0))),
        ("capacity", plan(BIG, SMALL, Slice(profile="4g.40gb", start=0))),
        ("operating_point", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(batch=5),)))),
        ("operating_point", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(sm_share=0.5),)))),
        ("operating_point", plan(BIG, SMALL, Slice(profile="1g.10gb", start=1, replicas=(replica(workload="b"),)))),
        ("latency", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(batch=8, processes=2),)))),
        ("rate", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(99.0),)))),
        ("rate", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(101.0),)))),
        ("rate", plan(BIG)),
        ("fleet", plan(BIG, SMALL, gpu="h100-80gb")),
        ("fleet", plan(BIG, SMALL, mig=False)),
        ("fleet", plan(BIG, SMALL, gpu="no-such-gpu")),
        ("clients", plan(BIG, Slice(profile="1g.10gb", replicas=(replica(batch=4, processes=7),)))),
    ],
)
def test_each_broken_rule_is_named(expected, broken):
    """A plan that breaks one rule has a violation of that kind, with a place or a workload in the message."""
    report = provision.verify(make_instance(), broken)
    assert not report.ok
    assert expected in kinds(report)
    found = next(violation for violation in report.violations if violation.kind == expected)
    assert "GPU 0" in found.message or "workload a" in found.message


def test_equal_gpus_are_all_told_and_counted():
    """What is wrong with a layout is said of every GPU that has it, and its compute slices count every time."""
    wrong = provision.verify(make_instance(), plan(BIG, SMALL.model_copy(update={"start": 6}), copies=2))
    assert [v.gpu for v in wrong.violations if v.kind == "overlap"] == [0, 1]
    assert provision.verify(make_instance(), plan(BIG, SMALL, copies=3)).gpcs == 12


def test_all_violations_are_listed_slot_by_slot():
    """Three slices on one slot and a wrong start: each of the later ones is reported with its own slice."""
    pile = plan(BIG, SMALL, SMALL, SMALL, Slice(profile="2g.20gb", start=1))
    report = provision.verify(make_instance(), pile)
    assert [v.slice for v in report.violations if v.kind == "overlap"] == [2, 3]
    assert [v.slice for v in report.violations if v.kind == "start"] == [4]


def test_margins_are_fractions_of_the_limit():
    """A batch latency of 20 ms against 15 ms is a third over."""
    broken = plan(BIG, Slice(profile="1g.10gb", replicas=(replica(batch=8, processes=2),)))
    found = [v for v in provision.verify(make_instance(), broken).violations if v.kind == "latency"]
    assert [(v.value, v.limit, pytest.approx(1 / 3)) for v in found] == [(20.0, 15.0, found[0].margin)]


def test_fleet_limit_is_a_violation_of_the_whole_plan():
    """Two GPUs where the fleet has one."""
    limited = make_instance(fleet=[{"gpu": "a100-80gb", "count": 1}])
    report = provision.verify(limited, plan(BIG, SMALL, copies=2))
    assert kinds(report) == ["fleet"]
    assert (report.violations[0].value, report.violations[0].limit) == (2, 1)


def test_without_mps_a_slice_runs_one_process():
    """mps: false makes two processes a clients violation."""
    alone = make_instance(fleet=[{"gpu": "a100-80gb", "mps": False}])
    assert "clients" in kinds(provision.verify(alone, plan(BIG, SMALL)))


@pytest.mark.parametrize(
    ("asked", "holds"), [({"min_replicas": 2}, True), ({"min_replicas": 3}, False),
                         ({"max_replicas": 2}, True), ({"max_replicas": 1}, False),
                         ({"max_share_per_gpu": 0.5}, False), ({"max_share_per_gpu": 1.0}, True)],
)
def test_failure_tolerance_is_checked(asked, holds):
    """Two replicas on one GPU: limits count replicas, max_share_per_gpu the rate on a GPU."""
    one = make_instance(workloads=[{"name": "a", "model": "m", "slo_ms": 30.0, "rate_rps": 400.0} | asked])
    report = provision.verify(one, plan(BIG, SMALL))
    assert report.ok == holds
    assert set(kinds(report)) <= {"rate"}


def test_memory_of_a_fitted_model_is_checked():
    """A fitted network says how much memory processes take: too much is a violation, not an unknown point."""
    instance = provision.read("parvagpu-s1").replace(
        workloads=[{"name": "a", "model": "vgg19", "slo_ms": 60000.0, "rate_rps": 1.0}]
    )
    heavy = Slice(profile="1g.10gb", replicas=(replica(1.0, batch=256, processes=5),))
    assert kinds(provision.verify(instance, plan(heavy))) == ["memory"]


def shared_slice(*replicas, sm_share=1.0):
    """Scenario S1 with shared slices, and a plan of one 3g.40gb that so many replicas (workload, rate) share."""
    instance = provision.read("parvagpu-s1-shared")
    placed = tuple(Replica(workload=name, batch=1, sm_share=sm_share, rate_rps=rate) for name, rate in replicas)
    return instance, plan(Slice(profile="3g.40gb", replicas=placed))


def test_replicas_that_take_all_sms_in_turn_hold_the_slice_once_and_carry_their_rates():
    instance, both = shared_slice(("bert", 3.0), ("resnet50", 20.0))
    report = provision.verify(instance, both)
    assert report.external_fragmentation == pytest.approx(1 - 42 / 98)
    assert 0 < report.internal_slack < 1
    assert capacity_rps(instance, both, report.predictions) == {"bert": 3.0, "resnet50": 20.0}


@pytest.mark.parametrize(("share", "over"), [(0.5, False), (0.6, True)])
def test_shares_of_two_replicas_add_up_to_one_at_most(share, over):
    instance, both = shared_slice(("bert", 3.0), ("resnet50", 20.0), sm_share=share)
    assert ("capacity" in kinds(provision.verify(instance, both))) == over


def test_slices_of_unknown_workloads_are_told_apart():
    """One and two replicas of a workload that does not exist, on slices of one profile."""
    one, two = (Slice(profile="1g.10gb", start=at, replicas=(replica(workload="b"),) * many) for at, many in
                ((0, 1), (1, 2)))
    report = provision.verify(make_instance(), plan(BIG, one, two))
    assert [v.slice for v in report.violations if v.kind == "operating_point"] == [1, 2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_removing_any_replica_breaks_a_plan_without_slack(seed):
    """Every replica of a greedy plan carries rate: a plan without it is rejected."""
    instance = random_instance(seed, workloads=2, gpus=("a100-80gb",))
    good = provision.solve(instance, "greedy").plan
    at, position, _, gone = next(good.replicas())
    gpu = good.gpus[at]
    slices = tuple(piece for number, piece in enumerate(gpu.slices) if number != position)
    less = good.model_copy(
        update={"gpus": (*good.gpus[:at], gpu.model_copy(update={"slices": slices}), *good.gpus[at + 1:])}
    )
    assert "rate" in kinds(provision.verify(instance, less))
    assert gone.rate_rps > 0
