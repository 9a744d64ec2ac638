"""Describes sweeps: their parameters, the values of each, and the points that these form.

Parameters are factors on rates and SLOs, prices, the fleet, fields of the policy, and limits on batches.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from provision.instances.files.files import FilePath, load, validate
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Number, Record, Text, Version
from provision.models.base.register import did_you_mean, one_of
from provision.models.performance.catalogue import PerformanceFile
from provision.models.problem.instance import Instance
from provision.models.problem.policy import Policy
from provision.models.problem.workload import FleetEntry, Workload

MOST_POINTS = 100_000


class Sweep(Record):
    """A sweep as a file holds it: every parameter with its values.

    Values are a list, or text such as ``0.8:1.4:0.05`` (first, last, step) or ``1,2,4``. ``grid`` means all
    combinations; ``one_at_a_time`` varies each parameter while the others are as in the instance.
    """

    version: Version = 1
    points: Literal["grid", "one_at_a_time"] = "grid"
    vary: Annotated[dict[Name, list[Number | Text] | Text], Field(min_length=1)]


def read_sweep(path: FilePath) -> Sweep:
    """The Sweep in a YAML or JSON file."""
    return validate(Sweep, load(path), path)


def made(vary: Mapping[str, Sequence[float | str] | str], one_at_a_time: bool = False) -> Sweep:
    """The Sweep of the given values by parameter. Raises InputError if the values are neither lists nor texts, or hold
    something else than numbers and texts.
    """
    content = {"vary": vary, "points": "one_at_a_time" if one_at_a_time else "grid"}
    return validate(Sweep, content, "vary")


def values_of(sweep: Sweep) -> dict[str, list[float | str]]:
    """The values of every parameter by name. Raises InputError if a text is neither a range nor a list, or a range has
    no values or too many.
    """
    return {name: _values(name, values) for name, values in sweep.vary.items()}


def points_of(sweep: Sweep) -> list[dict[str, float | str]]:
    """All points of a sweep, each a dictionary ``{name: value}``; neighbouring points stand next to each other. Raises
    InputError in the cases of ``values_of``, and if there are more than MOST_POINTS points.
    """
    values = values_of(sweep)
    if sweep.points == "one_at_a_time":
        _refuse_many("the sweep", sum(map(len, values.values())))
        return [{name: value} for name, column in values.items() for value in column]
    _refuse_many("the grid", math.prod(map(len, values.values())))
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def _values(name: str, given: list[float | str] | str) -> list[float | str]:
    if isinstance(given, list):
        parts: list[float | str] = given
    elif ":" in given:
        parts = [*_range(name, given)]
    else:
        parts = [_number(part) for part in given.split(",")]
    if not all(math.isfinite(part) for part in parts if isinstance(part, float)):
        raise InputError(f"vary {name}={given}: a value is not finite; write the numbers that you mean")
    if any(part < 0 for part in parts if isinstance(part, float)):
        raise InputError(f"vary {name}={given}: a value is below 0; write values of 0 or more")
    if not parts or "" in parts:
        raise InputError(f"vary {name}={given}: no values; write FIRST:LAST:STEP or VALUE,VALUE")
    if len({str(part) for part in parts}) < len(parts):
        raise InputError(f"vary {name}={given}: a value stands twice; keep one")
    return parts


def _range(name: str, text: str) -> list[float]:
    """The values of a range, computed in decimal arithmetic; the last value is included if a multiple of the step
    reaches it.
    """
    try:
        first, last, step = (Decimal(part) for part in text.split(":"))
        steps = (last - first) / step
    except (ValueError, ArithmeticError):
        raise InputError(f"vary {name}={text}: not a range; write FIRST:LAST:STEP, as 0.8:1.4:0.05") from None
    if not (step.is_finite() and steps.is_finite() and steps >= 0):
        raise InputError(f"vary {name}={text}: an empty range; the step should lead from {first} to {last}")
    _refuse_many(f"{name}={text}", int(steps) + 1)
    return [float(first + index * step) for index in range(int(steps) + 1)]


def _number(text: str) -> float | str:
    """The number that a text writes, or the text itself."""
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _refuse_many(what: str, number: int) -> None:
    if number > MOST_POINTS:
        raise InputError(f"vary: {what} has {number:.3g} points, more than {MOST_POINTS:,}; use larger steps")


Change = Callable[[Instance, str, Any, str], Instance]
"""A function that returns a changed instance, given the instance, the target, the value, and the name of the value in
messages.
"""
R = TypeVar("R", bound=BaseModel)


class Parameter(NamedTuple):
    """A parameter of sweeps: ``change(instance, target, value, where)`` returns the changed instance.

    ``target`` tells what may follow the dot after the parameter's name, such as a workload. ``where`` names the value
    in messages. If ``whole``, the parameter takes whole numbers only.
    """

    what: str
    change: Change
    target: str = ""
    numeric: bool = True
    whole: bool = False


def changed(instance: Instance, point: Mapping[str, float | str]) -> Instance:
    """The instance with every parameter of a point, ``{name: value}``, applied. Raises InputError if a parameter or
    target is unknown, or a field does not take a value.
    """
    # ``types`` is applied last, since another parameter may change the price of a GPU type that it removes.
    for name, value in sorted(point.items(), key=lambda one: one[0] == "types"):
        parameter, target = find(name, instance)
        if parameter.numeric and not isinstance(value, (int, float)):
            raise InputError(f"vary {name}={value}: should be a number, FIRST:LAST:STEP or VALUE,VALUE")
        if parameter.whole and value != int(value):
            raise InputError(f"vary {name}={value}: should be a whole number")
        value = int(value) if parameter.whole else value
        instance = parameter.change(instance, target, value, f"vary {name}={value}")
    return instance


def find(name: str, instance: Instance) -> tuple[Parameter, str]:
    """The pair (Parameter, target) that a name such as ``rate.WORKLOAD`` gives; the target is "" if the name has none,
    which means all workloads. Raises InputError if there is no such parameter, the instance has no such target, or the
    parameter needs a target and the name has none.
    """
    kind, _, target = name.partition(".")
    if kind not in PARAMETERS:
        raise InputError(f"vary {name}: unknown parameter {kind!r}; {one_of(kind, PARAMETERS)}")
    parameter = PARAMETERS[kind]
    known = {"WORKLOAD": list(instance.workload), "GPU": list(tiers(instance))}
    if target and target not in known.get(parameter.target, ()):
        there = ", ".join(known.get(parameter.target, ())[:20]) or f"none: write {kind} alone"
        meant = did_you_mean(target, known.get(parameter.target, ()))
        raise InputError(f"vary {name}: nothing called {target!r} to vary; there is {there}{meant}")
    if parameter.target == "GPU" and not target:
        raise InputError(f"vary {name}: say for which GPU type, as {kind}.{known['GPU'][0]}")
    return parameter, target


def _slo(instance: Instance, target: str, value: Any, where: str) -> Instance:
    """Multiply the SLOs of all workloads, or of the named one, by a factor."""
    workloads = [validate(Workload, one.with_slo(value), where) if target in ("", one.name) else one
                 for one in instance.workloads]
    return _instance(instance, where, workloads=workloads)


def _workloads(field: str, factor: bool) -> Change:
    """A Change of one field of all workloads or of the named workload: the field is multiplied by the value, or set to
    it.
    """

    def change(instance: Instance, target: str, value: Any, where: str) -> Instance:
        workloads = [
            _with(Workload, one, where, **{field: getattr(one, field) * value if factor else value})
            if target in ("", one.name) else one
            for one in instance.workloads
        ]
        return _instance(instance, where, workloads=workloads)

    return change


def tiers(instance: Instance) -> dict[str, list[int]]:
    """Indices of fleet entries by their names in a sweep: the GPU type, and ``TYPE.TIER`` if it has several entries.

    A tier without a name is called ``on_demand`` if it is the only entry of its type without a count; otherwise its
    name is its number among the entries of its type, from 1.
    """
    found: dict[str, list[int]] = {}
    for at, entry in enumerate(instance.fleet):
        found.setdefault(entry.gpu, []).append(at)
    for gpu, places in [(gpu, places) for gpu, places in found.items() if len(places) > 1]:
        uncounted = [at for at in places if instance.fleet[at].count is None]
        for number, at in enumerate(places, start=1):
            unnamed = ON_DEMAND if uncounted == [at] else str(number)
            found.setdefault(f"{gpu}.{instance.fleet[at].tier or unnamed}", []).append(at)
    return found


def _fleet(field: str) -> Change:
    """A Change that sets one field of the fleet entry with a GPU type or price tier."""

    def change(instance: Instance, target: str, value: Any, where: str) -> Instance:
        places, fleet = tiers(instance)[target], list(instance.fleet)
        if len(places) > 1:
            several = ", ".join(name for name, at in tiers(instance).items() if name != target and at[0] in places)
            raise InputError(f"{where}: {target} stands in the fleet more than once; vary one of {several}")
        fleet[places[0]] = _with(FleetEntry, fleet[places[0]], where, **{field: value})
        return _instance(instance, where, fleet=fleet)

    return change


def _policy(field: str) -> Change:
    def change(instance: Instance, target: str, value: Any, where: str) -> Instance:
        return _instance(instance, where, policy=_with(Policy, instance.policy, where, **{field: value}))

    return change


def _types(instance: Instance, target: str, value: Any, where: str) -> Instance:
    """Keep only the named GPU types of the fleet; their names are joined by ``+``."""
    wanted = str(value).split("+")
    there = [one.gpu for one in instance.fleet]
    for name in wanted:
        if name not in there:
            raise InputError(f"{where}: {name!r} is not in the fleet; there is {', '.join(Counter(there))}")
    return _instance(instance, where, fleet=[one for one in instance.fleet if one.gpu in wanted])


def _survive(instance: Instance, target: str, value: Any, where: str) -> Instance:
    """Set the number of GPUs whose failure a plan must survive."""
    survive = {"gpu_failures": value} if value else None
    return _instance(instance, where, policy=_with(Policy, instance.policy, where, survive=survive))


def _even_replicas(instance: Instance, target: str, value: Any, where: str) -> Instance:
    """Require equal rates of a workload's replicas (1), or do not (0)."""
    if value not in (0, 1):
        raise InputError(f"{where}: should be 0 or 1 (got {value})")
    return _instance(instance, where, policy=_with(Policy, instance.policy, where, even_replicas=bool(value)))


def _max_batch(instance: Instance, target: str, value: Any, where: str) -> Instance:
    """Remove operating points with larger batch sizes, and data sets that have no other operating points."""
    left = [data for data in (_limited(data, value, where) for data in instance.performance) if data is not None]
    if not left:
        raise InputError(f"{where}: no batch that small was measured; raise it")
    return _instance(instance, where, performance=left)


def _limited(data: PerformanceFile, most: int, where: str) -> PerformanceFile | None:
    """Performance data without operating points of larger batch sizes; None if no operating points are left."""
    content = data.up_to_batch(most)
    return None if content is None else validate(PerformanceFile, content, where)


def _with(kind: type[R], record: R, where: str, **changes: Any) -> R:
    """A record with some fields changed, validated like a new one."""
    return validate(kind, record.model_dump() | changes, where)


def _instance(instance: Instance, where: str, **changes: Any) -> Instance:
    fields = {name: getattr(instance, name) for name in type(instance).model_fields}
    return validate(type(instance), fields | changes, where)


ON_DEMAND = "on_demand"
PARAMETERS = {
    "rate": Parameter("factor of the request rates", _workloads("rate_rps", True), "WORKLOAD"),
    "slo": Parameter("factor of the SLOs", _slo, "WORKLOAD"),
    "max_share_per_gpu": Parameter(
        "largest part of a workload on one GPU, which is what losing a GPU loses",
        _workloads("max_share_per_gpu", False), "WORKLOAD",
    ),
    "price": Parameter("price per hour of a GPU type", _fleet("price_per_hour"), "GPU"),
    "count": Parameter("GPUs there are of a type", _fleet("count"), "GPU", whole=True),
    "types": Parameter("GPU types allowed, joined by +", _types, numeric=False),
    "headroom": Parameter("extra rate planned for, as a fraction", _policy("headroom")),
    "safety": Parameter("part of the latency budget that may be used", _policy("safety")),
    "confidence": Parameter("probability with which every SLO is kept (policy.uncertainty)", _policy("confidence")),
    "survive": Parameter("GPUs that may be lost without a rate or SLO being missed: 0 or 1", _survive, whole=True),
    "even_replicas": Parameter("whether replicas of a workload carry equal rates: 0 or 1", _even_replicas, whole=True),
    "max_batch": Parameter("largest batch allowed", _max_batch, whole=True),
}
"""All parameters by name. In a sweep, a dot and a target may follow the name."""
