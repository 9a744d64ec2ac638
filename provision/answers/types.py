"""The cost of each workload (the price of every GPU is divided among the replicas on it), and sentences that compare
GPU types: for the plan, and per million requests.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from provision.draw.output import number, plural
from provision.draw.verdict import money
from provision.formulations.search.segments import best_segments, cap_rps, partitions_of
from provision.instances.files.files import validate
from provision.models.base.errors import InputError
from provision.models.base.objects import known
from provision.models.base.register import did_you_mean
from provision.models.hardware.gpu import WHOLE, gpu_types, known_type
from provision.models.hardware.prices import list_prices
from provision.models.performance.catalogue import load_performance, shipped_performance
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour, objective_of
from provision.models.problem.workload import FleetEntry, Workload
from provision.solving.solve import solve

REQUESTS, HOUR_S = 1e6, 3600


class Cost(NamedTuple):
    """The cost of a workload: per hour, as a fraction of the plan's cost, and per million requests (None if the
    workload has no requests).
    """

    workload: str
    per_hour: float
    part: float
    per_million: float | None


def costs(instance: Instance, plan: Plan) -> list[Cost]:
    """The cost of every workload, the most expensive first; empty if a GPU of the plan has no price.

    The price of a GPU is divided among the replicas on it in proportion to the memory slices of their slices; on a
    shared slice, in proportion to their SM shares. The replicas on a GPU also pay for its idle part.
    Committed GPUs that no replica uses are part of the plan's cost and no workload's.
    """
    per_hour: dict[str, float] = defaultdict(float)
    for gpu, entry in zip(plan.gpus, objective_of(instance).entries_of(plan), strict=True):
        price = instance.fleet[entry].price_per_hour if entry >= 0 else None
        if price is None:
            return []
        sizes = [(one.workload, _memory(gpu.gpu, piece) * share / (sum(piece.held_shares) or 1.0))
                 for piece in gpu.slices for one, share in zip(piece.replicas, piece.held_shares, strict=True)]
        whole = sum(size for _, size in sizes)
        for name, size in sizes:
            per_hour[name] += price * size / whole
    total = cost_per_hour(instance, plan) or 1.0
    found = [_cost(instance, name, value, total) for name, value in per_hour.items()]
    return sorted(found, key=lambda one: -one.per_hour)


def _cost(instance: Instance, name: str, per_hour: float, total: float) -> Cost:
    requests = instance.workload[name].rate_rps * HOUR_S / REQUESTS if name in instance.workload else 0.0
    return Cost(name, per_hour, per_hour / total, per_hour / requests if requests else None)


def _memory(gpu: str, piece: Slice) -> float:
    """The number of memory slices of a slice; a whole GPU counts as one."""
    kind = known_type(gpu)
    return 1.0 if piece.profile == WHOLE or kind is None else float(kind.profiles[piece.profile].memory)


COSTLIER = 1.005
"""The ratio of two costs up to which they count as equal."""


def types_of(instance: Instance) -> list[str]:
    """The names of the GPU types of an instance's fleet, each once."""
    return list(dict.fromkeys(entry.gpu for entry in instance.fleet))


def check_type(gpu: str) -> None:
    """Refuse a name that is not that of a GPU type. Raises InputError if there is no such GPU type; the message
    suggests a similar name.
    """
    if gpu not in gpu_types():
        raise InputError(f"--on {gpu}: no such GPU type; provision gpus lists them{did_you_mean(gpu, gpu_types())}")


def with_type(instance: Instance, gpu: str) -> Instance:
    """The instance with a single GPU type. If the fleet lacks the type, its list price and shipped data are used.
    Raises InputError if there is no such type, or if the fleet has prices but no list price of this type is known.
    """
    fields = {name: getattr(instance, name) for name in Instance.model_fields}
    if gpu in types_of(instance):
        return validate(Instance, fields | {"fleet": [entry for entry in instance.fleet if entry.gpu == gpu]}, gpu)
    check_type(gpu)
    prices = sorted(price.per_hour for price in list_prices(gpu))
    if instance.fleet[0].price_per_hour is not None and not prices:
        raise InputError(f"no list price of {gpu} is known; put it into the fleet with a price_per_hour")
    entry = {"gpu": gpu} | ({"price_per_hour": prices[0]} if instance.fleet[0].price_per_hour is not None else {})
    have = {data.name for data in instance.performance}
    more = [load_performance(name) for name in shipped_performance()]
    data = [*instance.performance, *(one for one in more if one.gpu == gpu and one.name not in have)]
    return validate(Instance, fields | {"fleet": [validate(FleetEntry, entry, gpu)], "performance": data}, gpu)


def whole_gpu_rps(instance: Instance) -> dict[str, dict[str, float]]:
    """The highest rate (requests/s) that one GPU with its best partition carries within the SLO, by workload and GPU
    type.
    """
    segments = best_segments(instance)
    partitions = partitions_of(instance, segments)
    useful = segments.throughput_rps.clip(max=cap_rps(instance)[:, None])
    most = useful @ partitions.slots.T
    types = [instance.fleet[entry].gpu for entry in partitions.entry]
    return {
        one.name: {gpu: max(float(value) for value, there in zip(row, types, strict=True) if there == gpu)
                   for gpu in dict.fromkeys(types)}
        for one, row in zip(instance.workloads, most, strict=True)
    }


def why_type(instance: Instance, gpu: str, value: float | None, time_limit_s: float, of: str | None) -> Iterator[str]:
    """Yield sentences that compare a plan of objective ``value`` with the best plan on one GPU type alone, and tell
    which workloads do not fit the type; ``of`` limits these to one workload.
    """
    try:
        alone = with_type(instance, gpu)
        result = solve(alone, time_limit_s=time_limit_s, replay=False)
    except InputError as error:
        yield f"All on {gpu}: not possible: {error.lines[0].removeprefix(f'{gpu}: ')}"
        return
    workloads = [one for one in instance.workloads if of in (None, one.name)]
    against = [line for one in workloads for line in _against(alone, one, gpu)]
    if result.plan is None:
        yield f"All on {gpu}: {result.status}: {result.reason}"
    else:
        report = known(result.report)
        cost = "" if report.cost_per_hour is None else f", {money(report.cost_per_hour)}"
        yield f"All on {gpu}: {plural(report.gpus, 'GPU')}{cost}{_beside(known(result.objective), value)}."
    yield from against


def _beside(value: float, plan: float | None) -> str:
    """The difference between a cost and the plan's cost, in words."""
    if not plan:
        return ""
    if 1 / COSTLIER <= value / plan <= COSTLIER:
        return ", the same as this plan"
    return f", {value / plan - 1:+.0%} beside this plan"


def _against(instance: Instance, workload: Workload, gpu: str) -> Iterator[str]:
    """Yield a sentence on why a workload does not fit a GPU type; nothing if it fits."""
    data = [one for one in instance.performance if one.gpu == gpu]
    if not any(model in one.models for one in data for model in workload.models):
        yield f"  {workload.name}: no measurements of {' or '.join(workload.models)} on {gpu}."
        return
    if whole_gpu_rps(instance)[workload.name].get(gpu, 0.0) == 0.0:
        asked = f"the {number(instance.budget_ms(workload))} ms that its SLO leaves a batch"
        yield f"  {workload.name}: nothing measured on {gpu} stays within {asked}, or fits its memory."


def per_million(instance: Instance, workload: str) -> Iterator[str]:
    """Yield sentences on the least cost of a million requests of a workload on each GPU type, the cheapest type first.
    """
    carried: Mapping[str, float] = whole_gpu_rps(instance)[workload]
    prices = {entry.gpu: entry.price_per_hour for entry in reversed(instance.fleet)}
    told = [(price / (carried[gpu] * 0.0036), gpu) for gpu, price in prices.items()
            if price is not None and carried.get(gpu)]
    for cost, gpu in sorted(told):
        yield f"On {gpu} a million requests cost {cost:,.3g} $ at best: a GPU carries {number(carried[gpu])}/s."
