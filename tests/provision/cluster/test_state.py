"""States of clusters: from files, from a server of Kubernetes, with a real Prometheus, and from this machine."""

import copy
import json
import shutil

import pytest
import yaml
from kube_server import A100, Kube, node, pod, replica_set, resource_claim, resource_slice, shop
from prometheus_server import answering, real_prometheus

from provision import InputError
from provision.applier.cluster.wanted import check_objects
from provision.cli import main
from provision.cluster.importers import machine_found, read_kubernetes
from provision.cluster.kubernetes import found_in
from provision.cluster.metrics import Histogram, measured, metrics_table
from provision.cluster.services import services_of
from provision.cluster.state import Values, read_state

NOTES = {"model": "bert", "slo-ms": 600, "rate-rps": 10}


def written(tmp_path, objects, name="objects.json"):
    path = tmp_path / name
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    path.write_text(text if name.endswith("json") else yaml.safe_dump_all(objects))
    return path


def test_a_cluster_becomes_an_instance_and_the_plan_that_runs(tmp_path):
    state = read_kubernetes(written(tmp_path, shop()))
    assert len(state.gpus) == 6 and state.per_hour == pytest.approx(6 * 3.4309)
    assert {one.name: one.rate_rps for one in state.instance.workloads} == {
        "shop/bert": 60, "shop/resnet50": 600, "shop/vgg19": 150}
    plan = state.plan()
    assert len(plan.gpus) == 5 and sum(1 for _ in plan.replicas()) == 6
    routed = {}
    for *_, replica in plan.replicas():
        routed[replica.workload] = routed.get(replica.workload, 0) + replica.rate_rps
    assert routed == pytest.approx({"shop/bert": 60, "shop/resnet50": 600, "shop/vgg19": 150})
    assert state.provenance["rate_rps.shop/bert"].origin == "typed in"
    assert state.provenance["batch.shop/bert"].origin == "assumed"
    assert {one.name for one in state.questions} >= {"batch.shop/bert", "price.a100-80gb", "mps.a100-80gb"}


def test_every_value_has_a_provenance_and_every_question_an_answer(tmp_path):
    path = written(tmp_path, shop(), "objects.yaml")
    first = read_kubernetes(path)
    answers = {one.name: {"yes": "no", "no": "yes"}.get(one.default, "3") for one in first.questions}
    answers.pop("mig.a100-80gb")
    state = read_kubernetes(path, given=answers)
    assert [one.name for one in state.questions] == ["mig.a100-80gb"]
    assert all(state.provenance[name].origin == "typed in" for name in answers)
    assert state.instance.fleet[0].price_per_hour == 3 and state.instance.fleet[0].mps
    for workload in state.instance.workloads:
        assert {f"{one}.{workload.name}" for one in ("model", "slo_ms", "rate_rps")} <= set(state.provenance)
    assert all(f"performance.{one.name}" in state.provenance for one in state.instance.performance)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_claims_tell_the_device_of_each_pod(tmp_path, version):
    gpu = {"type": "gpu", "uuid": "GPU-0", "productName": "NVIDIA A100-SXM4-80GB"}
    part = {"type": "mig", "parentUUID": "GPU-0", "productName": gpu["productName"]}
    devices = [("gpu-0", gpu, 0, 0), ("gpu-0-mig-3g-0", part | {"profile": "3g.40gb"}, 0, 4),
               ("gpu-0-mig-2g-4", part | {"profile": "2g.20gb"}, 4, 2)]
    objects = [node("d1", A100, 1), resource_slice("d1", devices, version), replica_set("bert"),
               resource_claim("c", "d1", "gpu-0-mig-2g-4", version=version),
               pod("bert-0", "d1", None, "bert", notes=NOTES, claim="c")]
    state = read_kubernetes(written(tmp_path, objects))
    [gpu] = state.gpus
    assert [(one.profile, one.start, one.pods) for one in gpu.slices] == [
        ("3g.40gb", 0, ()), ("2g.20gb", 4, ("shop/bert-0",))]
    assert "placement.d1" not in state.provenance and not state.notes


def test_what_cannot_be_planned_stays_and_says_why(tmp_path):
    objects = [node("n1", A100, 2, mig={"2g.20gb": 6}), node("n2", "NVIDIA-B900", 2),
               node("t", "Tesla-T4", 2, replicas=4, strategy="time-slicing"), replica_set("bert"), replica_set("odd")]
    part = "nvidia.com/mig-2g.20gb"
    objects += [pod("bert-0", "n1", part, "bert", notes=NOTES),
                pod("odd-0", "n1", part, "odd", env={"MODEL_NAME": "mine"}), pod("bare", "n1", part, "", notes=NOTES),
                pod("late", "n1", part, "bert", notes=NOTES, phase="Pending"),
                pod("unlimited", "n1", part, "unlimited", notes={"model": "bert"})]
    state = read_kubernetes(written(tmp_path, objects))
    assert len(state.gpus) == 4 and [gpu.sharing for gpu in state.gpus if gpu.gpu == "t4"] == ["time-slicing"] * 2
    told = "\n".join(state.notes)
    assert "no GPU type is called 'NVIDIA-B900'; add one" in told
    assert "pod shop/bare has no owner" in told and "give it a Deployment" in told
    assert "shop/odd: its model is not known (it says mine); say --set model.shop/odd=NAME" in told
    assert "shop/unlimited: its SLO is not known; say --set slo_ms.shop/unlimited=MS" in told
    assert "pod shop/late: is Pending" in told
    assert [one.name for one in state.instance.workloads] == ["shop/bert"] and state.gpus[0].stays


@pytest.mark.parametrize(("change", "says"), [
    (lambda o: o[0].update(apiVersion="v2"), "version 'v2' is unknown; ask the server for v1"),
    (lambda o: o.append({"kind": 3}), "no object of Kubernetes"),
    (lambda o: o[0]["metadata"].pop("name"), "Node without a name: metadata.name: is missing; read the cluster with"),
    (lambda o: o.__delitem__(slice(1, None)), "nothing to plan"),
    (lambda o: o[0]["metadata"]["labels"].clear(), "run NVIDIA's GPU feature discovery"),
    (lambda o: o[2]["metadata"]["annotations"].update({"provision/slo-ms": "fast"}), "should be a number of ms"),
    (lambda o: o[2]["metadata"]["annotations"].update({"provision/rate-rps": "many"}), "should be requests/s"),
])
def test_bad_objects_are_one_line(tmp_path, change, says, capsys):
    objects = [node("n1", A100, 1), replica_set("bert"), pod("bert-0", "n1", "nvidia.com/gpu", "bert", notes=NOTES)]
    change(objects)
    out = tmp_path / "state.json"
    out.write_text("mine")
    assert main(["import", "kubernetes", str(written(tmp_path, objects)), "--out", str(out), "--force"]) == 2
    assert says in capsys.readouterr().err and out.read_text() == "mine"


def whole_cluster():
    """Objects of every kind that is read."""
    gpu = {"type": "gpu", "uuid": "GPU-0", "productName": "NVIDIA A100-SXM4-80GB"}
    part = {"type": "mig", "parentUUID": "GPU-0", "productName": gpu["productName"], "profile": "2g.20gb"}
    held = pod("bert-0", "d1", None, "bert", notes=NOTES, claim="c")
    held["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c"}]
    selector = {"matchLabels": {"app": "b"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["b"]}]}
    return [node("n1", A100, 1, mig={"2g.20gb": 2}), held, replica_set("bert"),
            resource_slice("d1", [("gpu-0", gpu, 0, 0), ("gpu-0-mig-2g-4", part, 4, 2)]), node("d1", A100, 1),
            resource_claim("c", "d1", "gpu-0-mig-2g-4"),
            pod("bert-1", "n1", "nvidia.com/mig-2g.20gb", "bert", env={"MODEL_NAME": "bert"}, args=["--model", "bert"]),
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
             "spec": {"selector": selector}, "status": {"disruptionsAllowed": 2}}]


def places(value):
    """Every container in a value with every key of it."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def test_a_field_that_is_gone_or_of_another_kind_is_a_line():
    """Every field of every kind of object is taken away, or has a value that makes no sense."""
    objects, refused = whole_cluster(), 0
    for one in objects:
        for holder, key in places(one):
            if holder is one and key in ("kind", "metadata"):
                continue  # refused when the file is read
            kept = copy.copy(holder)
            for value in ("gone", None, 3, "x", [], {}, [3], {"x": 3}, [None], {"x": None}):
                holder[key] = value
                if value == "gone":
                    del holder[key]
                changed = copy.deepcopy(objects)
                try:
                    check_objects(changed, "o.json")
                    services_of(found_in(changed, (), Values({})).pods)
                except InputError as error:
                    refused += str(error).startswith("o.json: ")
                finally:
                    holder.clear()
                    holder.update(kept) if isinstance(holder, dict) else holder.extend(kept)
    assert refused > 500


def test_a_mig_device_of_an_unknown_profile_is_left_out():
    objects = whole_cluster()
    objects[3]["spec"]["devices"][1]["attributes"]["profile"]["string"] = "9g"
    assert any("NVIDIA A100-SXM4-80GB with 9g" in note for note in found_in(objects, (), Values({})).notes)


def test_a_selector_without_a_key_is_named():
    objects = whole_cluster()
    del objects[-1]["spec"]["selector"]["matchExpressions"][0]["key"]
    with pytest.raises(InputError) as error:
        check_objects(objects, "o.json")
    assert error.value.lines == (
        "o.json: PodDisruptionBudget shop/b: spec.selector.matchExpressions[0].key: is missing; read the cluster with "
        "kubectl get -o json, and change nothing",)


@pytest.mark.parametrize(("given", "says"), [
    (["--set", "slo_ms.shop/bret=3"], "did you mean 'slo_ms.shop/bert'"), (["--set", "x"], "write it as NAME=VALUE"),
    (["--set", "slo_ms.shop/bert=-1"], "should be a number"), (["--set", "mig.a100-80gb=often"], "yes or no"),
    (["--live"], "and not both"), (["--context", "c"], "is for --live"), (["--prometheus", "ftp://x"], "http://"),
    (["--performance", "none.yaml"], "cannot be read"), (["--metrics", "mine.yaml"], "is for --prometheus URL"),
])
def test_bad_options_are_one_line(tmp_path, given, says, capsys):
    path = written(tmp_path, shop())
    assert main(["import", "kubernetes", str(path), "--out", str(tmp_path / "s.yaml"), *given]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "s.yaml").exists()


def test_a_state_is_read_back_and_of_a_known_version(tmp_path):
    path, out = written(tmp_path, shop()), tmp_path / "state.yaml"
    assert main(["import", "kubernetes", str(path), "--out", str(out)]) == 0
    assert read_state(out) == read_kubernetes(path)
    out.write_text(out.read_text().replace("version: 1", "version: 7", 1))
    with pytest.raises(InputError, match="version: is 7, and this version of provision knows 1"):
        read_state(out)
    with pytest.raises(InputError, match="is no state"):
        read_state(path)


def test_a_live_cluster_is_read_by_the_official_client(tmp_path, monkeypatch, capsys):
    pytest.importorskip("kubernetes", reason="the client of Kubernetes is not installed (gpu-provision[kubernetes])")
    kube = Kube([])
    try:
        kube.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
        kube.add([*shop(), {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
            "spec": {"selector": {}}, "status": {"disruptionsAllowed": 2, "currentHealthy": 6, "desiredHealthy": 4,
                                                 "expectedPods": 6}}])
        out = tmp_path / "state.json"
        assert main(["import", "kubernetes", "--live", "--out", str(out)]) == 0
        assert read_state(out).gpus == read_kubernetes(written(tmp_path, shop())).gpus
        [budget] = read_state(out).budgets
        assert (budget.name, budget.allowed, len(budget.pods)) == ("shop/b", 2, 6)
        kube.forbidden = "PodDisruptionBudget"
        assert main(["import", "kubernetes", "--live", "--out", str(out), "--force"]) == 0
        *_, note = read_state(out).notes
        assert "PodDisruptionBudget: you may not list them" in note and "moves may break them" in note
        assert note in capsys.readouterr().err and not read_state(out).budgets
        kube.forbidden = "Pod"
        assert main(["import", "kubernetes", "--live", "--out", str(out), "--force"]) == 2
        assert "Pod: you may not list them; have a ClusterRole with get and list on pods" in capsys.readouterr().err
        assert read_state(out)
    finally:
        kube.close()


def page(seconds):
    """What Triton, vLLM and DCGM would tell: counters that grow evenly."""
    lines = [f'nv_inference_request_success{{model="bert",namespace="shop",pod="bert-0"}} {20 * seconds}',
             f'nv_inference_count{{model="bert",namespace="shop",pod="bert-0"}} {20 * seconds}',
             f'nv_inference_exec_count{{model="bert",namespace="shop",pod="bert-0"}} {5 * seconds}']
    for end, part in (("50", 0.5), ("100", 0.98), ("250", 1), ("+Inf", 1)):
        lines.append('nv_inference_first_response_histogram_ms_bucket{model="bert",namespace="shop",pod="bert-0",'
                     f'le="{end}"}} {20 * seconds * part}')
    gpu = 'gpu="0",UUID="GPU-7",Hostname="n1",GPU_I_ID="2",GPU_I_PROFILE="2g.20gb",namespace="shop",pod="bert-0"'
    return "\n".join([*lines, f"DCGM_FI_DEV_FB_USED{{{gpu}}} 9000", ""])


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_a_real_prometheus_gives_rates_and_latencies(tmp_path):
    objects = [node("n1", A100, 1, mig={"2g.20gb": 1}), replica_set("bert"),
               pod("bert-0", "n1", "nvidia.com/mig-2g.20gb", "bert", notes={"model": "bert"})]
    with real_prometheus(tmp_path, page) as url:
        state = read_kubernetes(written(tmp_path, objects), prometheus=url, window_s=3)
    [workload] = state.instance.workloads
    assert workload.rate_rps == pytest.approx(20, rel=0.1)
    assert workload.slo_ms == 250  # the end of the bucket with the P99: as now
    assert state.provenance["rate_rps.shop/bert"].origin == "observed"
    assert state.provenance["slo_ms.shop/bert"].origin == "assumed"
    seen = state.observations["shop/bert"]
    assert seen.mean_batch == pytest.approx(4, rel=0.1) and seen.p99_ms[1:] == (100, 250)
    assert state.provenance["placement.n1"].origin == "observed"


@pytest.mark.parametrize(("body", "code", "says"), [
    ('{"data": {"resultType": "vector", "result": []}}', 200, "has no metric of triton, vllm"),
    ("<html>", 200, "no vector"), ("no", 500, "refuses the query"),
    (json.dumps({"data": {"resultType": "vector", "result": [
        {"metric": {"model": "bert", "le": "9e6"}, "value": [0, "5"]}]}}), 200, "state its unit"),
    (json.dumps({"data": {"resultType": "vector", "result": [
        {"metric": {}, "value": [0, "-5"]}]}}), 200, "of 0 or more"),
])
def test_a_prometheus_that_makes_no_sense_is_one_line(body, code, says):
    server, url = answering(body, code)
    with pytest.raises(InputError, match=says) as error:
        measured(url)
    assert len(error.value.lines) == 1
    server.shutdown()


def test_a_users_table_of_metrics(tmp_path):
    """Rows as the documents show them; they take the place of a server's own."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("- {server: mine, quantity: latency, metric: my_latency_seconds, workload: service, unit: s}\n"
                    "- {server: triton, quantity: requests, metric: mine_total, workload: model}\n")
    table = metrics_table(mine)
    assert [one.metric for one in table if one.server == "mine"] == ["my_latency_seconds"]
    assert [one.metric for one in table if (one.server, one.quantity) == ("triton", "requests")] == ["mine_total"]
    for text, says in (("a: 3", "holds fields, not a list of rows"),
                       ("- {server: t, quantity: speed, metric: x}", r"\[0\].quantity: should be 'requests'")):
        mine.write_text(text)
        with pytest.raises(InputError, match=says):
            metrics_table(mine)


def test_percentiles_lie_in_their_buckets():
    histogram = Histogram((10.0, 20.0, float("inf")), (50.0, 90.0, 100.0))
    assert histogram.percentile(50)[1:] == (0, 10) and histogram.percentile(50)[0] == 10
    assert histogram.percentile(70)[0] == pytest.approx(15)
    assert histogram.percentile(99)[1:] == (20, None) and histogram.percentile(99)[0] == 20
    assert histogram.plus(histogram).total == 200


def test_this_machine_is_read_through_nvml(tmp_path):
    """Through the layout that ``provision status`` observes: a replica of the applier, and a process of another."""
    from provision.applier.layout import Observed, ObservedGpu, ObservedSlice, Process, ReplicaLayout
    from provision.cluster.assemble import assembled

    environment = {"PROVISION_WORKLOAD": "ask", "PROVISION_MODEL": "bert", "PROVISION_BATCH": "4"}
    replica = ReplicaLayout(environment=environment, running=2)
    slices = (ObservedSlice(profile="3g.40gb", enumerator=2, start=4, size=4, replicas=(replica,), mps=True),
              ObservedSlice(profile="1g.10gb", enumerator=0, start=0, size=1, clients=(Process(pid=7, name="train"),)))
    gpu = ObservedGpu(index=0, uuid="GPU-1", product="NVIDIA A100-SXM4-80GB", mig_capable=True, mig=True,
                      mig_pending=True, slices=slices)
    typed = Values({"slo_ms.ask": "500", "rate_rps.ask": "30"})
    state = assembled("m", machine_found(Observed(gpus=(gpu,))), None, typed, "NVML")
    [held] = state.gpus
    assert held.slices[0].replicas[0].batch == 4 and held.slices[0].replicas[0].processes == 2
    assert held.slices[1].stays and state.instance.fleet[0].mps
