"""How requests reach replicas: the weights of replicas, and the objects of Kubernetes that route by them.

Source: gateway.networking.k8s.io/v1 HTTPRoute; networking.istio.io/v1 VirtualService and DestinationRule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from provision.exporters.common import Exported, slugs, yaml_text
from provision.exporters.pods import Pod, deployments
from provision.exporters.routing.listening import LONGEST, Backend, listening, services
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance

EXACT = 100
"""The least weight of a server.

The method of largest remainders changes a weight by less than 1. So it changes a rate by less than 1 %.
"""
MOST = 2**31 - 1
"""The largest weight that Istio and nginx accept."""


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
