"""inferno's instances as instances of this package: what they hold of GPU types that are known here, one GPU each.

inferno's servers become workloads, its accelerators entries of the fleet, and its coefficients performance data: an
iteration takes alpha, beta more per token and gamma more per token in the KV caches. Its targets are for means; here
they are for a percentile of the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from provision.instances.files.files import refused
from provision.instances.importers.tokens.inferno import Accelerator, Inferno, ModelProfile, Server
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.problem.instance import Instance

CENTS = 100
KNOWN = {"A100": "a100-80gb", "H100": "h100-80gb", "L4": "l4", "L40S": "l40s"}
"""Accelerators of inferno's samples that are GPU types here."""


class Imported(NamedTuple):
    """The instance, and the names of the accelerators and of the servers that it leaves out."""

    instance: Instance
    accelerators: tuple[str, ...]
    servers: tuple[str, ...]


def inferno_instance(given: Inferno, name: str, percentile: float, types: Mapping[str, str] = KNOWN) -> Imported:
    """An instance of those accelerators that are single GPUs of a known type, and the servers that they can serve.

    Parameters
    ----------
    given
        What inferno's files hold.
    name
        Of the instance.
    percentile
        Of the requests that are to keep the targets.
    types
        GPU types by inferno's types of accelerators.

    Raises
    ------
    InputError
        When a GPU type is unknown, no accelerator is left, or a server asks for no target of time.
    """
    kept = [one for one in given.accelerators if one.type in types and one.multiplicity == 1]
    files = [_performance(given, one, gpu_type(types[one.type]).name) for one in kept]
    served = [(one, data) for one, data in zip(kept, files, strict=True) if data["models"]]
    left_out = {one.name for one in given.accelerators} - {one.name for one, _ in served}
    if not served:
        raise InputError(f"inferno: no accelerator is a single GPU of a known type ({', '.join(sorted(left_out))}); "
                         f"name theirs with --gpus NAME=TYPE, known are {', '.join(types)}")
    known = {model for _, data in served for model in data["models"]}
    with refused("inferno"):
        instance = Instance(
            version=1, name=name, source="github.com/llm-inferno/sample-data",
            fleet=[_entry(given, one, data["gpu"]) for one, data in served],
            performance=tuple(data for _, data in served),
            workloads=[_workload(given, one, percentile) for one in given.servers if one.model in known],
        )
    return Imported(instance, tuple(sorted(left_out)),
                    tuple(one.name for one in given.servers if one.model not in known))


def _entry(given: Inferno, one: Accelerator, gpu: str) -> dict[str, Any]:
    count = {"count": given.capacity[one.type]} if one.type in given.capacity else {}
    return {"gpu": gpu, "mig": False, "price_per_hour": one.cost / CENTS} | count


def _performance(given: Inferno, accelerator: Accelerator, gpu: str) -> dict[str, Any]:
    profiles = [one for one in given.profiles if one.accelerator == accelerator.name and one.accelerators == 1]
    return {"version": 1, "kind": "tokens", "name": f"inferno-{accelerator.name.lower()}", "gpu": gpu,
            "source": "inferno's coefficients",
            "models": {one.name: {"slices": {WHOLE: _slice(one)}} for one in profiles}}


def _slice(one: ModelProfile) -> dict[str, Any]:
    costs = one.parameters
    return {"kv_tokens": one.max_batch * one.at_tokens, "step_ms": costs.alpha, "token_ms": costs.beta,
            "context_ms": costs.gamma}


def _workload(given: Inferno, server: Server, percentile: float) -> dict[str, Any]:
    target = given.target(server)
    rate_rps = max(server.rate_rps, target.tokens_per_s / server.output_tokens)
    limits = {name: value for name, value in (("ttft_ms", target.ttft_ms), ("tpot_ms", target.itl_ms)) if value}
    if len(limits) < 2:
        raise InputError(f"server {server.name}: class {server.service_class} asks {server.model} for no "
                         f"{'slo-itl' if target.ttft_ms else 'slo-ttft'}; add it to serviceclass-data.json")
    tokens = {"input": {"mean": server.input_tokens}, "output": {"mean": server.output_tokens}}
    return {"name": server.name, "model": server.model, "rate_rps": rate_rps, "tokens": tokens,
            "slo": {**limits, "percentile": percentile}, "min_replicas": server.min_replicas}
