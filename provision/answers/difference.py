"""Describes the difference between two plans in sentences: the change in cost, and what moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from provision.draw.words import plural
from provision.models.plans.disturbance import disturbance
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour

SAME = 0.005
"""Prices per hour that differ by less than this are described as equal."""
MOST_NAMED = 8
"""The most workloads whose moved replicas are described one by one."""


def difference(instance: Instance, before: Plan, after: Plan) -> list[str]:
    """Sentences on what changes from one plan of an instance to another."""
    return [*_cost(instance, before, after), _gpus(before, after), _moved(before, after), *_replicas(before, after)]


def _cost(instance: Instance, before: Plan, after: Plan) -> Iterator[str]:
    prices = [cost_per_hour(instance, plan) for plan in (before, after)]
    if prices[0] is None or prices[1] is None:
        return
    more = prices[1] - prices[0]
    if abs(more) < SAME:
        yield f"{prices[1]:,.2f} $ per hour, as before."
        return
    part = f", {more / prices[0]:+.0%}" if prices[0] else ""
    yield f"{more:+,.2f} $ per hour{part}: {prices[1]:,.2f} instead of {prices[0]:,.2f}."


def _gpus(before: Plan, after: Plan) -> str:
    counts = [Counter(gpu.gpu for gpu in plan.gpus) for plan in (before, after)]
    changed = [f"{counts[1][name] - counts[0][name]:+} {name}" for name in sorted(counts[0] | counts[1])
               if counts[0][name] != counts[1][name]]
    whole = plural(after.gpu_count, "GPU")
    return f"{whole} as before, of the same types." if not changed else f"{whole}: {', '.join(changed)}."


def _moved(before: Plan, after: Plan) -> str:
    counts = disturbance(before, after)._asdict()
    changes = {name.replace("_", " "): count for name, count in counts.items() if count and "gpus" not in name}
    told = ", ".join(f"{count} {name}" for name, count in changes.items())
    if told:
        return f"Moves: {told}."
    stopped = _slices(before) != _slices(after)
    return "Some replicas stop; nothing else moves but shares of the traffic." if stopped else (
        "Nothing moves but shares of the traffic.")


def _replicas(before: Plan, after: Plan) -> Iterator[str]:
    """Yield sentences on the workloads whose replicas run on other slices."""
    old, new = _slices(before), _slices(after)
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in changed[:MOST_NAMED]:
        yield f"{name}: {_named(new.get(name))} instead of {_named(old.get(name))}."
    if len(changed) > MOST_NAMED:
        yield f"And {plural(len(changed) - MOST_NAMED, 'more workload')} on other slices."


def _slices(plan: Plan) -> dict[str, Counter[tuple[str, str]]]:
    """The number of each workload's replicas on every kind of slice, by workload and (GPU type, profile)."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for at, _, piece, replica in plan.replicas():
        found.setdefault(replica.workload, Counter())[plan.gpus[at].gpu, piece.profile] += 1
    return found


def _named(slices: Counter[tuple[str, str]] | None) -> str:
    """The counts of slices in words."""
    each = sorted((slices or {}).items())
    return ", ".join(f"{many} x {profile} of {gpu}" for (gpu, profile), many in each) or "none"
