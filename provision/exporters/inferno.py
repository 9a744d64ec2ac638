"""Exports a plan as inferno's JSON files (github.com/llm-inferno): services, accelerators and allocation.

The time of an iteration is alpha + beta per sequence + gamma per token in the KV caches. Alpha and beta are a straight
line through the times with one sequence and with a full batch. Averages are computed by inferno's own analyzer at the
routed rates.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NamedTuple

from provision.exporters.common import Exported
from provision.heuristics.rivals.inferno import Coefficients, Demand, means
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.tokens.data import TokenModels, TokenSlice
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.workload import LEAST_RPS, Workload

CENTS, SECONDS = 100, 60


class _Served(NamedTuple):
    """A workload, its replicas (all on whole GPUs of one type), and the data of its model on this type."""

    workload: Workload
    gpu: str
    replicas: list[Replica]
    data: TokenModels
    model: str

    @property
    def slice_(self) -> TokenSlice:
        """The data of the whole GPU."""
        return self.data.models[self.model].slices[WHOLE]

    @property
    def batch(self) -> int:
        """The most sequences at once: the engine's limit, or as many answers of mean length as the KV memory holds."""
        return max(min(self.slice_.kv_tokens // self.output_tokens, self.replicas[0].batch), 1)

    @property
    def output_tokens(self) -> int:
        """The mean tokens of an answer."""
        assert self.workload.tokens is not None
        return max(round(self.workload.tokens.output.counts.mean), 1)

    @property
    def input_tokens(self) -> int:
        """The mean tokens of a prompt."""
        assert self.workload.tokens is not None
        return max(round(self.workload.tokens.input.counts.mean), 1)

    @property
    def costs(self) -> Coefficients:
        """The coefficients of the straight line through the iteration times with one sequence and with the full batch.
        """
        one, many = self.slice_.iteration_ms(1, 0), self.slice_.iteration_ms(max(self.batch, 2), 0)
        beta = (many - one) / (max(self.batch, 2) - 1)
        return Coefficients(one - beta, beta, self.slice_.context_ms)


def render(plan: Plan, instance: Instance, gpus_per_node: int) -> Exported:
    """``accelerator-data.json`` and the other files. Every workload is a server with its own service class."""
    served = _served(plan, instance)
    files = {
        "accelerator": {"accelerators": [_accelerator(instance, gpu) for gpu in sorted({one.gpu for one in served})]},
        "capacity": {"count": [{"type": entry.gpu, "count": _count(plan, entry.gpu, entry.count)}
                               for entry in instance.fleet]},
        "model": {"models": _models(served)},
        "serviceclass": {"serviceClasses": [_service_class(one.workload) for one in served]},
        "server": {"servers": [_server(one) for one in served]},
        "solution": {"allocations": {one.workload.name: _allocation(instance, one) for one in served}},
    }
    notes = ("inferno's targets are for means; those written here are for the percentile of the instance's SLOs.",
             "Coefficients are a straight line through those of the instance; inferno knows no prefill of its own.")
    texts = {f"{name}-data.json": json.dumps(content, indent=2) + "\n" for name, content in files.items()}
    return Exported(texts, notes)


def _served(plan: Plan, instance: Instance) -> list[_Served]:
    """The workloads of a plan. Raises InputError if a workload is not a language model on whole GPUs of a single type.
    """
    places: defaultdict[str, list[tuple[str, Replica]]] = defaultdict(list)
    for at, _, piece, replica in plan.replicas():
        if piece.profile != WHOLE or replica.model is not None:
            raise InputError(f"inferno: GPU {at}: {replica.workload} runs on a MIG slice or as a variant, which "
                             "inferno does not know; plan whole GPUs (mig: false)")
        places[replica.workload].append((plan.gpus[at].gpu, replica))
    found = []
    for name, there in places.items():
        workload, gpus = instance.workload[name], sorted({gpu for gpu, _ in there})
        data = instance.performance_of(gpus[0], workload.model)
        if workload.tokens is None or not isinstance(data, TokenModels):
            raise InputError(f"inferno: workload {name} is no language model, and inferno serves nothing else; leave "
                             "it out")
        if workload.tokens.pool:
            raise InputError(f"inferno: workload {name} is one of two pools, which inferno does not know; leave "
                             "disaggregated out")
        if len(gpus) > 1:
            raise InputError(f"inferno: workload {name} runs on {' and '.join(gpus)}, inferno knows one type per "
                             "server; plan with --method inferno")
        found.append(_Served(workload, gpus[0], [one for _, one in there], data, workload.model))
    return found


def _accelerator(instance: Instance, gpu: str) -> dict[str, Any]:
    return {"name": gpu, "type": gpu, "multiplicity": 1, "cost": CENTS * _price(instance, gpu)}


def _price(instance: Instance, gpu: str) -> float:
    return min(entry.price_per_hour or 1.0 for entry in instance.fleet if entry.gpu == gpu)


def _count(plan: Plan, gpu: str, count: int | None) -> int:
    """The number of available GPUs: the instance's limit or, if there is none, the number in the plan."""
    return sum(one.gpu == gpu for one in plan.gpus) if count is None else count


def _models(served: list[_Served]) -> list[dict[str, Any]]:
    """A profile per model and GPU type. Of several workloads, the one with the shortest answers determines the batch.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in sorted(served, key=lambda one: -one.output_tokens):
        found[one.model, one.gpu] = {
            "name": one.model, "acc": one.gpu, "accCount": 1, "maxBatchSize": one.batch, "atTokens": one.output_tokens,
            "perfParms": one.costs._asdict(),
        }  # fmt: skip
    return list(found.values())


def _service_class(workload: Workload) -> dict[str, Any]:
    target = {"model": workload.model, "slo-itl": _limit(workload, 1), "slo-ttft": _limit(workload, 0)}
    return {"name": workload.name, "priority": 1, "modelTargets": [target]}


def _limit(workload: Workload, at: int) -> float:
    """A limit in ms. No limit is written as 0, as inferno expects."""
    limit_ms = workload.limits.times_ms[at]
    return limit_ms if limit_ms < float("inf") else 0.0


def _server(one: _Served) -> dict[str, Any]:
    return {"name": one.workload.name, "class": one.workload.name, "model": one.model,
            "minNumReplicas": one.workload.min_replicas, "currentAlloc": {"load": _load(one)}}


def _load(one: _Served) -> dict[str, Any]:
    return {"arrivalRate": one.workload.rate_rps * SECONDS, "avgInTokens": one.input_tokens,
            "avgOutTokens": one.output_tokens}


def _allocation(instance: Instance, one: _Served) -> dict[str, Any]:
    rate_rps = max(max(replica.rate_rps for replica in one.replicas), LEAST_RPS)
    average = means(one.costs, Demand(one.input_tokens, one.output_tokens), one.batch, rate_rps)
    return {"accelerator": one.gpu, "numReplicas": len(one.replicas), "maxBatch": one.batch,
            "cost": CENTS * len(one.replicas) * _price(instance, one.gpu), "itlAverage": average.itl_ms,
            "ttftAverage": average.ttft_ms, "load": _load(one)}
