"""What the GPUs of a plan draw, by the load that is planned for them."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from provision.models.hardware.gpu import gpu_type, split
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.power import MEASURED_IDLE_W
from provision.models.problem.prediction import predict_slice, slice_members


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
