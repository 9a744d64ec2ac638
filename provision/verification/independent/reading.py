"""Reads instance, plan, performance and price files, independently of the rest of the package."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from provision.models.base.errors import InputError

from .nvidia import has_mig
from .records import FleetEntry, Instance, PlannedGpu, Policy, Replica, Slice, Tree, Workflow, Workload
from .uncertain import burstier, factors

MOST_PERCENT = 99.0
"""The percentile if none is stated."""


@dataclass(frozen=True)
class Shelf:
    """The paths of shipped files: the folder of instances, the folder of performance data, and the file of list prices.
    """

    instances: Path
    performance: Path
    prices: Path


def read_tree(path: Path) -> Tree:
    """The mapping of a YAML or JSON file (JSON is YAML)."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no mapping")
    return content


def read_instance(name: str | Path, shelf: Shelf) -> Instance:
    """The instance in a file, or a shipped instance by its name."""
    path, shipped = Path(name), shelf.instances / f"{name}.yaml"
    if not path.exists() and shipped.is_file():
        path = shipped
    return instance_of(read_tree(path), shelf, path.parent)


def instance_of(tree: Tree, shelf: Shelf, folder: Path = Path()) -> Instance:
    """The instance in a mapping. Files that it names are in ``folder``."""
    try:
        return _instance(tree, shelf, folder)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"instance {tree.get('name')}: {type(error).__name__}: {error}") from error


def _instance(tree: Tree, shelf: Shelf, folder: Path) -> Instance:
    data = tree["performance"]
    read = tuple(_performance(one, shelf, folder) for one in (data if isinstance(data, list) else [data]))
    policy = _policy(tree, read)
    common = {"arrivals": {"process": "poisson"}, "routing": "random", "percentile": MOST_PERCENT}
    common |= {key: value for key, value in (tree.get("policy") or {}).items() if key in common and value is not None}
    all_alike = {"arrivals": burstier(tree)} if burstier(tree) else {}
    workloads = [each for one in tree["workloads"] for each in _pools(_workload(one | all_alike, common, folder))]
    return Instance(
        name=tree["name"], objective=tree.get("objective", "min_cost"), policy=policy,
        fleet=tuple(_entry(one, shelf) for one in tree["fleet"]),
        performance=read,
        workloads={one.name: one for one in workloads},
        workflows=(*map(_workflow, tree.get("workflows") or []),
                   *(Workflow(one.name.removesuffix("-prefill"), (one.name, after.name), ((one.name, after.name),),
                              float((one.token_slo or {}).get("percentile") or one.percentile))
                     for one, after in pairwise(workloads) if (one.tokens or {}).get("split"))),
        power=tree.get("power") or {},
        places=tree.get("places") is not None,
    )


def _pools(one: Workload) -> tuple[Workload, ...]:
    """The workload itself; or the prefill and the decode workload if its tokens ask for two pools. The default transfer
    is that of 320 KiB per token at 25 GB/s.
    """
    tokens, slo = one.tokens or {}, one.token_slo or {}
    if not tokens.get("disaggregated"):
        return (one,)
    asked = tokens["disaggregated"] if isinstance(tokens["disaggregated"], dict) else {}
    moved_ms = float(asked.get("kv_kib_per_token", 320)) * 1024 / (1e6 * float(asked.get("gb_per_s", 25)))
    whole_ms = float(slo.get("e2e_ms") or one.slo_ms)
    common = {name: value for name, value in tokens.items() if name not in ("disaggregated", "shared_prefix")}
    before = common | {"pool": "prefill", "split": True, "transfer_ms_per_token": moved_ms,
                       "shared_prefix": tokens.get("shared_prefix")}
    return (replace(one, name=f"{one.name}-prefill", tokens=before, slo_ms=min(whole_ms, float(slo["ttft_ms"]))),
            replace(one, name=f"{one.name}-decode", tokens=common | {"pool": "decode"},
                    slo_ms=max(whole_ms - float(slo["ttft_ms"]), 0.0)))


def _policy(tree: Tree, data: tuple[Tree, ...]) -> Policy:
    """The policy. Files of version 1 that name no rule mean ``half_slo``."""
    stated = tree.get("policy") or {}
    rule = stated.get("latency_budget") or ("half_slo" if tree.get("version") == 1 else "queueing")
    survive = (stated.get("survive") or {}).get("gpu_failures", 0)
    must_bear = factors(tree, data)
    return Policy(rule, float(stated.get("safety", 1)) / must_bear.service,
                  (1 + float(stated.get("headroom", 0))) * must_bear.rate * must_bear.service - 1,
                  bool(stated.get("share_slices", False)), int(survive), bool(stated.get("even_replicas", False)),
                  must_bear.first_token / must_bear.service)


def _workload(one: Tree, common: Tree, folder: Path) -> Workload:
    said = {key: one[key] if one.get(key) is not None else common[key] for key in common}
    arrivals = dict(said["arrivals"])
    if arrivals.get("process") == "trace":
        arrivals["path"] = str(folder / arrivals["path"])
    limit = one.get("max_replicas")
    return Workload(
        name=one["name"], models=(one["model"], *(one.get("variants") or [])), slo_ms=float(one.get("slo_ms") or 0),
        rate_rps=float(one["rate_rps"]), min_replicas=int(one.get("min_replicas", 1)),
        max_replicas=None if limit is None else int(limit),
        max_share_per_gpu=float(one.get("max_share_per_gpu", 1)), arrivals=arrivals, routing=said["routing"],
        percentile=float(said["percentile"]), tokens=one.get("tokens"), token_slo=one.get("slo"),
    )


def _workflow(one: Tree) -> Workflow:
    stages = one.get("stages") or []
    edges = [tuple(edge) for edge in one.get("edges") or []]
    edges += [(early, late) for first, second in pairwise(stages)
              for early in first for late in second]
    members = dict.fromkeys([name for stage in stages for name in stage] + [name for edge in edges for name in edge])
    return Workflow(one["name"], tuple(members), tuple((a, b) for a, b in edges),
                    float(one.get("percentile", MOST_PERCENT)))


def _entry(one: Tree, shelf: Shelf) -> FleetEntry:
    price = one.get("price_per_hour")
    if price is None and one.get("price"):
        price = _list_price(one["gpu"], one["price"], shelf)
    mig = one.get("mig")
    return FleetEntry(one["gpu"], has_mig(one["gpu"]) if mig is None else bool(mig), bool(one.get("mps", True)),
                      None if price is None else float(price), one.get("count"), bool(one.get("committed")))


def _list_price(gpu: str, named: str, shelf: Shelf) -> float:
    """The price of PROVIDER or PROVIDER.TIER (on demand by default) in the shipped table; a node costs as much as its
    GPUs.
    """
    many, _, single = gpu.rpartition("x") if gpu.partition("x")[0].isdigit() else ("1", "", gpu)
    provider, _, tier = named.partition(".")
    table = read_tree(shelf.prices)
    for row in table["prices"]:
        if row[:3] == [single, provider, tier or "on_demand"]:
            return int(many) * float(row[3])
    raise InputError(f"fleet: no list price {named} of {gpu} in {shelf.prices.name}")


def _performance(one: Any, shelf: Shelf, folder: Path) -> Tree:
    if isinstance(one, dict):
        return one
    beside = folder / one
    return read_tree(beside if beside.is_file() else shelf.performance / f"{one}.yaml")


def read_plan(path: Path, instance: Instance) -> tuple[PlannedGpu, ...]:
    """The GPUs of a plan's file."""
    return plan_of(read_tree(path), instance)


def plan_of(tree: Tree, instance: Instance) -> tuple[PlannedGpu, ...]:
    """The GPUs of a plan that is given as a mapping, or as an entry of the ledger."""
    tree = tree.get("plan", tree)
    try:
        return tuple(_gpu(index, one, instance) for index, one in enumerate(tree["gpus"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"plan: {type(error).__name__}: {error}") from error


def _gpu(index: int, one: Tree, instance: Instance) -> PlannedGpu:
    mig = bool(one["mig"])
    slices = tuple(
        Slice(index, one["gpu"], mig, piece["profile"], int(piece.get("start", 0)),
              tuple(_replica(replica, instance) for replica in piece.get("replicas") or []))
        for piece in one.get("slices") or [])
    return PlannedGpu(one["gpu"], mig, slices)


def _replica(one: Tree, instance: Instance) -> Replica:
    workload = instance.workloads.get(one["workload"])
    model = one.get("model") or (workload.models[0] if workload else "")
    return Replica(one["workload"], model, int(one["batch"]), int(one.get("processes", 1)),
                   float(one.get("sm_share", 1)), float(one["rate_rps"]), one.get("turn"))
