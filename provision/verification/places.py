"""Checks that the GPUs of a plan stand on nodes, and that every rule of ``places`` is kept there."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations

from provision.models.hardware.gpu import split
from provision.models.hardware.places import DOMAINS, Domain, Places
from provision.models.plans.plan import Plan

Stood = dict[tuple[str, Domain], set[str]]
"""The nodes, zones and pools in which each workload has replicas."""


def misplaced(places: Places, plan: Plan) -> Iterator[tuple[int | None, str]]:
    """Yield the index of a GPU (None for the plan as a whole) and a sentence for every rule that is broken."""
    machines = {one.name: one for one in places.machines}
    used, stood = Counter[str](), defaultdict[tuple[str, Domain], set[str]](set)
    for at, gpu in enumerate(plan.gpus):
        machine, (many, base) = machines.get(gpu.node or ""), split(gpu.gpu)
        if machine is None:
            yield at, "is on no node" if gpu.node is None else f"there is no node {gpu.node}"
            continue
        if machine.gpu != base:
            yield at, f"node {machine.name} has {machine.gpu}, not {base}"
        used[machine.name] += many
        for workload in {one.workload for one in gpu.replicas}:
            for kind in DOMAINS:
                stood[workload, kind].add(machine.domain(kind) or "")
    for name, taken in used.items():
        if taken > machines[name].gpus:
            yield None, f"node {name} has {machines[name].gpus} GPUs, the plan puts {taken} there"
    yield from ((None, line) for line in _broken(places, plan, stood))


def _broken(places: Places, plan: Plan, stood: Stood) -> Iterator[str]:
    """Yield a sentence for every rule about workloads that is broken."""
    for one in places.spread:
        found = stood.get((one.workload, one.over), set()) - {""}
        if len(found) < one.at_least:
            yield f"{one.workload} stands in {len(found)} {one.over}s, spread asks for {one.at_least}"
    for rule in places.together:
        if len({frozenset(stood.get((name, rule.on), set())) for name in rule.workloads}) > 1:
            yield f"{', '.join(rule.workloads)} do not stand on the same {rule.on}s"
    for rule in places.apart:
        for first, second in combinations(rule.workloads, 2):
            if common := sorted(stood.get((first, rule.on), set()) & stood.get((second, rule.on), set())):
                yield f"{first} and {second} both stand on {rule.on} {common[0]}, apart forbids it"
    for limit in places.within:
        for kind, allowed in (("zone", limit.zones), ("pool", limit.pools)):
            outside = stood.get((limit.workload, "zone" if kind == "zone" else "pool"), set()) - set(allowed)
            if allowed and outside:
                yield f"{limit.workload} stands in {kind} {sorted(outside)[0] or 'none'}, within allows {allowed[0]}"
    for quota in places.quotas:
        owned = set(quota.workloads)
        gpus = sum(split(gpu.gpu)[0] for gpu in plan.gpus if any(one.workload in owned for one in gpu.replicas))
        if gpus > quota.at_most:
            yield f"tenant {quota.tenant} stands on {gpus} GPUs, its quota is {quota.at_most}"


def lost_together(places: Places, plan: Plan) -> dict[str, set[int]]:
    """The GPUs of a plan, by index, that each loss in ``survive`` takes, by the name of what is lost."""
    machines = {one.name: one for one in places.machines}
    found: dict[str, set[int]] = {}
    for kind in places.losses:
        for at, gpu in enumerate(plan.gpus):
            machine = machines.get(gpu.node or "")
            if machine is not None and (name := machine.domain(kind)) is not None:
                found.setdefault(f"{kind} {name}", set()).add(at)
    return found
