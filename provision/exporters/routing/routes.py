"""Routes that distribute the requests of a workload to its replicas as planned: Gateway API, or Istio.

Source: gateway.networking.k8s.io/v1 HTTPRoute; networking.istio.io/v1 VirtualService and DestinationRule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from provision.exporters.common import slugs, yaml_text
from provision.exporters.routing.listening import LONGEST, Backend
from provision.exporters.routing.weights import weights

if TYPE_CHECKING:
    from provision.models.problem.instance import Instance

GATEWAY = "provision"
"""The name of the Gateway (of the Gateway API or Istio) that routes belong to. The user creates it."""
MOST_BACKENDS, MOST_WEIGHT = 16, 10**6
"""The most backends in a rule of an HTTPRoute, and the largest weight of a backend."""
BALANCERS = {"random": "RANDOM", "round_robin": "ROUND_ROBIN", "least_loaded": "LEAST_REQUEST"}
"""Istio's load balancers, by the routing of a workload."""

Weighted = dict[str, list[tuple[Backend, int]]]
"""The backends of every workload, each with its weight."""


def routes(instance: Instance, backends: Sequence[Backend], prefix: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """``gateway.yaml``, if the Gateway API can express what the plan needs, ``istio.yaml``, and notes on them.

    Raises
    ------
    InputError
        If the rates of a workload cannot be expressed as weights.
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
    """The backends of every workload, each with its weight, in the order of the workloads."""
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
