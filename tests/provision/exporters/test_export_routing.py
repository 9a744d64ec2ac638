"""Routes of exported plans: their weights times the rate of a workload are what every process is planned for."""

import re
from collections import defaultdict

import jsonschema
import kubernetes_validate
import pytest
import yaml
from export_plans import planned
from hypothesis import given
from hypothesis import strategies as st

import provision
from provision.exporters.common import TARGETS, slugs
from provision.exporters.routing import weights
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

NAME = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
HTTP_ROUTE = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "gateway.networking.k8s.io/v1"}, "kind": {"const": "HTTPRoute"}, "metadata": {},
        "spec": {"additionalProperties": False, "properties": {
            "parentRefs": {"maxItems": 32, "items": {"required": ["name"]}},
            "hostnames": {"maxItems": 16, "items": {
                "type": "string", "maxLength": 253,
                "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$",
            }},
            "rules": {"maxItems": 16, "items": {"additionalProperties": False, "properties": {"backendRefs": {
                "minItems": 1, "maxItems": 16, "items": {
                    "additionalProperties": False, "required": ["name", "port", "weight"],
                    "properties": {"name": NAME, "port": PORT,
                                   "weight": {"type": "integer", "minimum": 0, "maximum": 1_000_000}},
                },
            }}}},
        }},
    },
}
"""The rules of the Gateway API for what is used of it."""
RATES = st.lists(st.floats(0.01, 2000) | st.just(0.0), min_size=1, max_size=30)
KUBERNETES = ("kubernetes", "kubernetes-dra", "kubernetes-device-plugin")


def documents(text):
    return list(yaml.safe_load_all(text))


@given(RATES)
def test_weights_tell_rates_within_a_percent(rates):
    dealt = weights("a", rates)
    total = sum(rates)
    if not total:
        assert len(set(dealt)) == 1
        return
    for weight, rate in zip(dealt, rates, strict=True):
        assert weight / sum(dealt) * total == pytest.approx(rate, rel=0.01)


def test_rates_that_no_weights_tell_are_refused():
    with pytest.raises(provision.InputError, match=r"replicas of bert carry from 1e-06 to 1e\+03"):
        weights("bert", [1e-6, 1e3])


def reached(deployments, services, route):
    """(weight as a part of all, rate that the process is told) of every process behind (Service, port, weight)s."""
    whole = sum(weight for _, _, weight in route)
    for name, port, weight in route:
        spec = services[name]
        [target] = [one["targetPort"] for one in spec["ports"] if one["port"] == port]
        [(label, value)] = spec["selector"].items()
        behind = [
            container for one in deployments if one["metadata"]["labels"].get(label) == value
            for container in one["spec"]["containers"] for each in container["ports"] if each["name"] == target
        ]
        for container in behind:
            yield weight / whole / len(behind), container


@pytest.mark.parametrize("to", KUBERNETES)
@pytest.mark.parametrize("seed", range(6))
def test_every_process_gets_its_rate(seed, to):
    """Through routes of both kinds every process of a workload is reached once, at its rate."""
    instance, plan = planned(seed)
    if plan is None:
        return
    try:
        files = TARGETS[to](plan, instance, 8).files
    except provision.InputError:
        assert to == "kubernetes-device-plugin"
        return
    pods = [one["spec"]["template"] for one in documents(files["deployments.yaml"])]
    services = {one["metadata"]["name"]: one["spec"] for one in documents(files["services.yaml"])}
    kubernetes_validate.validate(documents(files["services.yaml"])[0], "1.34", strict=True)
    kubernetes_validate.validate(documents(files["deployments.yaml"])[0], "1.34", strict=True)
    gateway, istio = documents(files["gateway.yaml"]), documents(files["istio.yaml"])
    for one in gateway:
        jsonschema.validate(one, HTTP_ROUTE)
    by_gateway = [[(ref["name"], ref["port"], ref["weight"]) for ref in one["spec"]["rules"][0]["backendRefs"]]
                  for one in gateway]
    by_istio = [[(ref["destination"]["host"], ref["destination"]["port"]["number"], ref["weight"])
                 for ref in one["spec"]["http"][0]["route"]] for one in istio if one["kind"] == "VirtualService"]
    assert by_gateway == by_istio
    assert {one["spec"]["host"] for one in istio if one["kind"] == "DestinationRule"} == set(services)
    processes = sum(one.processes for _, _, _, one in plan.replicas())
    found = [list(reached(pods, services, route)) for route in by_gateway]
    assert sum(map(len, found)) == processes
    for several in found:
        told = [_told(container) for _, container in several]
        assert len({name for name, _, _ in told}) == 1 and len({id(container) for _, container in several}) == len(told)
        routed = sum(rate for _, rate, _ in told)
        for (part, container), (_, rate, port) in zip(several, told, strict=True):
            assert part * routed == pytest.approx(rate, rel=0.01)
            assert container["ports"][0]["containerPort"] == port == container["livenessProbe"]["httpGet"]["port"]
    for pod in pods:
        ports = [one["ports"][0] for one in pod["spec"]["containers"]]
        assert len({one["containerPort"] for one in ports}) == len({one["name"] for one in ports}) == len(ports)
        assert all(len(one["name"]) <= 15 for one in ports)


def _told(container):
    """Workload, rate in requests/s and port that a container is told."""
    values = {one["name"]: one["value"] for one in container["env"]}
    return values["PROVISION_WORKLOAD"], float(values["PROVISION_RATE_RPS"]), int(values["PROVISION_PORT"])


def uneven(*rates):
    """An instance and a plan of a workload with a replica for each rate, on slices of their own."""
    instance = provision.read("parvagpu-s1")
    name = instance.workloads[0].name
    pieces = [Slice(profile="1g.10gb", start=at % 7, replicas=(Replica(workload=name, batch=1, rate_rps=rate),))
              for at, rate in enumerate(rates)]
    gpus = tuple(PlannedGpu(gpu="a100-80gb", mig=True, slices=tuple(pieces[at : at + 7]))
                 for at in range(0, len(pieces), 7))
    return instance, Plan(version=1, instance="one", gpus=gpus)


def test_replicas_of_unequal_rates_have_services_of_their_own():
    instance, plan = uneven(362.0, 362.0, 1288.0)
    files = TARGETS["kubernetes"](plan, instance, 8).files
    [route] = documents(files["gateway.yaml"])
    dealt = [ref["weight"] for ref in route["spec"]["rules"][0]["backendRefs"]]
    assert len(documents(files["services.yaml"])) == 2 and dealt[0] / dealt[1] == pytest.approx(724 / 1288, rel=0.01)


@pytest.mark.parametrize("rates", [tuple(range(1, 18)), (0.001, 100.0)])
def test_what_the_gateway_api_cannot_say_is_left_to_istio(rates):
    """More backends, or larger weights, than an HTTPRoute takes."""
    instance, plan = uneven(*map(float, rates))
    found = TARGETS["kubernetes"](plan, instance, 8)
    assert "gateway.yaml" not in found.files and any("use istio.yaml" in note for note in found.notes)
    assert documents(found.files["istio.yaml"])
    assert "templates/gateway.yaml" not in TARGETS["helm"](plan, instance, 8).files


def test_routing_of_a_workload_is_kept():
    """How requests are dealt among equals is that of the policy."""
    instance, plan = uneven(1.0, 2.0)
    busy = instance.with_policy(routing="least_loaded")
    istio = TARGETS["kubernetes"](plan, busy, 8).files["istio.yaml"]
    assert "LEAST_REQUEST" in istio and "RANDOM" not in istio
    assert "least_conn;" in TARGETS["shell"](plan, busy, 8).files["nginx.conf"]
    assert "random;" in TARGETS["triton"](plan, instance, 8).files["nginx.conf"]


def test_helm_adds_routes_where_asked():
    instance, plan = uneven(1.0, 2.0)
    chart, plain = (TARGETS[to](plan, instance, 8).files for to in ("helm", "kubernetes"))
    assert yaml.safe_load(chart["values.yaml"])["routing"] == "none"
    for one in ("gateway", "istio"):
        first, *rest, last = chart[f"templates/{one}.yaml"].splitlines()
        assert first == f'{{{{- if eq .Values.routing "{one}" }}}}' and last == "{{- end }}"
        assert documents("\n".join(rest)) == documents(plain[f"{one}.yaml"])


@pytest.mark.parametrize("to", ["shell", "triton"])
@pytest.mark.parametrize("seed", range(6))
def test_nginx_deals_every_rate(seed, to):
    """By upstream, servers carry the rates of the workload's processes, or of its Triton servers."""
    instance, plan = planned(seed)
    if plan is None:
        return
    try:
        text = TARGETS[to](plan, instance, 8).files["nginx.conf"]
    except provision.InputError:
        return
    wanted = defaultdict(list)
    for _, _, _, one in plan.replicas():
        wanted[one.workload] += [one.rate_rps / one.processes] * one.processes if to == "shell" else [one.rate_rps]
    names = slugs(one.name for one in instance.workloads)
    found = dict(re.findall(r"upstream (\S+) \{(.*?)\}", text, re.DOTALL))
    assert set(found) == {names[workload] for workload in wanted}
    addresses = re.findall(r"server (\S+:\d+) ", text)
    assert len(addresses) == len(set(addresses)) == sum(map(len, wanted.values()))
    for workload, rates in wanted.items():
        dealt = [int(one or 0) for one in re.findall(r"server \S+:\d+ (?:weight=(\d+)|down);", found[names[workload]])]
        carried = [one / sum(dealt) * sum(rates) for one in dealt]
        assert sorted(carried) == pytest.approx(sorted(rates), rel=0.01)
