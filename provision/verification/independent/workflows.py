"""Judges workflows under random arrivals: every request passes through all workloads of its workflow."""

from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from .latency_rules import FIRST_REQUESTS, ROUNDING, WARM_UP, Found
from .records import Instance, UndecidedError, Workflow
from .replays.arrivals import arrival_times, calmed
from .replays.late import Counts, judged
from .servers import Server, answered

Floats = NDArray[np.float64]


def limit_ms(instance: Instance, workflow: Workflow) -> float:
    """The SLO of the workflow in ms: the largest sum of SLOs along a path, times safety."""
    until: dict[str, float] = {}
    for name in order_of(workflow):
        before = [until[early] for early, late in workflow.edges if late == name]
        until[name] = max(before, default=0.0) + instance.workloads[name].slo_ms
    return max(until.values()) * instance.policy.safety


def order_of(workflow: Workflow) -> list[str]:
    """The workloads in topological order: each comes after the workloads whose answers it needs."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: set() for name in workflow.members})
    for early, late in workflow.edges:
        sorter.add(late, early)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise UndecidedError(f"workflow {workflow.name} leads in a circle") from error


def judge_workflow(instance: Instance, workflow: Workflow, servers: dict[str, list[Server]], rates: dict[str, Floats],
                   budget_s: float) -> list[Found]:
    """Replay a workflow, and judge each of its workloads and the workflow as a whole. A request arrives at a workload
    when all workloads before it have answered it.

    The workflow's rate is the least of its workloads' rates. A workload with a larger rate gets the rest as separate
    requests.
    """
    names = order_of(workflow)
    rate_rps = min(float(rates[name].sum()) for name in names)
    limits = [instance.workloads[name].slo_ms * instance.policy.safety for name in names]
    whole_ms = limit_ms(instance, workflow)
    percents = [instance.workloads[name].percentile for name in names]

    def replay(seed: int, requests: int) -> Counts:
        rng = np.random.default_rng([seed, 1])
        start = calmed(arrival_times(instance.workloads[names[0]].arrivals, rate_rps, requests, rng), whole_ms)
        ended: dict[str, Floats] = {}
        counts: Counts = []
        for name, limit in zip(names, limits, strict=True):
            before = [ended[early] for early, late in workflow.edges if late == name]
            arrived = np.max([start, *before], axis=0)
            ended[name] = _served(instance, name, servers[name], rates[name], arrived, rate_rps, rng)
            counts.append(_counted(ended[name] - arrived, limit))
        whole = np.max(list(ended.values()), axis=0) - start
        return [*counts, _counted(whole, whole_ms)]

    allowed = [1 - percent / 100 for percent in [*percents, workflow.percentile]]
    found = judged(replay, allowed, FIRST_REQUESTS, budget_s)
    rows = zip([*names, f"workflow {workflow.name}"], [*limits, whole_ms],
               [*percents, workflow.percentile], found, strict=True)
    bounded = any(one.shared for name in names for one in servers[name])
    return [Found(name, limit, percent, 1.0, late, "replayed as a workflow", bounded)
            for name, limit, percent, late in rows]


def _counted(taken: Floats, limit: float) -> tuple[int, int]:
    kept = taken[int(WARM_UP * len(taken)):]
    return int((kept > limit * (1 + ROUNDING)).sum()), len(kept)


def _served(instance: Instance, name: str, servers: list[Server], rates: Floats, arrived: Floats, rate_rps: float,
            rng: np.random.Generator) -> Floats:
    """When a workflow's requests are answered at one workload, in ms. The workload's separate requests mix with them.
    """
    more_rps = float(rates.sum()) - rate_rps
    own = np.empty(0)
    if more_rps > 1e-6 * rate_rps:
        many = int(arrived.max() * more_rps / 1000) + 1
        own = arrival_times(instance.workloads[name].arrivals, more_rps, many, rng)
    everyone = np.concatenate([arrived, own])
    order = np.argsort(everyone, kind="stable")
    ended = np.empty(len(everyone))
    ended[order] = answered(instance, servers, rates, everyone[order], rng, exactly=False)
    return ended[: len(arrived)]
