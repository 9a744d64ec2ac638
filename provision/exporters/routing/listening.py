"""Ports of the server processes in pods, probes of their health, and the Services by which requests reach them.

A pod has a container per process, and every container has its own port. Processes of one workload that carry equal
rates are behind one Service. The Service has one port for the first of these processes in every pod, one for the
second, and so on. Such a port is a backend, which distributes its requests evenly. Health probes are those of the Open
Inference Protocol (Triton, KServe); for language models they are those of vLLM.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from provision.exporters.common import slugs, yaml_text
from provision.exporters.pods import Pod
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
