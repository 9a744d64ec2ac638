"""``provision watch``: decides when rates leave their bands, keeps a journal, and outlives its servers and itself."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from argparse import Namespace
from types import SimpleNamespace
from urllib.request import urlopen

import numpy as np
import pytest
from applier_scenario import plan
from driver import Node
from prometheus_server import answering, real_prometheus, vector

import provision
from provision import InputError
from provision.applier import apply
from provision.applier.outcome import RunOutcome
from provision.applier.serving import servers
from provision.cli import main
from provision.cluster.journal import Decision, Journal
from provision.cluster.watch import Rules, Watcher
from provision.commands.cluster import _applying
from provision.models.base.clock import stopping
from provision.verification.verify import verify

pytest_plugins = ["applier_fixtures"]
RULES = Rules(look_s=1, interval_s=100, decide_s=5)


@pytest.fixture(scope="module")
def running():
    """A small instance and a plan for it, on two GPUs."""
    instance = provision.Instance.model_validate({
        "version": 2, "name": "two", "performance": "parvagpu-a100",
        "fleet": [{"gpu": "a100-80gb", "mps": False, "count": 4}],
        "workloads": [{"name": "ask", "model": "bert", "slo_ms": 600, "rate_rps": 100},
                      {"name": "see", "model": "resnet50", "slo_ms": 100, "rate_rps": 1000}]})
    return instance, provision.solve(instance, time_limit_s=5, replay=False).plan


class Clock:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def watcher(running, tmp_path):
    return Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), clock=Clock())


def test_a_rate_within_its_band_changes_nothing(watcher):
    assert watcher.look({"see": 1001}) is None and watcher.look({}) is None
    assert not watcher.journal.decisions()


def test_a_rate_beyond_its_band_is_decided_at_once(watcher, running):
    decision = watcher.look({"see": 3000})
    assert decision.action == "change" and decision.outcome == "advised" and decision.gpus_then > decision.gpus
    assert "see: rates are beyond" in decision.why and watcher.carries["see"] >= 3000
    assert decision.rates_rps["see"] >= 3000 and decision.seconds < RULES.decide_s
    wanted = provision.instances.files.demand.at_rates(running[0], decision.rates_rps)
    assert verify(wanted, decision.plan).ok and decision.plan.digest == wanted.digest
    assert watcher.look({"see": 3000}) is None


def test_gpus_are_given_back_only_after_an_interval_without_need(watcher):
    clock = watcher.clock
    clock.now = 101
    assert watcher.look({"ask": 100, "see": 1000}) is None
    watcher.look({"see": 3000})
    clock.now = 202
    assert watcher.look({"see": 10}) is None, "within the interval before, the higher rate was seen"
    clock.now = 303
    decision = watcher.look({})
    assert decision.gpus_then < decision.gpus and "less are enough" in decision.why


def test_a_rate_seen_at_a_decision_does_not_count_again_for_the_next(watcher):
    clock = watcher.clock
    clock.now = 50
    assert watcher.look({"see": 3000}).action == "change"
    clock.now = 101
    assert watcher.look({}) is None, "the interval needed what stands"
    clock.now = 150
    assert watcher.look({"see": 10}) is None, "no interval without need has ended"
    clock.now = 202
    decision = watcher.look({})
    assert decision is not None and decision.gpus_then < decision.gpus


def test_what_no_plan_carries_is_told_once(watcher):
    first = watcher.look({"see": 1e6})
    assert first.action == "stuck" and "see" in first.why and watcher.look({"see": 1e6}) is None
    assert watcher.plan.gpu_count == first.gpus


def test_the_journal_outlives_the_watch(running, tmp_path, watcher):
    done = watcher.look({"see": 3000})
    again = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"))
    assert again.plan == done.plan and again.carries == watcher.carries
    with pytest.raises(InputError, match="is the journal of two, not of three"):
        Journal(tmp_path / "j.db", "three")
    for _ in range(60):
        watcher.journal.add(Decision(action="blind", why="gone"))
    with pytest.raises(InputError, match="is the journal of two, not of three"):
        Journal(tmp_path / "j.db", "three")


def test_advice_does_not_stand_for_a_watch_that_acts(running, tmp_path, watcher):
    watcher.look({"see": 3000})
    acting = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), lambda wanted, plan: "applied")
    assert acting.plan == running[1]


def test_a_stop_within_a_decision_journals_nothing(watcher):
    with stopping() as stop:
        stop.ask()
        assert watcher.look({"see": 1e6}) is None
    assert not watcher.journal.decisions()


def test_a_journal_of_another_version_is_refused(tmp_path):
    Journal(tmp_path / "j.db", "two").add(Decision(action="stuck", why="no GPU"))
    with sqlite3.connect(tmp_path / "j.db") as base:
        base.execute("UPDATE decisions SET body = json_set(body, '$.later', 1)")
    with pytest.raises(InputError, match="later"):
        Journal(tmp_path / "j.db").decisions()


def test_a_change_that_was_cut_off_is_carried_out_again(running, tmp_path, watcher):
    cut = watcher.journal.ended(watcher.look({"see": 3000}), "begun")
    acted = []
    again = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), lambda wanted, plan: acted.append(
        (wanted.digest, plan)) or "applied")
    assert [one.outcome for one in again.resume()] == ["begun", "applied"] and not list(again.resume())
    assert acted == [(cut.plan.digest, cut.plan)] and again.plan == cut.plan
    assert again.journal.decisions()[0].outcome == "applied"


def test_a_change_that_fails_leaves_the_plan(running, tmp_path):
    def fails(wanted, plan):
        raise InputError("the driver does not answer")

    watcher = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), fails)
    assert watcher.look({"see": 3000}).outcome == "refused: the driver does not answer"
    assert watcher.plan == running[1]


def test_a_change_that_failed_is_tried_again_less_and_less_often(running, tmp_path):
    """After one interval, then two, then four; at once when more is asked for; and as before once one succeeds."""
    outcomes, tried = ["refused: busy"] * 4 + ["applied"], []
    clock = Clock()
    watcher = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), lambda wanted, plan: outcomes.pop(0), clock)
    for clock.now in range(0, 800, 20):
        if watcher.look({"see": 3000}):
            tried.append(clock.now)
    assert tried == [0, 100, 300, 700]
    clock.now = 720
    assert watcher.look({"see": 3000}) is None and watcher.look({"see": 5000}).outcome == "applied"
    assert watcher.look({"see": 5000}) is None and watcher.again_at == 0


def test_old_decisions_are_dropped_but_what_stands(running, tmp_path, watcher, monkeypatch):
    """A clock that jumps a year ahead, or many decisions alone, drop nothing."""
    watcher.look({"see": 3000})
    monkeypatch.setattr("provision.cluster.journal.KEPT_DECISIONS", 3)
    for _ in range(5):
        watcher.journal.add(Decision(action="blind", why="gone"))
    assert len(watcher.journal.decisions()) == 6, "all of them are new"
    with sqlite3.connect(tmp_path / "j.db") as base:
        base.execute("UPDATE decisions SET body = json_set(body, '$.at', '2020-01-01T00:00:00+00:00')")
    watcher.journal.add(Decision(action="sees", why="back"))
    assert [one.number for one in watcher.journal.decisions()] == [7, 6, 5, 1]
    assert watcher.journal.standing().number == 1
    with pytest.raises(InputError, match="keep_days 0: should be above 0"):
        Journal(tmp_path / "j.db", "two", 0)


@pytest.fixture
def on_gpus(folder, files, monkeypatch):
    """The command of a watch that acts on the stand-in's four A100s, on which its plan stands."""
    node = Node(folder / "node", ["a100-80gb"] * 4, mig=True)
    gpus = ["--state", str(folder / "s"), "--server", "sleep 600"]
    monkeypatch.setattr(servers, "SETTLE_S", 0.05)
    with node.loaded():
        assert main(["apply", files[1], files[2], "--yes", *gpus]) == 0
        yield node, [*files, "--apply", *gpus]
        assert apply(plan([], [], [], []), folder / "s", gpus=list("0123")).outcome == "applied"


def test_decisions_are_carried_out_by_the_applier(on_gpus, tmp_path, capsys):
    """On the stand-in for the driver: instances are made and servers run as the decided plan says; then given back."""
    node, line = on_gpus
    before = [len(node.instances(gpu)) for gpu in range(4)]
    server, url = answering(vector(("ask", "100"), ("see", "3000")))
    assert main([*line, "--prometheus", url, "--looks", "1"]) == 0
    server.shutdown()
    [made] = Journal(tmp_path / "j.db").decisions()
    assert made.outcome == "applied" and made.gpus_then > made.gpus
    after = [len(node.instances(gpu)) for gpu in range(4)]
    assert after != before and sum(after) == sum(len(gpu.slices) for gpu in made.plan.gpus)
    assert stands(line, made, tmp_path) and main(["assert", line[2], *line[-4:]]) == 1


def stands(line, decision, folder):
    """Whether the plan of a decision stands on the GPUs, its servers included."""
    provision.write(decision.plan, folder / "then.json")
    return main(["assert", str(folder / "then.json"), *line[-4:]]) == 0


def test_a_watch_that_is_killed_while_it_applies_is_followed_by_one_that_ends_it(on_gpus, tmp_path):
    """Killed by an instance that it made, on the stand-in; the next watch asks whose that is, and goes on when told."""
    node, line = on_gpus
    server, url = answering(vector(("ask", "100"), ("see", "5000")))
    node.fault("nvmlGpuInstanceCreateComputeInstance", 1, "kill_after")
    command = [sys.executable, "-m", "provision", *line, "--prometheus", url, "--looks", "1"]
    assert subprocess.run(command, env=node.environment(), capture_output=True).returncode == -signal.SIGKILL
    [cut] = Journal(tmp_path / "j.db").decisions()
    assert cut.outcome == "begun"
    assert main([*line, "--prometheus", url, "--looks", "0"]) == 0
    [asks] = Journal(tmp_path / "j.db").decisions()
    assert asks.outcome.startswith("refused: GPU 1") and "Add --adopt if provision did" in asks.outcome
    assert main([*line[:-4], "--adopt", *line[-4:], "--prometheus", url, "--looks", "1"]) == 0
    server.shutdown()
    made = Journal(tmp_path / "j.db").decisions()[0]
    assert (made.number, made.outcome) == (2, "applied") and stands(line, made, tmp_path)


def test_a_quarantined_slice_is_told_and_not_tried_at_each_look(running, tmp_path):
    acted = []
    watcher = Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"),
                      lambda wanted, plan: acted.append(plan) or "quarantined: GPU 0, 1g at 0: stuck")
    made = watcher.look({"see": 3000})
    assert made.outcome == "quarantined: GPU 0, 1g at 0: stuck" and watcher.plan == made.plan
    assert watcher.look({"see": 3000}) is None and len(acted) == 1
    assert Watcher(*running, RULES, Journal(tmp_path / "j.db", "two"), watcher.act).plan == made.plan


def test_a_journal_has_one_watch_at_a_time(files, tmp_path, capsys):
    journal = Journal(tmp_path / "j.db", "two")
    with journal.held():
        assert main([*files, "--prometheus", "http://127.0.0.1:9", "--looks", "1"]) == 2
        assert "j.db: another watch writes it; stop that one" in capsys.readouterr().err
    assert main([*files, "--prometheus", "http://127.0.0.1:9", "--looks", "1"]) == 0


def test_a_plan_that_the_journal_overrides_is_told(files, watcher, capsys):
    watcher.look({"see": 3000})
    assert main([*files, "--prometheus", "http://127.0.0.1:9", "--looks", "1"]) == 0
    assert "p.json: is not what stands: decision 1 of" in capsys.readouterr().err


def test_a_forecast_that_fails_is_told_once_and_the_watch_goes_on(running, tmp_path, monkeypatch):
    def fails(y, h, level):
        raise Exception("no model able to be fitted")

    monkeypatch.setitem(sys.modules, "statsforecast", SimpleNamespace(models=SimpleNamespace(
        AutoETS=lambda model: SimpleNamespace(forecast=fails))))
    rules = Rules(look_s=1, interval_s=100, decide_s=5, forecast=True)
    watcher = Watcher(*running, rules, Journal(tmp_path / "j.db", "two"), clock=Clock())
    for rate in range(30):
        watcher.journal.add_rates({"ask": 100, "see": 900 + rate})
    watcher.clock.now = 101
    told = watcher.look({})
    assert told.action == "unforecast" and "no model able to be fitted; go without it: --no-forecast" in told.why
    watcher.clock.now = 202
    assert watcher.look({}) is None


def test_the_outcome_says_why_a_run_failed(running, monkeypatch):
    found = RunOutcome(outcome="restored", failure="server x: ends at once")
    monkeypatch.setattr("provision.commands.cluster.apply", lambda *given: found)
    act = _applying(Namespace(gpus=None, evict=False, adopt=None, state=None, server="x"))
    assert act(*running) == "restored: server x: ends at once"


def test_rates_that_cannot_be_read_are_told_once(watcher):
    assert watcher.sight(False, "gone").action == "blind" and watcher.sight(False, "gone") is None
    assert watcher.sight(True).action == "sees" and watcher.sight(True) is None
    assert [one.action for one in watcher.journal.decisions()] == ["sees", "blind"]


def test_a_forecast_raises_what_is_expected(running, tmp_path, monkeypatch):
    rules = Rules(look_s=1, interval_s=100, decide_s=5, forecast=True)
    watcher = Watcher(*running, rules, Journal(tmp_path / "j.db", "two"), clock=Clock())
    pasts = []
    monkeypatch.setattr("provision.cluster.watch.ahead",
                        lambda past, limit_s: pasts.append(past) or [100.0, 3000.0])
    watcher.clock.now = 101
    decision = watcher.look({})
    assert decision.action == "change" and decision.rates_rps["see"] >= 3000
    assert watcher.journal.rates() == [{"ask": 100, "see": 1000}]
    assert pasts == [[[100, 1000]]], "the interval that ends now is a part of the past"


def test_forecasts_of_statsforecast():
    pytest.importorskip("statsforecast")
    from provision.replanning.trace import ahead

    assert ahead([[1.0]] * 5) is None
    noise = np.random.default_rng(0).normal(0, 1, 49)
    past = [[5, 10 + row + noise[row] / 9, 90 - row, 50 + noise[row]] for row in range(48)]
    steady, rising, falling, low = ahead(past)
    assert (steady, falling) == (5, 43) and 57.5 < rising < 59 and low == pytest.approx(50 + noise[47], abs=2)


def test_a_forecast_counts_only_where_a_rise_is_likely(monkeypatch):
    """The lower end of the interval of three forecasts in four must be above the last rate."""
    from provision.replanning.trace import ahead

    ends = iter([3.9, 4.1])

    def forecast(y, h, level):
        return {"mean": [6.0], f"lo-{level[0]}": [next(ends)]}

    monkeypatch.setitem(sys.modules, "statsforecast", SimpleNamespace(models=SimpleNamespace(
        AutoETS=lambda model: SimpleNamespace(forecast=forecast))))
    assert ahead([[2.0, 2.0]] + [[4.0, 4.0]] * 30) == [4, 6]


@pytest.fixture
def files(running, tmp_path):
    instance, plan = running
    provision.write(instance, tmp_path / "i.yaml")
    provision.write(plan, tmp_path / "p.json")
    return ["watch", str(tmp_path / "i.yaml"), str(tmp_path / "p.json"), "--journal", str(tmp_path / "j.db"),
            "--look", "0.2"]


def test_bad_input_is_told_in_a_line(files, tmp_path, capsys):
    line = [*files, "--prometheus", "http://127.0.0.1:9"]
    assert main([*line, "--server", "x"]) == 2 and "--server: is for --apply" in capsys.readouterr().err
    assert main([*line, "--no-adopt"]) == 2 and "--adopt: is for --apply" in capsys.readouterr().err
    assert main([*line, "--looks", "-3"]) == 2 and "--looks: should be at least 0" in capsys.readouterr().err
    assert main([*line, "--metrics-port", "99999"]) == 2 and "--metrics-port 99999" in capsys.readouterr().err
    assert main([*line, "--headroom", "-1"]) == 2 and "headroom -1.0: should be" in capsys.readouterr().err
    (tmp_path / "j.db").write_text("not a database, surely, whatever it is")
    assert main([*line, "--looks", "1"]) == 2 and "cannot be used as a journal" in capsys.readouterr().err
    with pytest.raises(InputError, match="there is no such journal"):
        Journal(tmp_path / "none.db")


def test_prometheus_may_go_away(files, capsys):
    server, url = answering(vector(("ask", "100"), ("see", "3000")))
    assert main([*files, "--prometheus", url, "--looks", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus_then"] > 1
    server.shutdown()
    server.server_close()
    assert main([*files, "--prometheus", url, "--looks", "2"]) == 0
    assert capsys.readouterr().out.count("does not answer") == 1


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_it_is_killed_and_goes_on_before_a_real_prometheus(files, tmp_path):
    """Killed without warning after its first decision, then started again; its metrics tell what it sees."""
    def page(seconds):
        return "".join(f'nv_inference_request_success{{model="{name}"}} {rate * seconds}\n'
                       for name, rate in (("ask", 100), ("see", 3000)))

    journal = tmp_path / "j.db"
    with real_prometheus(tmp_path, page, 12) as url:
        _, port = answering("")[1].rsplit(":", 1)
        query = "sum by (model) (rate(nv_inference_request_success[2s]))"
        line = [sys.executable, "-m", "provision", *files, "--prometheus", url, "--query", query]
        first = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        assert "change" in first.stdout.readline()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        [decision] = Journal(journal).decisions()
        port = int(port) + 1
        second = subprocess.Popen([*line, "--metrics-port", str(port)], stdout=subprocess.PIPE, text=True)
        try:
            text, until = "", time.monotonic() + 60
            while "provision_watch_looks_total" not in text or "looks_total 0.0" in text:
                assert time.monotonic() < until
                time.sleep(0.2)
                try:
                    text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
                except OSError:
                    continue
            assert f"provision_watch_gpus {decision.gpus_then:.1f}" in text
            assert "provision_watch_sees_rates 1.0" in text and 'rate_rps{workload="see"}' in text
        finally:
            second.send_signal(signal.SIGTERM)
        assert second.wait(10) == 0
    assert len(Journal(journal).decisions()) == 1
    assert sqlite3.connect(journal).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_service_refuses_a_journal_that_cannot_be_read(tmp_path):
    from provision.service.settings import Settings

    with pytest.raises(InputError, match="there is no such journal; provision watch --journal"):
        Settings(journal=str(tmp_path / "none.db")).check()
    Journal(tmp_path / "j.db", "two")
    Settings(journal=str(tmp_path / "j.db")).check()


def test_the_service_shows_decisions(tmp_path):
    from provision.service.api.instances import list_decisions

    Journal(tmp_path / "j.db", "two").add(Decision(action="stuck", why="no GPU"))
    shown = [list_decisions(SimpleNamespace(settings=SimpleNamespace(journal=path)))
             for path in (None, str(tmp_path / "j.db"))]
    assert shown[0] == [] and [one.why for one in shown[1]] == ["no GPU"]
