"""Jobs: what clients rely on, from submission to result, with cancelling and restarts."""

import signal
from importlib import import_module
from types import SimpleNamespace

import pytest
from served import SLOW, Client, answer, ended, process, served, until

import provision
from provision.commands.planning.solve import Solve
from provision.commands.verb import Given, asked
from provision.models.base.clock import present_stop, stopping
from provision.models.problem.method import FEATURES, Method
from provision.models.problem.search import Incumbent
from provision.service import jobs, processes


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(tmp_path_factory.mktemp("jobs")) as address:
        yield address


@pytest.fixture
def client(url):
    return Client(url)


def test_contract_of_a_solve(url, client):
    asked = {"verb": "solve", "instance": "parvagpu-s3", "method": "auto", "time_limit_s": 60}
    status, headers, _ = answer(url, "POST", "/api/v1/jobs", asked)
    assert status == 201
    id = headers["Location"].rpartition("/")[2]
    job = ended(client, id)
    direct = provision.solve(provision.read("parvagpu-s3"), time_limit_s=60)
    assert job["status"] == "done"
    assert job["incumbents"][-1]["objective"] == direct.objective
    assert set(direct.summary()) | {"plan_file", "plan"} <= set(job["result"])
    assert job["result"]["objective"] == direct.objective
    assert job["result"]["digest"] == direct.digest == job["instance_digest"]
    assert provision.verify(provision.read("parvagpu-s3"), provision.Plan(**job["result"]["plan"])).ok
    kinds = [kind for kind, _ in client.events(id)]
    assert kinds[:2] == ["status", "status"] and kinds[-1] == "status" and "incumbent" in kinds


def test_client_solves_like_the_package(client):
    instance = provision.read("parvagpu-s1")
    seen = []
    result = client.solve(instance, "greedy", 10, report=seen.append)
    direct = provision.solve(instance, "greedy", 10)
    assert (result.status, result.plan, result.report) == (direct.status, direct.plan, direct.report)
    assert client.verify(instance, result.plan).ok


def test_a_review_of_a_stored_and_a_shipped_instance(url, client):
    base = provision.read("parvagpu-s1").replace(name="base")
    asked = {"verb": "review", "base": client.write(base), "instance": "parvagpu-s1", "max_cost_increase": 0.05,
             "time_limit_s": 8}
    _, headers, _ = answer(url, "POST", "/api/v1/jobs", asked)
    job = ended(client, headers["Location"].rpartition("/")[2])
    told = job["result"]
    assert job["status"] == "done" and told["exit_code"] == 0 and told["fields"] == ["name: base -> parvagpu-s1"]
    assert told["limits"][0]["kept"] and told["cost_increase"] == pytest.approx(0)
    assert provision.verify(provision.read("parvagpu-s1"), provision.Plan(**told["plan"])).ok
    status, _, body = answer(url, "POST", "/api/v1/jobs", asked | {"base": "no-such"})
    assert status == 422 and "no-such" in str(body) and "base" in str(body)


def test_a_whole_instance_is_stored(client):
    instance = provision.read("parvagpu-s1").replace(name="mine")
    digest = client.write(instance)
    assert digest == instance.digest and client.read("mine") == client.read(digest) == instance
    by_name, by_digest = (client.solve(one, "greedy", 5) for one in ("mine", digest))
    assert by_name.plan == by_digest.plan


def test_cancelled_solve_keeps_its_best_plan(client):
    id = client.submit(SLOW)
    until(lambda: client.job(id)["status"] == "running")
    until(lambda: client.job(id)["incumbents"])
    client.cancel(id)
    job = ended(client, id, 40)
    assert job["status"] == "cancelled"
    assert job["result"]["termination"] == "stopped" and job["result"]["verified"]
    assert job["result"]["plan"]["gpus"]


@pytest.mark.parametrize("method", ["greedy", "assignment-cpsat"])
def test_cancelled_before_the_first_incumbent_keeps_a_plan(monkeypatch, method):
    """Ctrl-C reaches the search before it has anything: greedy's plan, made at once, is kept."""
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    instance = provision.read("parvagpu-s1").model_dump(mode="json", exclude_none=True)
    request = {"method": method, "time_limit_s": 5.0, "seed": 0, "parameters": {}}
    monkeypatch.setattr(Solve, "job", stopped)
    kind, result = processes.outcome(processes.Work("solve", request, instance, None), None)
    assert kind == "result" and result["verified"] and result["termination"] == "stopped" and result["plan"]["gpus"]
    assert method in result["notes"][-1]


def test_an_interrupted_job_keeps_what_it_told_last(monkeypatch):
    """Whether it says that it was cancelled, or must be left. If its process dies, the job begins once more."""
    def outcome(*messages):
        def received():
            if (message := waiting.pop(0)) is None:
                raise EOFError
            return message

        waiting = list(messages)
        pipe = SimpleNamespace(poll=lambda seconds=0.0: bool(waiting), recv=received)
        monkeypatch.setattr(jobs, "started", lambda *given: (None, pipe))
        desk = SimpleNamespace(settings=SimpleNamespace(job_s=0.0, memory_gib=1.0), folder=SimpleNamespace(name=""),
                               stopping=False, cancelled=(), tell=lambda *event: None)
        return jobs.Run(desk, "job").outcome(processes.Work("compare", {}, None, None))

    monkeypatch.setattr(jobs, "GRACE_S", 0.0)
    for name in ("end", "send_signal"):
        monkeypatch.setattr(jobs, name, lambda *given: None)
    kept, told, result = ("keep", {"result": {"rows": [1]}}), ("incumbent", {}), ("result", {"rows": [1]})
    assert outcome(kept, ("cancelled", {})) == outcome(kept) == outcome(told, None, None, result) == result
    assert outcome() == ("died", {}) and outcome(told, ("cancelled", {})) == ("cancelled", {})


@pytest.mark.parametrize(("verb", "settings"), [
    ("what-if", {"vary": {"rate": [1.0, 1.1]}, "method": "greedy"}), ("compare", {"methods": ["greedy", "igniter"]})])
def test_rows_are_told_as_they_are_done(verb, settings):
    told, instance = [], provision.read("parvagpu-s1").model_dump(mode="json", exclude_none=True)
    asked(verb, settings).job(Given(instance, None, lambda kind, content: told.append((kind, content))))
    kept = [content["result"] for kind, content in told if kind == "keep"]
    assert [len(one["rows"]) for one in kept] == [1, 2] and not kept[-1]["complete"]


def test_queued_job_is_cancelled_at_once_and_the_next_runs(client):
    quick = SLOW | {"method": "greedy", "parameters": {}}
    first, second, third = map(client.submit, (SLOW, SLOW, quick))
    until(lambda: client.job(first)["incumbents"])
    client.cancel(second)
    assert client.job(second)["status"] == "cancelled"
    client.cancel(first)
    assert ended(client, third)["status"] == "done"


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"verb": "solve", "instance": "nowhere"}, "instance"),
        ({"verb": "solve", "instance": "../etc/passwd"}, "instance"),
        ({"verb": "solve", "instance": "parvagpu-s1", "method": "best"}, "method"),
        ({"verb": "solve", "instance": "parvagpu-s1", "method": "igniter"}, "method"),
        ({"verb": "solve", "instance": "parvagpu-s1", "time_limit_s": 0}, "time_limit_s"),
        ({"verb": "solve", "instance": "inss", "method": "inss", "parameters": {"policy": "/etc/passwd"}},
         "parameters.policy"),
        ({"verb": "simulate", "instance": "parvagpu-s1", "plan": "0" * 64}, "plan"),
        ({"verb": "simulate", "instance": "parvagpu-s1", "plan": {"version": 1}}, "plan.instance"),
        ({"verb": "simulate", "instance": "parvagpu-s1", "plan": {}, "trace": "/etc/passwd"}, "trace"),
    ],
)
def test_refused_with_the_field(url, job, field):
    status, headers, text = answer(url, "POST", "/api/v1/jobs", job)
    assert status == 422 and headers["Content-Type"] == "application/problem+json"
    assert f'"field":"{field}"' in text


def test_fields_of_an_instance_are_named(url):
    instance = provision.read("parvagpu-s1").model_dump(mode="json", exclude_none=True)
    instance["workloads"][1]["slo_ms"] = "soon"
    instance["workloads"][2]["model"] = "unheard"
    _, _, text = answer(url, "POST", "/api/v1/jobs", {"verb": "solve", "instance": instance})
    assert '"pointer":"#/instance/workloads/1/slo_ms"' in text
    instance["workloads"][1]["slo_ms"] = 100.0
    _, _, text = answer(url, "POST", "/api/v1/jobs", {"verb": "solve", "instance": instance})
    assert '"pointer":"#/instance/workloads/2/model"' in text


def test_other_verbs(client):
    plan = client.solve("parvagpu-s1", "greedy", 5).plan
    rows = client.compare("parvagpu-s1", ["greedy", "igniter"])
    assert [row["status"] for row in rows] == ["optimal", "not applicable"]
    one = provision.read("parvagpu-s1").workloads[2].name
    priced = client.run({"verb": "what-if", "instance": "parvagpu-s1", "prices": True, "prices_of": [one]})["prices"]
    assert [price["workload"] for price in priced] == [one]
    sweep = client.what_if("parvagpu-s1", {"rate": [1.0, 2.0]}, method="greedy")
    assert [row["rate"] for row in sweep] == [1.0, 2.0]
    assert client.simulate("parvagpu-s1", plan, 2)["arrived"] > 0
    moved = client.replan("parvagpu-s1", plan, rate=1.1)
    assert moved["verified"] and provision.Plan(**moved["plan"])
    assert "README.md" in client.export("parvagpu-s1", plan, "shell")
    day = client.simulate_trace("parvagpu-s1", "time_s,workload,rate_rps\n0,bert,5\n60,bert,9\n", policies=["static"])
    assert len(day["windows"]) == 2


def test_diff_against_a_saved_status(client):
    plan = client.solve("parvagpu-s1", "greedy", 5).plan
    gpu = {"product": "NVIDIA A100-SXM4-80GB", "mig_capable": True, "mig": False, "mig_pending": False}
    gpus = [gpu | {"index": at, "uuid": f"GPU-{at}", "slices": [{"profile": "whole", "devices": [f"GPU-{at}"]}]}
            for at in range(len(plan.gpus))]
    steps = client.diff("parvagpu-s1", plan, {"gpus": gpus, "leftovers": [], "last_run": None})
    assert [step["action"] for step in steps].count("set_mig_mode") == len(plan.gpus)
    with pytest.raises(provision.InputError, match="may be used"):
        client.diff("parvagpu-s1", plan, {"gpus": gpus[:1], "leftovers": [], "last_run": None})


def test_what_a_method_cannot_use_fails_with_a_problem(client):
    with pytest.raises(provision.InputError, match="unknown parameter"):
        client.what_if("parvagpu-s1", {"colour": [1.0]})


def test_apply_is_off(url):
    job = {"verb": "apply", "instance": "parvagpu-s1", "plan": "0" * 64}
    status, _, text = answer(url, "POST", "/api/v1/jobs", job)
    assert status == 403 and "--allow-apply" in text


def test_an_early_stop_a_full_queue_and_a_time_limit(tmp_path):
    with served(tmp_path, queue=1, job_s=3.0) as address:
        client = Client(address)
        early = client.submit(SLOW)
        until(lambda: client.job(early)["status"] == "running")
        client.cancel(early)  # its process is still starting
        job = ended(client, early)
        assert job["status"] == "cancelled" and job["restarts"] == 0 and job["result"]["plan"]["gpus"]
        first = client.submit(SLOW)
        until(lambda: client.job(first)["status"] == "running")
        second = client.submit(SLOW)
        status, _, _ = answer(address, "POST", "/api/v1/jobs", SLOW)
        assert status == 429
        client.cancel(second)
        job = ended(client, first)
        assert job["status"] == "done" and job["result"]["termination"] == "stopped" and job["result"]["verified"]


def test_jobs_survive_a_stop_and_a_crash(tmp_path):
    with process(tmp_path) as (running, address, _):
        client = Client(address)
        done = client.submit({"verb": "solve", "instance": "parvagpu-s1", "method": "greedy"})
        kept = ended(client, done)
        going = client.submit(SLOW)
        until(lambda: client.job(going)["incumbents"])
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0  # graceful
    with process(tmp_path) as (running, address, _):
        client = Client(address)
        assert client.job(done) == kept
        until(lambda: client.job(going)["status"] == "running" and client.job(going)["restarts"] == 1)
        running.kill()
    with process(tmp_path) as (_, address, _):
        client = Client(address)
        until(lambda: client.job(going)["restarts"] == 2)
        client.cancel(going)
        assert ended(client, going)["status"] == "cancelled"


def test_a_job_whose_search_does_not_stop_is_cancelled_with_the_plan_that_it_told(monkeypatch):
    """A step of a search may be longer than the server waits: the search runs in a process that can be left."""
    plan, told = provision.solve("parvagpu-s1", "greedy", replay=False).plan, []

    def stuck(instance, search):
        search.report(Incumbent(99.0, 1.0, plan))
        while True:
            signal.pause()

    def tell(kind, content):
        told.append(kind)
        present_stop().ask()

    anything = Method("auto", "", stuck, features=frozenset(FEATURES))
    monkeypatch.setattr(import_module("provision.solving.solve"), "find_method", lambda name: anything)
    instance = provision.read("parvagpu-s1").model_dump(mode="json", exclude_none=True)
    with stopping():
        found = Solve(time_limit_s=100.0).job(Given(instance, None, tell))
    assert told == ["incumbent", "plan"] and found["termination"] == "stopped"
    assert found["verified"] and provision.Plan(**found["plan"]) == plan


def test_a_worker_that_is_cancelled_while_it_loads_lives(tmp_path):
    """Cancelled at once, before the first process of a worker has loaded its methods."""
    with served(tmp_path) as address:
        client = Client(address)
        first = client.submit(SLOW)
        until(lambda: client.job(first)["status"] == "running")
        client.cancel(first)
        job = ended(client, first)
        assert job["status"] == "cancelled" and job["result"]["plan"]["gpus"]
        assert ended(client, client.submit(SLOW | {"method": "greedy", "parameters": {}}))["restarts"] == 0
