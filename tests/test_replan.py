"""Replanning: against brute force, against solving from scratch, level by level, and over hours of demand."""

import http.server
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import replan_oracle
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.cli import main
from provision.instances.demand import Demand, read_demand, two_waves, write_demand
from provision.instances.servegen import import_servegen
from provision.models.disturbance import disturbance, going_on
from provision.models.errors import InputError, UnsupportedError
from provision.replan import curve, replan
from provision.replanning.forecast import expected
from provision.replanning.prometheus import rates_now
from provision.replanning.trace import Policy, compare_policies, simulate_trace
from provision.sweeps.parameters import changed

SERVEGEN = Path(__file__).resolve().parents[2] / "shared" / "data" / "demand" / "servegen" / "rates.csv"


@pytest.fixture(scope="module")
def s2():
    return provision.read("parvagpu-s2")


@pytest.fixture(scope="module")
def plan(s2):
    return provision.solve(s2).plan


def tiny(rates):
    """Two workloads on A30s, which have few states, at the rates given."""
    points = {
        "a": [("1g.6gb", 4, 1, 40.0, 20.0), ("2g.12gb", 4, 1, 70.0, 12.0), ("2g.12gb", 8, 2, 90.0, 30.0),
              ("4g.24gb", 8, 1, 150.0, 15.0)],
        "b": [("1g.6gb", 2, 1, 25.0, 30.0), ("2g.12gb", 2, 1, 60.0, 20.0), ("4g.24gb", 4, 2, 110.0, 25.0)],
    }
    table = {"version": 1, "name": "tiny", "kind": "measured-segments", "gpu": "a30",
             "models": {name: {"points": rows} for name, rows in points.items()}}
    workloads = [{"name": name, "model": name, "slo_ms": 80.0, "rate_rps": rate, "min_replicas": 0}
                 for name, rate in zip("ab", rates, strict=True)]
    return provision.Instance(version=1, name="tiny", fleet=[{"gpu": "a30"}], performance=table, workloads=workloads)


rate = st.integers(5, 110).map(float)


@given(st.tuples(rate, rate), st.tuples(rate, rate), st.sampled_from([0.0, 0.01, 0.2, 1.5]))
@settings(max_examples=20, deadline=None)
def test_the_weighted_sum_is_that_of_brute_force(before, after, cost):
    running = provision.solve(tiny(before)).plan
    found = replan(tiny(after), running, cost)
    expected_sum = replan_oracle.cheapest(tiny(after), running, cost)
    if found.status == "optimal" and expected_sum is not None:
        assert found.bound <= expected_sum + 1e-9
        assert found.weighted == pytest.approx(expected_sum, abs=1e-4)


@given(st.floats(0.4, 1.8), st.sampled_from(["partition-counts", "greedy", "parvagpu"]))
@settings(max_examples=12, deadline=None)
def test_plans_hold_and_are_never_dearer_than_from_scratch_and_its_changes(factor, method):
    instance = provision.read("parvagpu-s2")
    running = provision.solve(instance, method).plan
    new = changed(instance, {"rate": factor})
    found, scratch = replan(new, running, gap=1e-4), provision.solve(new, "greedy")
    assert found.report.ok
    changes, cost = disturbance(running, scratch.plan), 0.02 * new.weight(new.fleet[0])
    dearer = scratch.objective + cost * (changes.slices_destroyed + changes.replicas_started)
    assert found.weighted <= dearer * (1 + 1e-3) + 1e-9
    assert found.bound <= found.weighted * (1 + 1e-9)


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
    found = replan(changed(s2, {"slo": 1.5, "rate": 1.02}), plan, allow="batches")
    assert found.status == "optimal" and found.changes.batch_changes > 0
    assert found.changes[:3] == (0, 0, 0)


def test_the_curve_trades_cost_for_changes(s2, plan):
    found = curve(changed(s2, {"rate": 0.7}), plan, time_limit_s=20)
    moved = [one.changes.slices_destroyed + one.changes.replicas_started for _, one in found]
    costs = [one.objective for _, one in found]
    assert moved == sorted(moved, reverse=True) and costs == sorted(costs) and len(found) > 1


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
    shared = provision.read("igniter-testbed-12")
    with pytest.raises(UnsupportedError, match="isolated"):
        replan(shared, plan)
    with pytest.raises(InputError, match="change cost"):
        replan(s2, plan, -1.0)
    with pytest.raises(InputError, match="allow"):
        replan(s2, plan, allow="all")
    assert replan(changed(s2, {"slo": 0.01}), plan).status.startswith("infeasible")
    assert replan(changed(s2, {"count.a100-80gb": 1, "rate": 3}), plan).plan is None


def test_policies_on_two_waves(s2):
    demand = two_waves(s2)
    demand = Demand(demand.times_s[::9], demand.workloads, demand.rates_rps[::9])
    policies = [Policy("replan"), Policy("auto", "auto"), Policy("static", "static"),
                Policy("late", "greedy", forecast="last", delay_s=12.5)]
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
    inplace = simulate_trace(s2, demand, Policy("p", "greedy", delay_s=50.0))
    behind = simulate_trace(s2, demand, Policy("p", "greedy", delay_s=50.0, background=True))
    assert inplace[1].served < 1 and behind[1].served == pytest.approx(1)


def test_forecasts():
    demand = Demand(np.arange(3) * 10.0, ("a",), np.array([[4.0], [8.0], [2.0]]))
    assert expected(demand, "known")[:, 0].tolist() == [4, 8, 2]
    assert expected(demand, "last")[:, 0].tolist() == [4, 4, 8]
    assert expected(demand, "ewma")[:, 0].tolist() == [4, 4, 6]
    with pytest.raises(InputError, match="forecast"):
        expected(demand, "luck")


@pytest.mark.skipif(not SERVEGEN.is_file(), reason="ServeGen's rates are not beside the checkout")
def test_two_hours_of_servegen():
    instance, demand = import_servegen(SERVEGEN, 40, 0, 12)
    assert len(instance.workloads) == 40 and demand.rates_rps.shape == (12, 40) and demand.window_s == 600
    rows, _ = compare_policies(instance, demand, [Policy("replan"), Policy("auto", "auto")], time_limit_s=3)
    assert rows[0]["gpu_hours"] <= 1.03 * rows[1]["gpu_hours"] and rows[0]["windows_under_capacity"] == 0
    with pytest.raises(InputError, match="windows"):
        import_servegen(SERVEGEN, 40, 0, 10**6)


def test_commands(capsys, tmp_path):
    running, out, png = tmp_path / "plan.json", tmp_path / "new.json", tmp_path / "trace.png"
    assert main(["solve", "parvagpu-s2", "--out", str(running)]) == 0
    capsys.readouterr()
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "1.4", "--out", str(out)]) == 0
    assert "changes:" in capsys.readouterr().out and out.exists()
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "0.7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] in ("optimal", "feasible")
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "2", "--allow", "batches"]) == 1
    assert main(["replan", "parvagpu-s2", str(running), "--rate", "-2"]) == 2
    demand = tmp_path / "demand.csv"
    demand.write_text("time_s,workload,rate_rps\n" + "".join(f"{at * 60},bert,{at * 9}\n" for at in range(4)))
    flags = ["--policies", "replan,greedy", "--png", str(png), "--out", str(tmp_path / "w.csv")]
    assert main(["simulate-trace", "parvagpu-s2", str(demand), *flags]) == 0
    assert png.read_bytes().startswith(b"\x89PNG") and len((tmp_path / "w.csv").read_text().splitlines()) == 9
    capsys.readouterr()
    for bad in (["--policies", "luck"], ["--every", "0"], ["--delay", "-1"], ["--out", str(demand)]):
        assert main(["simulate-trace", "parvagpu-s2", str(demand), *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    demand.write_text("time_s,workload,rate_rps\n0,nobody,3\n60,nobody,4\n")
    assert main(["simulate-trace", "parvagpu-s2", str(demand)]) == 2


def answering(body, code=200, wait_s=0):
    """A server that answers everything with one body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(wait_s)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def vector(*pairs):
    rows = [{"metric": {"model": name}, "value": [0, value]} for name, value in pairs]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


def test_rates_from_a_server(s2):
    server, url = answering(vector(("bert", "12.5"), ("something", "3")))
    assert rates_now(url, s2) == {"bert": 12.5}
    server.shutdown()


@pytest.mark.parametrize("body, code, problem", [
    ("<html>", 200, "no vector"), ("{}", 200, "no vector"), ('{"data": {"result": 3}}', 200, "no vector"),
    (vector(("bert", "NaN")), 200, "no rate"), (vector(("bert", "-1")), 200, "no rate"),
    (vector(("other", "1")), 200, "no workload"), (vector(), 200, "there is nothing"), ("bad query", 400, "refuses"),
])
def test_nonsense_from_a_server_is_one_line(s2, body, code, problem):
    server, url = answering(body, code)
    with pytest.raises(InputError, match=problem):
        rates_now(url, s2)
    server.shutdown()


def test_a_server_that_is_down_loses_nothing(tmp_path, capsys):
    running = tmp_path / "plan.json"
    assert main(["solve", "parvagpu-s1", "--out", str(running)]) == 0
    before = running.read_bytes()
    flags = ["--prometheus", "http://127.0.0.1:9", "--out", str(running), "--force"]
    assert main(["replan", "parvagpu-s1", str(running), *flags]) == 2
    assert "does not answer" in capsys.readouterr().err and running.read_bytes() == before
    assert main(["replan", "parvagpu-s1", str(running), "--prometheus", "ftp://x"]) == 2


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_the_real_server_with_an_exporter_of_known_counters(tmp_path, s2):
    """A counter that grows by 30 a second is 30 requests/s."""
    started = time.monotonic()

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            count = 30 * (time.monotonic() - started)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(f'nv_inference_request_success{{model="bert"}} {count}\n'.encode())

        def log_message(self, *arguments):
            pass

    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    port = free_port()
    (tmp_path / "p.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"- {{job_name: t, static_configs: [{{targets: ['127.0.0.1:{exporter.server_address[1]}']}}]}}\n"
    )
    server = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL,
    )
    try:
        assert rate_after(f"http://127.0.0.1:{port}", s2) == pytest.approx(30, rel=0.1)
    finally:
        server.kill()
        exporter.shutdown()


def free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        return server.server_address[1]


def rate_after(url, instance, patience_s=60):
    """The rate of bert once the server has scraped for as long as the query looks back."""
    until, last = time.monotonic() + patience_s, 0.0
    while True:
        time.sleep(2)
        try:
            found = rates_now(url, instance, "sum by (model) (rate(nv_inference_request_success[6s]))")["bert"]
        except InputError:
            found = 0.0
        if time.monotonic() > until or 0 < found < 1.02 * last:
            return found
        last = found


def test_demand_goes_out_and_comes_back(s2, tmp_path):
    demand = two_waves(s2)
    write_demand(demand, tmp_path / "d.csv")
    again = read_demand(tmp_path / "d.csv")
    assert dict(zip(again.workloads, again.rates_rps.T.tolist(), strict=True)) == dict(
        zip(demand.workloads, demand.rates_rps.T.tolist(), strict=True))
    assert again.times_s.tolist() == demand.times_s.tolist()
