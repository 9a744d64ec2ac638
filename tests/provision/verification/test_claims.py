"""What is called optimal, or verified, holds: small instances on which it did not, and the files of an audit."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.search.assemble import Layout, assemble
from provision.formulations.search.segments import best_segments
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.performance.operating_points import Member, Prediction
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.traffic.queue_replays import late_by_part
from provision.models.traffic.queueing import Queueing
from provision.models.traffic.rule import Traffic
from provision.verification.second import second_opinion

AUDIT = Path(__file__).resolve().parents[4] / "shared/data/audit"


def audited(name):
    """A file of the audit; skips without it."""
    if not AUDIT.exists():
        pytest.skip("needs the audit's files in shared/data")
    return AUDIT / f"{name}.yaml"


def tabulated(points, slo_ms, rate_rps, **further):
    """One workload on T4s with a measured table."""
    table = {"version": 1, "name": "table", "kind": "measured-segments", "gpu": "t4",
             "models": {"m": {"points": points}}}
    workload = {"name": "w", "model": "m", "slo_ms": slo_ms, "rate_rps": rate_rps}
    return Instance(version=2, name="claims", fleet=[{"gpu": "t4", "price_per_hour": 0.5}],
                    performance=[MeasuredSegments(**table | further)], workloads=[workload])


def one_gpu(instance, batch, processes, rate_rps):
    """The plan of one GPU with one replica of the only workload."""
    replica = {"workload": instance.workloads[0].name, "batch": batch, "processes": processes, "rate_rps": rate_rps}
    gpu = {"gpu": "t4", "mig": False, "slices": [{"profile": "whole", "start": 0, "replicas": [replica]}]}
    return Plan(version=1, instance=instance.name, gpus=[gpu])


UNBATCHED = [["whole", 1, 1, 30.0, 33.3], ["whole", 4, 1, 200.0, 20.0]]


def test_a_replica_is_judged_by_the_longest_of_its_batches():
    """A batch of 1 takes 33 ms, of 4 20 ms: 30 ms are too little for whatever starts before it is full."""
    few = tabulated(UNBATCHED, 30, 2)
    assert provision.solve(few).status == "infeasible"
    assert not provision.verify(few, one_gpu(few, 4, 1, 2.0)).ok
    enough = provision.solve(tabulated(UNBATCHED, 100, 8))
    assert enough.status == "optimal" and enough.verified and not enough.replay.late
    [predicted] = enough.report.predictions
    assert predicted.latency_ms == pytest.approx(33.3, abs=0.1)


def test_half_slo_judges_the_planned_batch_as_its_papers_do():
    instance = tabulated(UNBATCHED, 45, 2).with_policy(latency_budget="half_slo")
    assert provision.verify(instance, one_gpu(instance, 4, 1, 2.0)).ok


SERIES = st.lists(st.tuples(st.integers(1, 40), st.floats(1, 50), st.floats(1, 50)), min_size=1, max_size=5,
                  unique_by=lambda row: row[0])


@settings(max_examples=60)
@given(SERIES, st.booleans())
def test_arrays_and_scalars_find_the_same_longest_batches(rows, between):
    """Of tables that are not monotone; none of the sizes up to a batch takes longer than what it is judged by."""
    points = [["whole", batch, 1, 1000 * batch / hold, hold + extra] for batch, hold, extra in rows]
    error = {"mean": 0.1, "p95": 0.1, "max": 0.1, "points": 3, "margin": 0.07}
    [data] = tabulated(points, 99, 1, **({"between_batches": error} if between else {})).performance
    found = data.longest_points("m", "whole")

    def predicted(size, partly_filled):
        return data.predict("whole", [Member("m", size, 1, 1.0, partly_filled=partly_filled)])[0]

    for batch, latency_ms, rps in zip(found.batch.tolist(), found.latency_ms, found.throughput_rps, strict=True):
        one = predicted(batch, True)
        assert (one.latency_ms, one.throughput_rps) == pytest.approx((latency_ms, rps))
        smaller = [other for size in range(1, batch + 1) if (other := predicted(size, False))]
        assert latency_ms == pytest.approx(max(other.latency_ms for other in smaller))
    assert np.isin(data.operating_points("m", "whole").batch, found.batch).all()


@pytest.mark.parametrize(("slo_ms", "rate_rps"), [(25, 20), (24, 2)])
def test_audit_smaller_batches_that_take_longer(slo_ms, rate_rps):
    instance = provision.read(audited("r1_unbatched"))
    workload = instance.workloads[0].model_copy(update={"slo_ms": slo_ms, "rate_rps": rate_rps})
    found = provision.solve(instance.replace(workloads=[workload]), time_limit_s=5)
    assert found.status == "optimal" and not found.replay.late


LARGE = [["whole", 2048, 4, 81920.0, 100.0]]


def test_batches_beyond_the_table_of_queues_need_the_patience_of_as_many_arrivals():
    """143 requests/s on one replica of batch 2048 are late: its queue is told apart from that of batch 256."""
    instance = tabulated(LARGE, 120, 143)
    alone = one_gpu(instance, 2048, 4, 143.0)
    assert provision.simulate(instance, alone, 60, 1).late
    assert not provision.verify(instance, alone).ok


def test_audit_batches_above_256():
    found = provision.solve(provision.read(audited("r2_large_batch")), time_limit_s=5)
    assert found.verified and not found.replay.late


@pytest.mark.parametrize(("name", "optimum"), [
    ("r0_warm", 2.44), ("r3_survive_crash", 4.88), ("r4_share_gpulets_crash", 4.0), ("r4_survive_gpulets", 4.0)])
def test_audit_options_together(name, optimum):
    """Which ended in errors; in processes that have solved nothing yet tests of all options solve the like."""
    found = provision.solve(provision.read(audited(name)), time_limit_s=30)
    assert found.verified and found.objective == pytest.approx(optimum) and found.status == "optimal"


@pytest.mark.parametrize("name", ["r7_share_methoderror", "r7b_share_methoderror"])
def test_audit_options_together_that_no_bound_meets(name):
    found = provision.solve(provision.read(audited(name)), time_limit_s=3)
    assert found.verified and (found.bound is None or found.bound <= found.objective * (1 + 1e-9))


def test_segments_leave_shared_slices_their_part_of_what_a_gpu_may_carry():
    """A workload with half of its rate on each of two GPUs, on one of them in a shared slice and in a segment."""
    instance = provision.read("parvagpu-s1").with_policy(share_slices=True)
    few = [one.model_copy(update={"max_share_per_gpu": 0.5}) for one in instance.workloads[:2]]
    instance = instance.replace(workloads=few)
    segments = best_segments(instance)
    smallest = next(at for at, one in enumerate(segments.slice_types) if one.compute == 1)
    first, second = (instance.planned_rps(one) for one in few)
    shared = [Replica(workload=few[at].name, batch=1, rate_rps=rate) for at, rate in ((0, 0.3 * first), (1, second))]
    layouts = [Layout(0, ((smallest, 2), (smallest, 0))), Layout(0, ((smallest, 0),))]
    plan = assemble(instance, segments, layouts, "test", [tuple(shared)])
    carried = [sum(one.rate_rps for at, _, _, one in plan.replicas() if (at, one.workload) == (gpu, few[0].name))
               for gpu in (0, 1)]
    assert carried == pytest.approx([0.5 * first, 0.5 * first])


SHARED = {"version": 2, "name": "over", "policy": {"latency_budget": "half_slo", "share_slices": True},
          "fleet": [{"gpu": "a100-80gb", "price_per_hour": 4.0}], "performance": ["parvagpu-a100"]}


def shared_plan(*replicas):
    """The plan of one small slice that some replicas share, each (workload, batch, rate)."""
    held = [{"workload": name, "batch": batch, "rate_rps": rate} for name, batch, rate in replicas]
    slices = [{"profile": "1g.10gb", "start": 0, "replicas": held}]
    return Plan(version=1, instance="over", gpus=[{"gpu": "a100-80gb", "mig": True, "slices": slices}])


def test_a_plan_that_routes_more_is_accepted_only_if_it_holds_at_the_rates_asked_for():
    """Rates are weights: 5 % more fill batches of 3 where the rates asked for fill batches of 2."""
    workloads = [{"name": "inc", "model": "inceptionv3", "slo_ms": 40.88, "rate_rps": 47.46},
                 {"name": "o", "model": "mobilenetv2", "slo_ms": 71.2, "rate_rps": 38.59}]
    instance = Instance.model_validate({**SHARED, "workloads": workloads})
    exact, more = (provision.verify(instance, shared_plan(("inc", 3, 47.46 * over), ("o", 8, 38.59)))
                   for over in (1.0, 1.05))
    assert not exact.ok and not more.ok


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["inceptionv3", "mobilenetv2", "vgg16", "bert"]), st.sampled_from(
    [1, 2, 3, 4, 8, 16]), st.floats(1, 120), st.floats(20, 200)), min_size=2, max_size=3), st.floats(0.05, 1))
def test_no_lower_rate_takes_longer(drawn, part):
    """On slices that networks share: what holds at some rates holds at all lower ones."""
    [data] = Instance.model_validate(
        {**SHARED, "workloads": [{"name": "w", "model": "bert", "slo_ms": 99, "rate_rps": 1}]}).performance
    full = [Member(model, batch, 1, 1.0, rate, fill_ms=fill) for model, batch, rate, fill in drawn]
    less = [one._replace(rate_rps=one.rate_rps * part) for one in full]
    for most, fewer in zip(data.predict("1g.10gb", full), data.predict("1g.10gb", less), strict=True):
        assert fewer.latency_ms <= most.latency_ms * (1 + 1e-9)
        assert fewer.throughput_rps >= most.throughput_rps * (1 - 1e-9)


def test_audit_a_plan_that_routes_more_than_is_asked_for():
    instance, plan = provision.read(audited("r6_overroute")), Plan.model_validate_json(
        (AUDIT / "r6_plan.json").read_text())
    asked = {one.name: one.rate_rps for one in instance.workloads}
    exact = plan.with_replicas(lambda one: one.model_copy(update={"rate_rps": asked[one.workload]}))
    assert not provision.verify(instance, plan).ok and not provision.verify(instance, exact).ok
    found = provision.solve(instance, time_limit_s=2)
    assert found.verified and found.objective == 4


def test_audit_stages_that_come_in_bursts():
    """A plan made for single arrivals is rejected, though it keeps every SLO of the workloads by themselves."""
    instance = provision.read(audited("r5_workflow_bursts"))
    apart = provision.solve(instance.replace(workflows=()), time_limit_s=4, replay=False)
    assert apart.verified and not provision.verify(instance, apart.plan).ok
    assert provision.simulate(instance, apart.plan, 20, 1).late
    found = provision.solve(instance, time_limit_s=10)
    assert found.verified and found.objective == apart.objective and not found.replay.late
    assert found.status in ("optimal", "feasible")


CHAIN = {"version": 2, "name": "chain", "fleet": [{"gpu": "v100", "price_per_hour": 2.5}],
         "performance": ["igniter-v100"], "workflows": [{"name": "flow", "stages": [["a"], ["b"]]}],
         "workloads": [{"name": "a", "model": "ssd", "slo_ms": 150, "rate_rps": 60},
                       {"name": "b", "model": "resnet50", "slo_ms": 30, "rate_rps": 60}]}
TURNS = CHAIN | {"fleet": [{"gpu": "rtx2080ti", "price_per_hour": 2.0}], "performance": ["gpulets-2080ti"],
                 "workloads": [{"name": "a", "model": "vgg16", "slo_ms": 400, "rate_rps": 60},
                               {"name": "b", "model": "resnet50", "slo_ms": 90, "rate_rps": 60}]}
SLICES = CHAIN | {"fleet": [{"gpu": "a100-80gb", "price_per_hour": 4.0}], "performance": ["parvagpu-a100"],
                  "policy": {"share_slices": True},
                  "workloads": [{"name": "a", "model": "bert", "slo_ms": 900, "rate_rps": 60},
                                {"name": "b", "model": "densenet121", "slo_ms": 60, "rate_rps": 60}]}


@pytest.mark.parametrize("content", [CHAIN, TURNS, SLICES], ids=["interference", "turns", "slices"])
@pytest.mark.parametrize("method", ["auto", "master"])
def test_stages_on_shared_gpus_are_planned_for_bursts(content, method):
    instance = Instance.model_validate(content)
    found = provision.solve(instance, method, time_limit_s=4)
    assert found.verified and not found.replay.late
    assert second_opinion(instance, found.plan).verdict != "violated"


def test_larger_bursts_never_carry_more():
    """So a plan without bursts costs no more than one with them: its bound is one for both."""
    batch, hold, budget = np.meshgrid(2 ** np.arange(8), [2.0, 9.0, 30.0], [10.0, 35.0, 200.0])
    for processes in (1, 3):
        least = np.full(batch.shape, np.inf)
        for burst in (1, 4, 32):
            rule = Queueing(Traffic(burst=burst))
            carried = rule.capacity_rps(batch, processes, hold, hold, budget)
            least = np.minimum(least, Queueing().capacity_rps(batch, processes, hold, hold, budget))
            assert (carried <= least).all()
            with np.errstate(divide="ignore"):
                room = rule.room_ms(batch, carried, 0.0, budget, processes)
            assert (room[carried > 0] >= hold[carried > 0] * (1 - 1e-6)).all()


@pytest.mark.parametrize(("batch", "processes", "burst"), [(4, 1, 4), (4, 2, 8), (16, 1, 4), (8, 3, 16), (2, 2, 5)])
@pytest.mark.parametrize("hold_ms", [8.0, 25.0])
def test_bursts_at_the_highest_rate_are_in_time(batch, processes, burst, hold_ms):
    """Replayed, each burst at one moment; the verdict on the rate, and the bends between hold times, agree with it."""
    rule, budget_ms = Queueing(Traffic(burst=burst)), 100.0
    rps = float(rule.capacity_rps(batch, processes, hold_ms, hold_ms, budget_ms))
    moments = np.random.default_rng(3).exponential(1000 * burst / rps, 40_000).cumsum()
    wait = budget_ms / hold_ms - 1
    late = late_by_part(np.repeat(moments, burst) / hold_ms, batch, processes, wait, 1 + wait, 1.0, np.ones(1), 8)
    assert late.mean() <= 0.0105 + 2 * late.std() / 8**0.5
    found = Prediction(hold_ms, 1000 * batch * processes / hold_ms, None)
    assert rule.tail_ms(batch, processes, found, rps * (1 - 1e-6), budget_ms - hold_ms) <= budget_ms * (1 + 1e-6)
    assert rule.tail_ms(batch, processes, found, rps * 1.05, budget_ms - hold_ms) > budget_ms
    if processes == 1:
        bent = rule.bends(batch, 0.0, budget_ms)
        inside = np.interp(hold_ms, bent.hold_ms, 1 / bent.rps)
        assert inside >= 1 / rps * (1 - 1e-6)
