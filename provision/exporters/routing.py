"""How requests reach replicas: ports of server processes and probes of their health, the objects of Kubernetes that
route by the weights of replicas, and nginx before servers that scripts start.

A pod has a container per process, and every container has its own port. Processes of one workload that carry equal
rates are behind one Service. The Service has one port for the first of these processes in every pod, one for the
second, and so on. Such a port is a backend, which distributes its requests evenly. Health probes are those of the Open
Inference Protocol (Triton, KServe); for language models they are those of vLLM.

Sources: gateway.networking.k8s.io/v1 HTTPRoute; networking.istio.io/v1 VirtualService and DestinationRule; nginx's
documentation of ngx_http_upstream_module.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from provision.exporters.common import Exported, slugs, yaml_text
from provision.exporters.pods import Pod, deployments
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

FIRST_PORT = 8000
LONGEST = 30
"""The most characters of a workload's slug in the name of a Service. With the plan's prefix, the name may have 63."""
HEALTH = {"readinessProbe": "/v2/health/ready", "livenessProbe": "/v2/health/live"}
TOKEN_HEALTH = dict.fromkeys(HEALTH, "/health")
SELECTOR = "service.provision/"
"""The labels of pods by which Services select them begin with this text."""


Group = tuple[str, str]
"""The processes behind one Service: a workload, and the rate of each process, as written in the container's
environment.
"""
EXACT = 100
"""The least weight of a server.

The method of largest remainders changes a weight by less than 1. So it changes a rate by less than 1 %.
"""
MOST = 2**31 - 1
"""The largest weight that Istio and nginx accept."""
FILE = "nginx.conf"
METHODS = {"random": ("random;",), "round_robin": (), "least_loaded": ("least_conn;",)}
"""The directives with which an upstream chooses a server in proportion to weights, by the routing of the workload."""
HEAD = """\
# Deals the requests of every workload by the weights of the plan; include it in the http block of nginx.
"""
SERVER = """\
server {{
  listen 80;
  server_name {name}.internal;
  location / {{ proxy_pass http://{name}; }}
}}
"""
NGINX_NOTE = (
    f"Include `{FILE}` in the http block of nginx: it deals the requests to NAME.internal by the weights of the plan, "
    "and takes the machines by their names here, which hosts or DNS must know."
)

Servers = Mapping[str, Sequence[tuple[str, float]]]
"""The servers of every workload: their addresses HOST:PORT, each with its rate in requests/s."""


class _Target(NamedTuple):
    """The Service of a Group, and the number of the group in the names of its processes' ports."""

    service: str
    number: int

    def port(self, place: int) -> str:
        """The name of a port, for the process with this position among the group's processes in a pod."""
        return f"g{self.number}-{place}"


class Backend(NamedTuple):
    """A port of a Service.

    Attributes
    ----------
    workload
        The workload that the port serves.
    service
        The name of the Service.
    port
        The number of the port.
    target
        The name of the containers' ports behind the port.
    rate_rps
        The total rate of all processes behind the port, in requests/s.
    """

    workload: str
    service: str
    port: int
    target: str
    rate_rps: float


def listening(instance: Instance, pods: Iterable[Pod], prefix: str) -> tuple[list[Pod], list[Backend]]:
    """Add ports, probes and labels to pods; return the pods, and the backends that they form.

    Parameters
    ----------
    instance, pods
        The Instance, and its plan's Pods.
    prefix
        The text with which the names of Services begin.
    """
    several = list(pods)
    targets = _targets(instance, several, prefix)
    rates: defaultdict[tuple[Group, int], float] = defaultdict(float)
    for pod in several:
        for group, place in _places(pod):
            rates[group, place] += float(group[1])
    backends = [
        Backend(group[0], targets[group].service, FIRST_PORT + place, targets[group].port(place), rate_rps)
        for (group, place), rate_rps in rates.items()
    ]
    return [_listening(instance, pod, targets) for pod in several], backends


def _targets(instance: Instance, pods: Iterable[Pod], prefix: str) -> dict[Group, _Target]:
    """For every Group, its Service and its number among all groups; the Services of each workload count from 0."""
    names = slugs((workload.name for workload in instance.workloads), LONGEST)
    number: Counter[str] = Counter()
    found: dict[Group, _Target] = {}
    for group in dict.fromkeys(group for pod in pods for group in pod.served):
        found[group] = _Target(f"{prefix}-{names[group[0]]}-{number[group[0]]}", len(found))
        number[group[0]] += 1
    return found


def _places(pod: Pod) -> list[tuple[Group, int]]:
    """The Group of every container of a pod, and its position among the group's containers in the pod."""
    seen: Counter[Group] = Counter()
    found = []
    for group in pod.served:
        found.append((group, seen[group]))
        seen[group] += 1
    return found


def _listening(instance: Instance, pod: Pod, targets: Mapping[Group, _Target]) -> Pod:
    """A pod whose containers listen on ports of their own, with probes, and with the labels that Services select."""
    containers = [
        container | {
            "env": [*container["env"], {"name": "PROVISION_PORT", "value": str(port)}],
            "ports": [{"name": targets[group].port(place), "containerPort": port}],
        } | probes(instance.workload[group[0]], port)
        for port, (container, (group, place)) in enumerate(zip(pod.containers, _places(pod), strict=True), FIRST_PORT)
    ]
    labels = {f"{SELECTOR}{targets[group].service}": "true" for group in pod.served}
    return pod._replace(containers=tuple(containers), labels=labels)


def probes(workload: Workload, port: int) -> dict[str, Any]:
    """The probes of a container: it has at most ten minutes to load its model, and must then be ready and alive."""
    paths = TOKEN_HEALTH if workload.tokens else HEALTH
    asked = {name: {"httpGet": {"path": path, "port": port}} for name, path in paths.items()}
    start = asked["readinessProbe"] | {"periodSeconds": 5, "failureThreshold": 120}
    return {"startupProbe": start} | {name: one | {"periodSeconds": 5} for name, one in asked.items()}


def services(backends: Iterable[Backend]) -> str:
    """The YAML text of the Services of backends."""
    ports: defaultdict[str, list[Backend]] = defaultdict(list)
    for one in backends:
        ports[one.service].append(one)
    return yaml_text(*(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {
                "selector": {f"{SELECTOR}{name}": "true"},
                "ports": [{"name": f"p{one.port}", "port": one.port, "targetPort": one.target} for one in found],
            },
        }
        for name, found in ports.items()
    ))


def weights(workload: str, rates_rps: Sequence[float]) -> list[int]:
    """Weights for the servers of a workload, by the method of largest remainders.

    Parameters
    ----------
    workload
        The name of the workload, for messages.
    rates_rps
        The rate of every server, in requests/s.

    Returns
    -------
    list of int
        Each weight's fraction of all weights is within 1 % of the rate's fraction of all rates. A rate of 0 has the
        weight 0. If all rates are 0, the weights are equal.

    Raises
    ------
    InputError
        If the rates differ too much for weights of 32 bits.
    """
    total = math.fsum(rates_rps)
    if total <= 0:
        return [EXACT] * len(rates_rps)
    least = min(rate for rate in rates_rps if rate > 0)
    whole = math.ceil(EXACT * total / least)
    if whole > MOST:
        raise InputError(
            f"export: the replicas of {workload} carry from {least:.3g} to {max(rates_rps):.3g} requests/s, which no "
            "weights of 32 bits tell; plan with even_replicas"
        )
    exact = [whole * rate / total for rate in rates_rps]
    dealt = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(exact)), key=lambda at: dealt[at] - exact[at])
    for at in by_remainder[: whole - sum(dealt)]:
        dealt[at] += 1
    return dealt


APPLIED = ("deployments.yaml", "services.yaml")
"""The files that every cluster accepts. Routes need components that are not part of Kubernetes."""
NOTE = (
    "Every container is to listen at PROVISION_PORT, and to answer the health requests of the Open Inference Protocol "
    "there (`tritonserver --http-port=$PROVISION_PORT`), or of a language model `/health` (vLLM)."
)


def serving(instance: Instance, pods: Iterable[Pod], prefix: str) -> Exported:
    """``deployments.yaml``, ``services.yaml`` and the routes, with notes on them.

    Parameters
    ----------
    instance, pods
        The Instance, and its plan's Pods.
    prefix
        The prefix of the names of its objects.
    """
    found, backends = listening(instance, pods, prefix)
    texts = deployments(instance, found), services(backends)
    files, notes = routes(instance, backends, prefix)
    return Exported(dict(zip(APPLIED, texts, strict=True)) | files, (NOTE, *notes))


GATEWAY = "provision"
"""The name of the Gateway (of the Gateway API or Istio) that routes belong to. The user creates it."""
MOST_BACKENDS, MOST_WEIGHT = 16, 10**6
"""The most backends in a rule of an HTTPRoute, and the largest weight of a backend."""
BALANCERS = {"random": "RANDOM", "round_robin": "ROUND_ROBIN", "least_loaded": "LEAST_REQUEST"}
"""Istio's load balancers, by the routing of a workload."""

Weighted = dict[str, list[tuple[Backend, int]]]
"""The backends of every workload, each with its weight."""


def routes(instance: Instance, backends: Sequence[Backend], prefix: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """``gateway.yaml``, if the Gateway API can express what the plan needs, ``istio.yaml``, and notes on them. Raises
    InputError if the rates of a workload cannot be expressed as weights.
    """
    dealt = _weighted(instance, backends)
    names = slugs((workload.name for workload in instance.workloads), LONGEST)
    files = {"istio.yaml": yaml_text(*_istio(instance, dealt, names, prefix))}
    use = (
        f"`kubectl apply -f` one of gateway.yaml (Gateway API) and istio.yaml: they deal the requests to "
        f"NAME.{prefix}.internal by the weights of the plan, from a Gateway named {GATEWAY}, which is yours to make. A "
        "workload with one port of one Service needs neither.",
    )
    for workload, found in dealt.items():
        if reason := _refusal(workload, found):
            return files, (*use, reason)
    return {"gateway.yaml": yaml_text(*_http_routes(dealt, names, prefix))} | files, use


def _weighted(instance: Instance, backends: Iterable[Backend]) -> Weighted:
    """The backends of each workload that has any, with their weights. Raises InputError as ``weights`` does."""
    found: dict[str, list[Backend]] = {workload.name: [] for workload in instance.workloads}
    for one in backends:
        found[one.workload].append(one)
    return {
        workload: list(zip(several, weights(workload, [one.rate_rps for one in several]), strict=True))
        for workload, several in found.items() if several
    }


def _host(name: str, prefix: str) -> str:
    """The host name that clients use for the workload with the slug ``name``."""
    return f"{name}.{prefix}.internal"


def _refusal(workload: str, dealt: Sequence[tuple[Backend, int]]) -> str | None:
    """Why an HTTPRoute cannot distribute the requests of a workload as planned; None if it can."""
    if len(dealt) > MOST_BACKENDS:
        return (f"There is no gateway.yaml: {workload} has {len(dealt)} backends of different rates, a rule of an "
                f"HTTPRoute takes {MOST_BACKENDS}; use istio.yaml or plan with even_replicas.")
    if any(weight > MOST_WEIGHT for _, weight in dealt):
        return (f"There is no gateway.yaml: the rates of {workload} need weights over {MOST_WEIGHT:,}; use istio.yaml "
                "or plan with even_replicas.")
    return None


def _http_routes(dealt: Weighted, names: dict[str, str], prefix: str) -> Iterator[dict[str, Any]]:
    for workload, found in dealt.items():
        refs = [{"name": one.service, "port": one.port, "weight": weight} for one, weight in found]
        yield {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": f"{prefix}-{names[workload]}"},
            "spec": {
                "parentRefs": [{"name": GATEWAY}],
                "hostnames": [_host(names[workload], prefix)],
                "rules": [{"backendRefs": refs}],
            },
        }


def _istio(instance: Instance, dealt: Weighted, names: dict[str, str], prefix: str) -> Iterator[dict[str, Any]]:
    for workload, found in dealt.items():
        yield _object("VirtualService", f"{prefix}-{names[workload]}", {
            "hosts": [_host(names[workload], prefix)],
            "gateways": [GATEWAY],
            "http": [{"route": [
                {"destination": {"host": one.service, "port": {"number": one.port}}, "weight": weight}
                for one, weight in found
            ]}],
        })
        balancer = BALANCERS[instance.policy.routing_of(instance.workload[workload])]
        for service in dict.fromkeys(one.service for one, _ in found):
            policy = {"loadBalancer": {"simple": balancer}}
            yield _object("DestinationRule", service, {"host": service, "trafficPolicy": policy})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def configuration(instance: Instance, servers: Servers) -> str:
    """The configuration of nginx for the given servers. Raises InputError if the rates of a workload cannot be
    expressed as weights.
    """
    names = slugs(workload.name for workload in instance.workloads)
    blocks = [_block(instance, names[workload], workload, found) for workload, found in servers.items()]
    return "\n".join([HEAD, *blocks])


def _block(instance: Instance, name: str, workload: str, servers: Sequence[tuple[str, float]]) -> str:
    """The upstream of a workload, and the nginx server in front of it."""
    dealt = weights(workload, [rate_rps for _, rate_rps in servers])
    lines = [*METHODS[instance.policy.routing_of(instance.workload[workload])]]
    for (address, _), weight in zip(servers, dealt, strict=True):
        lines.append(f"server {address} {f'weight={weight}' if weight else 'down'};")
    inside = "".join(f"  {line}\n" for line in lines)
    return f"upstream {name} {{\n{inside}}}\n{SERVER.format(name=name)}"
