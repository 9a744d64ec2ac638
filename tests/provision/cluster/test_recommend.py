"""``provision recommend``: its target is proven and verified, and its steps are walked by rules of the test's own."""

import json
import shutil
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_server import A100, Kube, node, pod, replica_set, shop
from prometheus_server import real_prometheus

import provision
from provision import InputError, Replica, Slice
from provision.answers.clusters import recommendation_told as told
from provision.cli import main
from provision.cluster.importers import read_kubernetes
from provision.cluster.recommend import recommend
from provision.cluster.steps import Place, Unit, ordered
from provision.models.hardware.gpu import gpu_type

KIND = gpu_type("a100-80gb")


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    path = tmp_path_factory.mktemp("shop") / "objects.json"
    path.write_text(json.dumps({"kind": "List", "items": shop()}))
    return read_kubernetes(path)


@pytest.fixture(scope="module")
def found(state):
    return recommend(state, time_limit_s=20)


def test_what_is_enough_is_proven_and_cheaper(state, found):
    assert found.status == "optimal" and found.improves
    assert (found.gpus, found.target_gpus) == (6, 1)
    assert found.saving_per_month == pytest.approx(5 * 3.4309 * 730)
    assert provision.verify(found.instance, found.plan).ok
    assert found.bound_per_hour == pytest.approx(3.4309)
    assert found.empty_nodes == ("n2", "n3") and found.places == ("n1/0",)
    assert found.provenance == state.provenance and found.questions == state.questions
    assert found.order.found and found.order.spare_gpus == 0
    assert all(one.carried == 1 for one in found.order.steps)


def test_the_words_say_it(found):
    text = "\n".join(told(found))
    assert "Now: 6 GPUs" in text and "Enough: 1 GPU" in text and "proven" in text and "12,523 $ per month" in text
    page = "\n".join(told(found, markdown=True))
    assert "| recommended | 1 |" in page and "1. stop and remove" in page


def test_nothing_to_improve_is_proven(tmp_path):
    objects = [node("n1", A100, 1, mig={"7g.80gb": 1}), replica_set("bert"),
               pod("bert-0", "n1", "nvidia.com/mig-7g.80gb", "bert", notes={"model": "bert", "slo-ms": 600,
                                                                          "rate-rps": 200})]
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    answer = recommend(read_kubernetes(path), time_limit_s=10)
    assert not answer.improves and answer.status == "optimal" and answer.order.steps == ()
    assert any(line.startswith("Nothing can be improved") for line in told(answer))


@pytest.mark.parametrize(("most", "gpus"), [(0, 4), (1, 3)])
def test_a_limit_on_moves_is_kept_and_proven(tmp_path, most, gpus):
    """Four GPUs, of which one can be given up by one move: the other replica of its workload carries all."""
    objects = [node("n1", A100, 4, mig={"7g.80gb": 4}), *map(replica_set, ("bert", "resnet50", "vgg19"))]
    for number, (name, slo, rate) in enumerate([("bert", 600, 40), ("resnet50", 100, 300), ("vgg19", 200, 60),
                                                ("bert", 600, 40)]):
        objects.append(pod(f"{name}-{number}", "n1", "nvidia.com/mig-7g.80gb", name,
                           notes={"model": name, "slo-ms": slo, "rate-rps": rate}))
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    few = recommend(read_kubernetes(path), max_moves=most, time_limit_s=20)
    assert few.moves["slices_destroyed"] + few.moves["replicas_started"] == most
    assert few.target_gpus == gpus and few.status == "optimal"
    assert [one.action for one in few.order.steps] == ["stop"] * most


def test_a_namespace_is_kept(state, tmp_path):
    objects = shop()
    for one in objects:
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("vgg19"):
            one["metadata"]["namespace"] = "video"
    path = tmp_path / "o.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    answer = recommend(read_kubernetes(path), keep=["video"], time_limit_s=10)
    assert set(answer.stays) == {"n2/1", "n3/0"} and answer.target_gpus == 3
    assert not any("video" in name for one in answer.order.steps for name in one.workloads)
    with pytest.raises(InputError, match="no GPU has a pod of this namespace; there are shop, video"):
        recommend(read_kubernetes(path), keep=["vide"])
    with pytest.raises(InputError, match="everything stays"):
        recommend(read_kubernetes(path), keep=["video", "shop"])


def _stand(pieces):
    """Whether MIG instances (profile, start) can stand on an A100 together, by NVIDIA's rules."""
    slots = [slot for name, start in pieces for slot in range(start, start + KIND.profiles[name].memory)]
    return len(slots) == len(set(slots)) and sum(KIND.profiles[name].compute for name, _ in pieces) <= 7


LAYOUTS = [[("4g.40gb", 0), ("3g.40gb", 4)], [("3g.40gb", 0), ("3g.40gb", 4)], [("2g.20gb", 0), ("2g.20gb", 2)],
           [("7g.80gb", 0)], [("1g.10gb", one) for one in range(7)], [("2g.20gb", 4), ("1g.10gb", 0)], []]


@settings(max_examples=60)
@given(st.data())
def test_every_state_on_the_way_stands_and_serves(data):
    """Random layouts before and after; every step is walked, and the target is reached."""
    def units(number, layout):
        names = data.draw(st.lists(st.sampled_from("abc"), min_size=len(layout), max_size=len(layout)))
        return [Unit(number, Slice(profile=profile, start=start, replicas=(
            Replica(workload=name, batch=1, rate_rps=1.0),)), ((name, float(KIND.profiles[profile].compute)),))
            for (profile, start), name in zip(layout, names, strict=True)]

    places = [Place(f"n/{number}", "a100-80gb", units(number, data.draw(st.sampled_from(LAYOUTS))),
                    units(number, data.draw(st.sampled_from(LAYOUTS))))
              for number in range(data.draw(st.integers(1, 4)))]
    sums = [defaultdict(float), defaultdict(float)]
    for place in places:
        for total, side in zip(sums, (place.now, place.target), strict=True):
            for unit in side:
                for name, rps in unit.carries:
                    total[name] += rps
    floors = {name: min(sums[0][name], sums[1][name]) * data.draw(st.sampled_from([0.5, 0.9, 1.0])) for name in "abc"}
    order = ordered(places, floors, {"s/0": ("a100-80gb", True), "s/1": ("a100-80gb", True)})
    carried, standing = dict(sums[0]), defaultdict(dict)
    for place in places:
        for unit in place.now:
            standing[place.name][unit.label] = (unit.piece.profile, unit.piece.start)
    weight = {f"{profile} at {start}": KIND.profiles[profile].compute
              for layout in LAYOUTS for profile, start in layout}
    for step in order.steps:
        sign = -1 if step.action == "stop" else 1
        for name in step.workloads:
            carried[name] = carried.get(name, 0) + sign * weight[step.slice]
        if sign < 0:
            del standing[step.gpu][step.slice]
        else:
            assert step.slice not in standing[step.gpu]
            profile, _, start = step.slice.partition(" at ")
            standing[step.gpu][step.slice] = (profile, int(start))
        assert _stand(list(standing[step.gpu].values()))
        assert all(carried.get(name, 0) >= floor * (1 - 1e-6) for name, floor in floors.items())
    if order.found:
        for place in places:
            assert {unit.label for unit in place.target} <= set(standing[place.name])
        assert not standing["s/0"] and not standing["s/1"]


def test_a_swap_on_full_gpus_needs_a_spare_and_says_so():
    """Two GPUs change places under full load: without a spare, either would have to stop first."""
    def unit(number, name):
        replicas = (Replica(workload=name, batch=1, rate_rps=1.0),)
        return Unit(number, Slice(profile="7g.80gb", start=0, replicas=replicas), ((name, 1.0),))

    places = [Place("n/0", "a100-80gb", [unit(0, "a")], [unit(0, "b")]),
              Place("n/1", "a100-80gb", [unit(1, "b")], [unit(1, "a")])]
    order = ordered(places, {"a": 1.0, "b": 1.0}, {})
    assert order.found and order.spare_gpus == 1 and order.spare_proven
    assert [one.action for one in order.steps].count("start for a time") == 1
    assert "a spare a100-80gb" in order.steps[0].gpu
    assert ordered(places, {"a": 0.0, "b": 1.0}, {}).spare_gpus == 0


def test_the_command_writes_plan_and_exports(state, tmp_path, capsys):
    provision.write(state, tmp_path / "state.json")
    line = ["recommend", str(tmp_path / "state.json"), "--time-limit", "10", "--export", str(tmp_path / "out")]
    assert main([*line, "--out", str(tmp_path / "plan.json"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal" and answer["provenance"]["rate_rps.shop/bert"]["origin"] == "typed in"
    plan, instance = provision.read_plan(tmp_path / "out/plan.json"), provision.read(tmp_path / "out/instance.json")
    assert provision.verify(instance, plan).ok and plan == provision.read_plan(tmp_path / "plan.json")
    assert (tmp_path / "out/mig-parted/config.yaml").exists() and (tmp_path / "out/kubernetes-dra/claims.yaml").exists()
    assert (tmp_path / "out/places.txt").read_text() == "0 n1/0\n"
    assert main(line) == 2 and "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_export_that_is_not_written_is_told_and_exits_with_1(state, found, tmp_path, capsys, monkeypatch, more):
    def export(plan, to, *rest):
        if to == "mig-parted":
            raise InputError("mig-parted: has no MPS")

    monkeypatch.setattr("provision.answers.clusters.export", export)
    monkeypatch.setattr("provision.commands.cluster.recommend", lambda *given: found)
    provision.write(state, tmp_path / "state.json")
    assert main(["recommend", str(tmp_path / "state.json"), "--export", str(tmp_path / "out"), *more]) == 1
    out = capsys.readouterr().out
    assert "mig-parted: not written: mig-parted: has no MPS" in out and "kubernetes-dra: written" in out


def page(seconds):
    """Counters of Triton for two workloads."""
    rates = {"resnet50": 300, "bert": 30}
    return "".join(f'nv_inference_request_success{{model="{name}"}} {rate * seconds}\n'
                   for name, rate in rates.items())


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_two_commands_from_a_kubeconfig_and_a_prometheus_to_a_recommendation(tmp_path, monkeypatch, capsys):
    pytest.importorskip("kubernetes", reason="the client of Kubernetes is not installed (gpu-provision[kubernetes])")
    objects = [node("n1", A100, 4), replica_set("resnet50"), replica_set("bert")]
    for number, (name, slo) in enumerate([("resnet50", 100), ("resnet50", 100), ("bert", 500)]):
        objects.append(pod(f"{name}-{number}", "n1", "nvidia.com/gpu", name, notes={"slo-ms": slo},
                           env={"MODEL_NAME": name}))
    kube = Kube([])
    kube.add(objects)
    kube.kubeconfig(tmp_path / "config")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    out = str(tmp_path / "state.yaml")
    try:
        with real_prometheus(tmp_path, page) as url:
            assert main(["import", "kubernetes", "--live", "--prometheus", url, "--window", "3", "--out", out]) == 0
        assert main(["recommend", out, "--time-limit", "10"]) == 0
    finally:
        kube.close()
    assert "Enough: 1 GPU" in capsys.readouterr().out
