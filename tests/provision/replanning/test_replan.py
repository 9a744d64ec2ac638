"""Replanning: against brute force, against solving from scratch, level by level, and over hours of demand."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import replan_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from replan_oracle import tiny

import provision
from provision.cli import main
from provision.instances.files.demand import Demand, read_demand, two_waves, write_demand
from provision.instances.importers.servegen import import_servegen
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.plans.disturbance import disturbance, going_on
from provision.models.problem.objective import objective_of
from provision.replanning.replan import curve, replan
from provision.replanning.trace import ReplanPolicy, compare_policies, expected, simulate_trace, summary, window_weight
from provision.sweeps.parameters import changed
from provision.sweeps.safety import windows_carried

SERVEGEN = Path(__file__).resolve().parents[4] / "shared" / "data" / "demand" / "servegen" / "rates.csv"


@pytest.fixture(scope="module")
def s2():
    return provision.read("parvagpu-s2")


@pytest.fixture(scope="module")
def plan(s2):
    return provision.solve(s2).plan


rate = st.integers(5, 110).map(float)


@given(st.tuples(rate, rate), st.tuples(rate, rate), st.sampled_from([0.0, 0.01, 0.2, 1.5]))
@settings(max_examples=12)
def test_the_weighted_sum_is_that_of_brute_force(before, after, cost):
    running = provision.solve(tiny(before)).plan
    found = replan(tiny(after), running, cost)
    expected_sum = replan_oracle.cheapest(tiny(after), running, cost)
    if found.status == "optimal" and expected_sum is not None:
        assert found.bound <= expected_sum + 1e-9
        assert found.weighted == pytest.approx(expected_sum, abs=1e-4)


@given(st.floats(0.4, 1.8), st.sampled_from(["master", "greedy", "parvagpu"]))
@settings(max_examples=12)
def test_plans_hold_and_are_never_dearer_than_from_scratch_and_its_changes(factor, method):
    instance = provision.read("parvagpu-s2")
    running = provision.solve(instance, method).plan
    new = changed(instance, {"rate": factor})
    found, scratch = replan(new, running, gap=1e-4), provision.solve(new, "greedy")
    assert found.report.ok
    changes, cost = disturbance(running, scratch.plan), 0.02 * objective_of(new).weight(new.fleet[0])
    dearer = scratch.objective + cost * (changes.slices_destroyed + changes.replicas_started)
    assert found.weighted <= dearer * (1 + 1e-3) + 1e-9
    assert found.bound <= found.weighted * (1 + 1e-9)


def alone(rate_rps, profiles, policy=None):
    """One workload on A30s, two 2g slices of which run it."""
    table = {"version": 1, "name": "t", "kind": "measured-segments", "gpu": "a30",
             "models": {"a": {"points": profiles}}}
    work = [{"name": "a", "model": "a", "slo_ms": 100.0, "rate_rps": rate_rps}]
    instance = provision.Instance(version=1, name="x", fleet=[{"gpu": "a30"}], performance=table, workloads=work,
                                  policy=policy or {})
    slices = [{"profile": "2g.12gb", "start": start,
               "replicas": [{"workload": "a", "batch": 4, "rate_rps": rate_rps / 2}]} for start in (0, 2)]
    gpus = [{"gpu": "a30", "mig": True, "slices": slices}]
    return instance, provision.Plan(version=1, instance="x", gpus=gpus)


@pytest.mark.parametrize("short", [0, 5e-10, 3e-9, 1e-8, 1e-7, 1e-5])
def test_a_rate_is_carried_to_the_last_request(short):
    """Slices that stay carry 30 requests/s; a solver's tolerance would have them carry a millionth more."""
    instance, running = alone(30 * (1 + short), [("1g.6gb", 4, 1, 10.0, 20.0), ("2g.12gb", 4, 1, 15.0, 20.0)])
    found = replan(instance, running)
    assert found.report.ok and found.bound <= found.weighted
    assert (found.changes.replicas_started == 0) == (short < 1e-9)


def test_replicas_to_spare_go_on_unless_a_rule_forbids_it():
    """One slice carries 20 of 30 requests/s; to stop the other would free no GPU and touch the workload."""
    instance, running = alone(20.0, [("2g.12gb", 4, 1, 30.0, 20.0)])
    found = replan(instance, running)
    assert [one.rate_rps for _, _, _, one in found.plan.replicas()] == pytest.approx([10.0, 10.0])
    assert found.changes == (0, 0, 0, 0, 0, 0)
    one = instance.workloads[0].model_copy(update={"max_replicas": 1})
    kept = replan(instance.replace(workloads=[one]), running)
    assert [one.rate_rps for _, _, _, one in kept.plan.replicas()] == pytest.approx([20.0])


def test_a_papers_procedure_that_finds_no_plan_says_why():
    """Four GPUs do not carry thirty times the rates: no time limit would help."""
    instance = provision.read("inss-six").with_policy(latency_budget="full_batches")
    running = provision.solve(instance, "inss", replay=False).plan
    found = replan(changed(instance, {"rate": 30}), running, method="inss")
    assert found.plan is None and found.status == "unknown"
    assert "alexnet" in found.reason and "use solve" in found.reason


def test_queueing_counts_the_rate_up_to_which_p99_holds():
    """Two slices of 100 requests/s each carry 120 in time, and nowhere near 190."""
    for rate_rps, stays in ((120.0, True), (190.0, False)):
        instance, running = alone(rate_rps, [("2g.12gb", 4, 1, 100.0, 20.0)], {"latency_budget": "queueing"})
        found = replan(instance, running)
        assert found.report.ok and (found.changes.replicas_started == 0) == stays
        assert (found.staying == 1) == stays
        demand = Demand(np.array([0.0, 60.0]), ("a",), np.array([[120.0], [rate_rps]]))
        assert windows_carried(instance, demand, running) == (1 if stays else 0.5)


def test_gpus_that_the_fleet_has_not_are_counted_and_not_given_up_unasked():
    instance, running = alone(20.0, [("2g.12gb", 4, 1, 15.0, 20.0)])
    other = running.model_copy(update={"gpus": (running.gpus[0].model_copy(update={"gpu": "a100-80gb"}),)})
    assert replan(instance, other, allow="replicas").status.startswith("infeasible: 2 slices stand on GPUs")
    found = replan(instance, other, 0.1)
    assert found.changes.slices_destroyed == 2 and found.bound == pytest.approx(found.weighted, abs=1e-5)


@pytest.mark.parametrize("places", [[("2g.12gb", 0), ("2g.12gb", 0)], [("4g.24gb", 0), ("2g.12gb", 0)]])
def test_slices_that_cannot_stand_together_are_refused(places):
    instance, running = alone(20.0, [("2g.12gb", 4, 1, 15.0, 20.0)])
    slices = tuple(provision.Slice(profile=profile, start=start) for profile, start in places)
    broken = running.model_copy(update={"gpus": (running.gpus[0].model_copy(update={"slices": slices}),)})
    with pytest.raises(InputError, match="cannot stand together"):
        replan(instance, broken)


def test_nothing_changes_when_demand_does_not(s2, plan):
    found = replan(s2, plan)
    assert found.changes == (0, 0, 0, 0, 0, 0) and found.staying == 1.0


def test_levels_allow_more_and_more(s2, plan):
    less, more = changed(s2, {"rate": 0.6}), changed(s2, {"rate": 1.5})
    batches, replicas, slices = (replan(less, plan, 1e-4, allow) for allow in ("batches", "replicas", "slices"))
    assert batches.changes[:3] == (0, 0, 0) and replicas.changes.slices_destroyed == 0
    assert batches.objective >= replicas.objective >= slices.objective
    assert slices.objective < batches.objective
    assert replan(more, plan, allow="batches").status == "infeasible"
    assert replan(more, plan, allow="replicas").changes.slices_destroyed == 0


def test_one_workloads_slo_disturbs_that_workload_alone(s2, plan):
    """ParvaGPU's section III-F: a changed SLO touches the segments of its workload."""
    slower = changed(s2, {"slo.resnet50": 0.6})
    found = replan(slower, plan, 0.5)
    on = going_on(plan, found.plan)
    others = [(at, position) for at, position, _, replica in found.plan.replicas() if replica.workload != "resnet50"]
    assert len(set(others) - on) <= 1


def test_a_longer_latency_budget_is_used_by_batches_alone(s2, plan):
    rates = np.arange(1.0, 1.4, 0.01).tolist()
    *_, found = (one for rate in rates
                 if (one := replan(changed(s2, {"slo": 1.5, "rate": rate}), plan, allow="batches")).plan)
    assert found.status == "optimal" and found.changes.batch_changes > 0
    assert found.changes[:3] == (0, 0, 0)


def test_the_curve_trades_cost_for_changes(s2, plan):
    found = curve(changed(s2, {"rate": 0.4}), plan)
    moved = [one.changes.slices_destroyed + one.changes.replicas_started for _, one in found]
    costs = [one.objective for _, one in found]
    assert len(found) > 1 and all(a > b for a, b in pairwise(moved)) and all(a < b for a, b in pairwise(costs))
    none = curve(changed(s2, {"slo": 0.01}), plan)
    assert len(none) == 1 and none[0][1].plan is None


def test_a_plan_that_holds_and_is_best_keeps_its_shares_of_the_traffic(s2, plan):
    found = replan(s2, plan)
    assert found.status == "optimal" and found.plan.gpus == plan.gpus and found.changes == (0, 0, 0, 0, 0, 0)
    less = replan(changed(s2, {"rate": 0.99}), plan, allow="batches").plan
    for before, after in zip(plan.replicas(), less.replicas(), strict=True):
        assert after[-1].rate_rps == pytest.approx(0.99 * before[-1].rate_rps)


def test_disturbance_counts_what_it_says(plan):
    first = plan.gpus[0]
    fewer = plan.model_copy(update={"gpus": plan.gpus[1:]})
    assert disturbance(plan, plan) == (0, 0, 0, 0, 0, 0)
    assert disturbance(plan, fewer).slices_destroyed == len(first.slices) and disturbance(plan, fewer).gpus_removed == 1
    again = disturbance(fewer, plan)
    assert (again.slices_created, again.gpus_added) == (len(first.slices), 1)
    shuffled = plan.model_copy(update={"gpus": plan.gpus[::-1]})
    assert disturbance(plan, shuffled) == (0, 0, 0, 0, 0, 0)
    replica = first.slices[0].replicas[0].model_copy(update={"batch": 1})
    piece = first.slices[0].model_copy(update={"replicas": (replica,)})
    other = first.model_copy(update={"slices": (piece, *first.slices[1:])})
    assert disturbance(plan, plan.model_copy(update={"gpus": (other, *plan.gpus[1:])})).batch_changes == 1


def test_what_replanning_cannot_do_is_refused(s2, plan):
    fleet = (s2.fleet[0].model_copy(update={"count": 9}),)
    with pytest.raises(UnsupportedError, match="max_throughput has no cost"):
        replan(s2.replace(objective="max_throughput", fleet=fleet), plan)
    with pytest.raises(InputError, match="change cost"):
        replan(s2, plan, -1.0)
    with pytest.raises(InputError, match="time limit"):
        replan(s2, plan, time_limit_s=0)
    with pytest.raises(InputError, match="planned at once"):
        replan(changed(s2, {"rate": 1e300}), plan)
    with pytest.raises(InputError, match="allow"):
        replan(s2, plan, allow="all")
    assert replan(changed(s2, {"slo": 0.01}), plan).status.startswith("infeasible")
    assert replan(changed(s2, {"count.a100-80gb": 1, "rate": 3}), plan).plan is None


def test_policies_on_two_waves(s2):
    demand = two_waves(s2)
    demand = Demand(demand.times_s[::9], demand.workloads, demand.rates_rps[::9])
    policies = [ReplanPolicy("replan"), ReplanPolicy("auto", "auto"), ReplanPolicy("static", "static"),
                ReplanPolicy("late", "greedy", forecast="last", delay_s=12.5)]
    rows, windows = compare_policies(s2, demand, policies)
    ours, scratch, static, late = rows
    assert ours["gpu_hours"] <= scratch["gpu_hours"] * 1.03
    assert ours["slices_destroyed"] + ours["slices_created"] < scratch["slices_destroyed"] + scratch["slices_created"]
    assert ours["windows_under_capacity"] == scratch["windows_under_capacity"] == 0
    assert static["gpu_hours"] >= ours["gpu_hours"] and static["replicas_started"] == 0
    assert late["windows_under_capacity"] > 0 and late["not_served"] > 0
    assert all(len(found) == len(demand.times_s) for found in windows.values())


def test_changes_in_place_cost_service_and_in_the_background_they_do_not(s2):
    rates = np.array([[one.rate_rps for one in s2.workloads]] * 2) * [[1.0], [0.5]]
    demand = Demand(np.array([0.0, 100.0]), tuple(one.name for one in s2.workloads), rates)
    inplace = simulate_trace(s2, demand, ReplanPolicy("p", "greedy", delay_s=50.0))
    behind = simulate_trace(s2, demand, ReplanPolicy("p", "greedy", delay_s=50.0, background=True))
    assert inplace[1].served < 1 and behind[1].served == pytest.approx(1)


def test_demand_not_served_is_told_of_all_demand(s2):
    """One tenth of a busy window is more than half of a quiet one."""
    busy, quiet = simulate_trace(s2, two_windows(s2), ReplanPolicy("p", "greedy"))
    assert busy.demand_rps == pytest.approx(sum(one.rate_rps for one in s2.workloads))
    found = [replace(busy, demand_rps=90.0, served=0.9), replace(quiet, demand_rps=10.0, served=0.5)]
    assert summary(found, 60.0, 0.0)["not_served"] == pytest.approx(0.14)


def two_windows(instance):
    rates = np.array([[one.rate_rps for one in instance.workloads]] * 2)
    return Demand(np.array([0.0, 60.0]), tuple(one.name for one in instance.workloads), rates)


def test_replays_take_windows_of_one_length_also_without_any_demand(s2):
    names, rates = tuple(one.name for one in s2.workloads), np.zeros((3, len(s2.workloads)))
    quiet = simulate_trace(s2, Demand(np.arange(3) * 60.0, names, rates), ReplanPolicy("p"))
    assert all(one.served == 1 and not one.under_capacity for one in quiet)
    with pytest.raises(InputError, match="nothing follows 60 s after 60 s"):
        simulate_trace(s2, Demand(np.array([0.0, 60.0, 240.0]), names, rates), ReplanPolicy("p"))


def test_forecasts():
    demand = Demand(np.arange(3) * 10.0, ("a",), np.array([[4.0], [8.0], [2.0]]))
    assert expected(demand, "known")[:, 0].tolist() == [4, 8, 2]
    assert expected(demand, "last")[:, 0].tolist() == [4, 4, 8]
    weight = 1 - (39 / 41) ** 20
    assert expected(demand, "ewma")[:, 0] == pytest.approx([4, 4, 4 + 4 * weight])
    assert window_weight(20.0) == pytest.approx(0.865, abs=5e-4)
    with pytest.raises(InputError, match="forecast"):
        expected(demand, "luck")


@pytest.mark.skipif(not SERVEGEN.is_file(), reason="ServeGen's rates are not beside the checkout")
def test_an_hour_of_servegen():
    instance, demand = import_servegen(SERVEGEN, 40, 0, 6)
    assert len(instance.workloads) == 40 and demand.rates_rps.shape == (6, 40) and demand.window_s == 600
    policies = [ReplanPolicy("replan"), ReplanPolicy("auto", "auto")]
    rows, _ = compare_policies(instance, demand, policies, time_limit_s=60)
    assert rows[0]["gpu_hours"] <= 1.03 * rows[1]["gpu_hours"] and rows[0]["windows_under_capacity"] == 0
    with pytest.raises(InputError, match="windows"):
        import_servegen(SERVEGEN, 40, 0, 10**6)


def test_commands(capsys, tmp_path):
    running, out, png = tmp_path / "plan.json", tmp_path / "new.json", tmp_path / "trace.png"
    assert main(["solve", "parvagpu-s2", "--out", str(running)]) == 0
    capsys.readouterr()
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "1.4", "--out", str(out)]) == 0
    assert "Moves: " in capsys.readouterr().out and out.exists()
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "0.7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] in ("optimal", "feasible")
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "2", "--allow", "batches"]) == 1
    for bad in (["--rate", "-2"], ["--rate", "nan"], ["--time-limit", "nan"], ["--curve", "--out", "new.json"],
                ["--query", "up"], ["--method", "parvagpu", "--change-cost", "1"],
                ["--method", "parvagpu", "--time-limit", "5"]):
        assert main(["replan", "parvagpu-s2", str(running), *bad]) == 2
    demand = tmp_path / "demand.csv"
    demand.write_text("time_s,workload,rate_rps\n" + "".join(f"{at * 60},bert,{at * 9}\n" for at in range(4)))
    flags = ["--policies", "replan,greedy", "--png", str(png), "--out", str(tmp_path / "w.csv")]
    assert main(["simulate-trace", "parvagpu-s2", str(demand), *flags]) == 0
    assert png.read_bytes().startswith(b"\x89PNG") and len((tmp_path / "w.csv").read_text().splitlines()) == 9
    capsys.readouterr()
    for bad in (["--policies", "luck"], ["--every", "0"], ["--delay", "-1"], ["--delay", "nan"], ["--headroom", "nan"],
                ["--headroom", "inf"], ["--time-limit", "0"], ["--out", str(demand)]):
        assert main(["simulate-trace", "parvagpu-s2", str(demand), *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    demand.write_text("time_s,workload,rate_rps\n0,nobody,3\n60,nobody,4\n")
    assert main(["simulate-trace", "parvagpu-s2", str(demand)]) == 2


def test_demand_goes_out_and_comes_back(s2, tmp_path):
    demand = two_waves(s2)
    write_demand(demand, tmp_path / "d.csv")
    again = read_demand(tmp_path / "d.csv")
    assert dict(zip(again.workloads, again.rates_rps.T.tolist(), strict=True)) == dict(
        zip(demand.workloads, demand.rates_rps.T.tolist(), strict=True))
    assert again.times_s.tolist() == demand.times_s.tolist()
    late = Demand(np.array([1732190400.0, 1732190460.0]), ('a,"b"', "c"), np.array([[1.0, 2.0], [0.0, 3.5]]))
    write_demand(late, tmp_path / "late.csv")
    again = read_demand(tmp_path / "late.csv")
    assert again.times_s.tolist() == late.times_s.tolist() and again.workloads == late.workloads
    assert again.rates_rps.tolist() == late.rates_rps.tolist()


def test_rates_too_small_to_plan_are_none(s2):
    demand = Demand(np.array([0.0]), ("bert",), np.array([[1e-12]]))
    assert demand.instance(s2, demand.rates_rps[0]).workload["bert"].rate_rps == 0
