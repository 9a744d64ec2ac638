"""Describes the difference between two plans in sentences: the change in cost, and what moves."""

from collections import Counter
from collections.abc import Iterator

from provision.draw.output import plural
from provision.models.plans.disturbance import disturbance, matched
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour

SAME = 0.005
"""Prices per hour that differ by less than this are described as equal."""
ONE = {"slices destroyed": "slice destroyed", "slices created": "slice created", "replicas started": "replica started",
       "batch changes": "batch change"}
"""What changes, for a single one."""
MOST_TOUCHED = 20
"""The most GPUs of which changes are listed one by one."""
MOST_NAMED = 8
"""The most workloads whose moved replicas are described one by one."""


def difference(instance: Instance, before: Plan, after: Plan, base: Instance | None = None) -> list[str]:
    """Sentences on what changes from one plan of an instance to another, and a line for every GPU that is touched. The
    plan before may be of another instance, ``base``, with prices of its own.
    """
    return [*_cost(base or instance, before, instance, after), _gpus(before, after), _moved(before, after),
            *_replicas(before, after), *touched(before, after)]


def touched(before: Plan, after: Plan) -> Iterator[str]:
    """Yield a line for every GPU that changes: ``+`` if it is added, ``-`` if it is given back, ``~`` if its slices or
    replicas change; lines for these have the same signs. A GPU is named by its index in the plan before.
    """
    lines = [(old is None, old if old is not None else new or 0, _steps(before, after, old, new))
             for old, new in matched(before.gpus, after.gpus)]
    changed = [(added, at, steps) for added, at, steps in sorted(lines) if steps]
    for added, at, steps in changed[:MOST_TOUCHED]:
        gpu = (after if added else before).gpus[at]
        signs = {step[0] for step in steps}
        sign = "+" if added else "-" if signs == {"-"} and len(steps) == len(gpu.slices) else "~"
        yield f"  {sign} {'a new ' if added else f'GPU {at}, '}{gpu.gpu}: {', '.join(steps)}"
    if len(changed) > MOST_TOUCHED:
        yield f"  and {plural(len(changed) - MOST_TOUCHED, 'more GPU')}"


def _steps(before: Plan, after: Plan, old: int | None, new: int | None) -> list[str]:
    """What happens on a GPU, slice by slice: slices that go first, then those that stay with other replicas or come."""
    held = {} if old is None else {(one.profile, one.start): one for one in before.gpus[old].slices}
    wanted = {} if new is None else {(one.profile, one.start): one for one in after.gpus[new].slices}
    gone = [f"- {place[0]} ({_replicas_of(one)})" for place, one in held.items() if place not in wanted]
    return gone + [f"{'~' if place in held else '+'} {place[0]} ({_replicas_of(one)})" for place, one in wanted.items()
                   if place not in held or _replicas_of(held[place]) != _replicas_of(one)]


def _replicas_of(piece: Slice) -> str:
    return ", ".join(f"{one.workload} b{one.batch} p{one.processes}" for one in piece.replicas) or "idle"


def _cost(base: Instance, before: Plan, instance: Instance, after: Plan) -> Iterator[str]:
    prices = [cost_per_hour(base, before), cost_per_hour(instance, after)]
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
    told = ", ".join(f"{count} {name if count > 1 else ONE.get(name, name)}" for name, count in changes.items())
    if told:
        return f"Moves: {told}."
    if before.gpus == after.gpus:
        return "Nothing moves."
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
