"""Objectives: the value of a plan, the weight of a GPU, which of two values is better, and which bound proves a value.
The file also computes what plans, committed GPUs and energy cost per hour, and what the GPUs of a plan draw at the load
that is planned for them.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from provision.models.base.tolerances import THROUGHPUT_CLOSE, TOLERANCE
from provision.models.hardware.gpu import gpu_type, split
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.power import MEASURED_IDLE_W
from provision.models.problem.prediction import predict_slice, slice_members, throughput_rps
from provision.models.problem.workload import FleetEntry

IN_USE = 1e-3
"""The part of its price that a committed GPU in use counts."""
HOURS_PER_MONTH = 730.0
"""The hours of a month: a twelfth of a year."""
PER_HOUR = "price per hour"
"""The unit of the objective min_cost of a fleet with prices."""
REQUESTS = "requests/s"
"""The unit of the objective max_throughput."""


@dataclass(frozen=True)
class Objective:
    """Base of all objectives, by which the plans of an instance are compared.

    Attributes
    ----------
    sense
        1 if smaller values are better, -1 if larger values are.
    unit
        The unit of the values.
    margin
        The relative distance from its bound within which a value counts as proven optimal.
    counts_capacity
        Whether the value counts the rates that all replicas could carry at the same time, rather than the rates routed
        to them.
    """

    instance: Instance
    sense: ClassVar[int] = 1
    unit: ClassVar[str]
    margin: ClassVar[float] = TOLERANCE
    counts_capacity: ClassVar[bool] = False

    def weight(self, entry: FleetEntry) -> float:
        """The amount that one GPU or node of a fleet entry adds to a plan's value; by default its number of GPUs."""
        return float(entry.type.gpus)

    def value(self, plan: Plan) -> float:
        """The value of a plan; by default the sum of the weights of its GPUs, infinite if the fleet lacks one of the
        GPUs.
        """
        weights = [*map(self.weight, self.instance.fleet), math.inf]
        return math.fsum(weights[entry] for entry in self.entries_of(plan))

    def loss(self, value: float) -> float:
        """A value of the objective, or a bound on it, with the sign changed if needed so that smaller is better."""
        return self.sense * value

    def better(self, one: float | None, other: float | None) -> bool:
        """Whether ``one`` is a better value than ``other``; any value is better than None."""
        return one is not None and (other is None or self.loss(one) < self.loss(other))

    def tighter(self, one: float | None, other: float | None) -> bool:
        """Whether ``one`` is a tighter bound than ``other``; any bound is tighter than None."""
        return one is not None and (other is None or self.loss(one) > self.loss(other))

    def proved(self, value: float | None, bound: float | None) -> bool:
        """Whether a bound proves that no value is better than ``value``."""
        if value is None or bound is None:
            return False
        return self.loss(value) <= self.loss(bound) + self.margin * abs(bound)

    def entries_of(self, plan: Plan) -> list[int]:
        """The index of the fleet entry of every GPU of a plan, (GPUs,); -1 for a GPU type that the fleet lacks. If a
        type has several entries, the cheapest entry is used up first. GPUs beyond all counts belong to the most
        expensive entry.
        """
        fleet = self.instance.fleet
        tiers: dict[tuple[str, bool], list[int]] = {}
        for index in sorted(range(len(fleet)), key=lambda index: self.weight(fleet[index])):
            tiers.setdefault((fleet[index].gpu, fleet[index].partitioned), []).append(index)
        left = [entry.count for entry in fleet]
        types = [(gpu.gpu, gpu.mig) for gpu in plan.gpus]
        return [_taken(tiers[one], left) if one in tiers else -1 for one in types]

    def fleet_without(self, plan: Plan) -> tuple[FleetEntry, ...]:
        """The fleet entries, with counts that are less by the GPUs of a plan."""
        taken = Counter(self.entries_of(plan))
        return tuple(one if one.count is None else one.model_copy(update={"count": max(one.count - taken[at], 0)})
                     for at, one in enumerate(self.instance.fleet))


class LeastCost(Objective):
    """The objective: the least price of all GPUs per hour, beyond that of committed GPUs, which any plan pays. A
    committed GPU in use counts IN_USE of its price, so that of plans of one cost the one with the fewest is found. The
    energy of an idle GPU counts as far as it has a price; what load adds to it does not.
    """

    unit = PER_HOUR

    def weight(self, entry: FleetEntry) -> float:
        """The price of a GPU of a fleet entry, per hour, IN_USE of it if it is committed; and of its idle energy."""
        price = super().weight(entry) if entry.price_per_hour is None else entry.price_per_hour
        power = self.instance.power
        energy = power.per_hour(power.of(entry.gpu).idle_w) if power else 0.0
        return (IN_USE * price if entry.committed else price) + energy


class FewestGpus(Objective):
    """The objective: the fewest GPUs, whatever they cost."""

    unit = "GPUs"


class MostThroughput(Objective):
    """The objective: the most requests/s that all replicas could carry together on a fixed fleet (InSS, problem 1)."""

    sense = -1
    unit = REQUESTS
    margin = THROUGHPUT_CLOSE
    counts_capacity = True

    def value(self, plan: Plan) -> float:
        """The requests/s that all replicas of a plan can carry at the same time."""
        return throughput_rps(self.instance, plan)


def objective_of(instance: Instance) -> Objective:
    """The Objective of an instance; for a fleet without prices least cost means fewest GPUs."""
    if instance.objective == THROUGHPUT:
        return MostThroughput(instance)
    priced = instance.objective == "min_cost" and instance.fleet[0].price_per_hour is not None
    return LeastCost(instance) if priced else FewestGpus(instance)


def cost_per_hour(instance: Instance, plan: Plan) -> float | None:
    """The price per hour of a plan's GPUs, of all committed GPUs, used or not, and of the energy that the plan draws on
    average; None if a GPU has no price.
    """
    entries = objective_of(instance).entries_of(plan)
    if instance.fleet[0].price_per_hour is None or -1 in entries:
        return None
    used = (instance.fleet[entry] for entry in entries)
    return math.fsum([*(one.price_per_hour or 0.0 for one in used if not one.committed), committed_per_hour(instance),
                      energy_per_hour(instance, plan)])


def least_per_hour(instance: Instance, bound: float) -> float:
    """The cost per hour, committed GPUs included, below which no plan is, by a proven bound on the objective."""
    committed = committed_per_hour(instance)
    return committed + max(0.0, bound - IN_USE * committed)


def proven(instance: Instance, bound: float) -> str:
    """A proven bound in words: no plan has a lower cost per hour, or fewer GPUs."""
    unit = objective_of(instance).unit
    told = least_per_hour(instance, bound) if unit == PER_HOUR else bound
    return f"{told:.12g} {unit_in_words(unit)}"


def unit_in_words(unit: str) -> str:
    """The unit of an objective as people read it: prices are in dollars."""
    return unit.replace("price", "$")


def committed_per_hour(instance: Instance) -> float:
    """The price per hour of the committed GPUs of the fleet."""
    return math.fsum((one.price_per_hour or 0.0) * (one.count or 0) for one in instance.fleet if one.committed)


def _taken(tiers: Sequence[int], left: list[int | None]) -> int:
    """Take a GPU from the first fleet entry of ``tiers`` with a GPU left, or from the last entry if none is left;
    return the index of the entry. ``left`` has the number of GPUs left of each fleet entry, None for any number; it is
    updated.
    """
    for index in tiers:
        count = left[index]
        if count is None:
            return index
        if count > 0:
            left[index] = count - 1
            return index
    return tiers[-1]


class Draw(NamedTuple):
    """The watts of a plan: with nothing to do, on average at the planned rates, and at full load."""

    idle_w: float
    mean_w: float
    full_w: float


def draw_of(instance: Instance, plan: Plan) -> Draw | None:
    """The watts of a plan; None if the instance says nothing of power."""
    if instance.power is None:
        return None
    watts = [instance.power.of(gpu.gpu) for gpu in plan.gpus]
    idle_w = math.fsum(one.idle_w for one in watts)
    busy_w = math.fsum((one.full_w - one.idle_w) * part
                       for one, part in zip(watts, _busy(instance, plan), strict=True))
    return Draw(idle_w, idle_w + busy_w, math.fsum(one.full_w for one in watts))


def _busy(instance: Instance, plan: Plan) -> Iterator[float]:
    """Yield the part of each GPU of a plan that is busy on average: of each slice its part of the SMs, times what is
    routed to its replicas over their throughput.
    """
    known: dict[Any, list[Prediction | None]] = {}
    for gpu in plan.gpus:
        kind, busy = gpu_type(gpu.gpu), 0.0
        for piece in gpu.slices:
            members = slice_members(instance, piece)
            if members is None or not piece.replicas:
                continue
            key = gpu.gpu, piece.profile, members
            found = known[key] = known.get(key) or predict_slice(instance, gpu.gpu, piece)
            loads = (share * min(1.0, one.rate_rps / each.throughput_rps) if each else share for share, one, each
                     in zip(piece.held_shares, piece.replicas, found, strict=True))
            busy += min(1.0, math.fsum(loads)) * kind.slice_sms(piece.profile) / kind.sms
        yield min(1.0, busy)


def energy_per_hour(instance: Instance, plan: Plan) -> float:
    """What the energy of a plan costs per hour on average; 0 if it has no price."""
    if instance.power is None or not instance.power.price_per_kwh or (draw := draw_of(instance, plan)) is None:
        return 0.0
    return instance.power.per_hour(draw.mean_w)


def power_told(instance: Instance, plan: Plan) -> Iterator[str]:
    """Yield a sentence on what a plan draws, if the instance says something of power."""
    power, draw = instance.power, draw_of(instance, plan)
    if power is None or draw is None:
        return
    cost = f"; energy {power.per_hour(draw.mean_w):,.2f} $ per hour" if power.price_per_kwh else ""
    limit = "" if power.limit_w is None else f" of {power.limit_w:,.0f} W allowed"
    stated = {*MEASURED_IDLE_W, *power.watts}
    others = sorted({kind for gpu in plan.gpus if (kind := split(gpu.gpu)[1]) not in stated})
    assumed = f" (idle watts of {', '.join(others)} are assumed)" if others else ""
    yield f"Power: {draw.mean_w:,.0f} W on average, at most {draw.full_w:,.0f} W{limit}{cost}{assumed}."
