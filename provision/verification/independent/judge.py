"""The second verifier's verdict on a plan (holds, violated or not decided), with the reasons. If the policy wants it,
the other GPUs must carry every planned rate within its SLO after the loss of any one GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import tokens
from .fleet import cost_per_hour, energy_per_hour, fleet_faults, gpu_count, limit_faults, power_faults, replicas_of
from .latency_rules import Found, busy_parts, carried_rps, crowded_faults, even_faults, judge_random, rule_faults
from .layout import layout_faults
from .records import Instance, PlannedGpu, Replica, Slice, UndecidedError, UndescribedError
from .replays.late import CONFIDENCE
from .servers import Server, servers_of
from .workflows import judge_workflow

Floats = NDArray[np.float64]
Verdict = Literal["holds", "violated", "not decided"]
SECONDS = 3.0
"""The most seconds of replay for one workload."""
LOSS_S = 1.0
"""The seconds of replay for a workload after the loss of one GPU."""


@dataclass
class Judgement:
    """The second verifier's judgement of a plan.

    ``faults`` are certain violations. ``open`` lists what the verifier could not decide. ``replays`` are the results of
    the replays of every workload.
    """

    instance: str
    gpus: int
    cost_per_hour: float | None
    faults: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    replays: list[Found] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """"violated" if there is a fault, "not decided" if something is open, else "holds"."""
        if self.faults:
            return "violated"
        return "not decided" if self.open else "holds"

    def summary(self) -> dict[str, Any]:
        """The whole judgement as a mapping, for ``--json``."""
        return {
            "verdict": self.verdict, "gpus": self.gpus, "cost_per_hour": self.cost_per_hour, "faults": self.faults,
            "not_decided": self.open, "confidence": CONFIDENCE,
            "replays": [
                {"name": one.name, "verdict": one.verdict, "limit_ms": one.limit_ms,
                 "percentile": one.percentile, "at_rate": one.at_rate, "late": one.late.part,
                 "late_low": one.late.low, "late_high": one.late.high, "requests": one.late.requests, "how": one.how}
                for one in self.replays],
        }


def judge(
    instance: Instance, plan: tuple[PlannedGpu, ...], delay_by: str = "longest", seconds: float = SECONDS
) -> Judgement:
    """Judge a plan.

    Parameters
    ----------
    instance, plan
        The instance and the plan, as records of this verifier (see `reading`).
    delay_by
        How long a batch may wait to fill: the budget minus the time of the ``longest`` batch up to the planned size, or
        minus that of the ``full`` batch.
    seconds
        The most seconds of replay for one workload.
    """
    found = Judgement(instance.name, gpu_count(plan), cost_per_hour(instance, plan))
    gpus_cost, priced = found.cost_per_hour, bool(instance.power.get("price_per_kwh"))
    found.cost_per_hour = None if priced else gpus_cost
    found.faults += [*fleet_faults(instance, plan), *limit_faults(instance, plan)]
    found.faults += power_faults(instance, plan) if instance.power else ()
    if instance.places:
        found.open.append("places: nodes are judged by `provision verify` alone")
    try:
        found.faults += layout_faults(instance, plan)
        if replicas_of(plan).keys() <= instance.workloads.keys():
            servers = servers_of(instance, at_planned_rates(instance, plan), delay_by)
            if priced and gpus_cost is not None and servers.keys() == replicas_of(plan).keys():
                found.cost_per_hour = gpus_cost + energy_per_hour(instance, plan, busy_parts(instance, plan, servers))
            _judge_latency(instance, plan, servers, seconds, found)
    except UndescribedError:
        pass  # a fault of the layout tells it
    except UndecidedError as error:
        found.open.append(str(error))
    return found


def _judge_latency(
    instance: Instance, plan: tuple[PlannedGpu, ...], servers: dict[str, list[Server]], seconds: float, found: Judgement
) -> None:
    rates = {name: np.array([one.replica.rate_rps for one in each]) for name, each in servers.items()}
    for name in tokens.token_workloads(instance):
        try:
            _note(found, tokens.judge_tokens(instance, plan, name, seconds))
        except UndescribedError as error:
            found.faults.append(str(error))
        except UndecidedError as error:
            found.open.append(str(error))
    for name, each in servers.items():
        found.faults += crowded_faults(instance, each, [one.rate_rps for _, one in replicas_of(plan)[name]])
    if instance.policy.rule == "queueing":
        _judge_random(instance, servers, rates, seconds, found)
    else:
        for name, each in servers.items():
            found.faults += [*rule_faults(instance, each, rates[name]), *even_faults(instance, each, rates[name])]
    if instance.policy.survive:
        for fault, sure in survival_faults(instance, servers):
            (found.faults if sure else found.open).append(fault)


def _judge_random(
    instance: Instance, servers: dict[str, list[Server]], rates: dict[str, Floats], seconds: float, found: Judgement
) -> None:
    within: set[str] = set()
    for workflow in instance.workflows:
        if all(name in servers and rates[name].sum() > 0 for name in workflow.members):
            _note(found, judge_workflow(instance, workflow, servers, rates, seconds))
            within |= set(workflow.members)
    for name, each in servers.items():
        if name not in within and rates[name].sum() > 0:
            try:
                _note(found, judge_random(instance, each, rates[name], seconds))
            except UndecidedError as error:
                found.open.append(str(error))


def at_planned_rates(instance: Instance, plan: tuple[PlannedGpu, ...]) -> tuple[PlannedGpu, ...]:
    """The plan with all rates of a workload scaled so that they add up to the planned rate.

    A plan may route more than the planned rate. Its rates are then only weights.
    """
    found = replicas_of(plan)
    factor = {name: instance.planned_rps(name) / routed for name in instance.workloads
              if (routed := sum(one.rate_rps for _, one in found.get(name, []))) > 0}

    def scaled(one: Replica) -> Replica:
        return replace(one, rate_rps=one.rate_rps * factor.get(one.workload, 1.0))

    return tuple(replace(gpu, slices=tuple(replace(piece, replicas=tuple(map(scaled, piece.replicas)))
                                           for piece in gpu.slices)) for gpu in plan)


def _note(found: Judgement, replays: list[Found]) -> None:
    found.replays += replays
    found.faults += [one.message for one in replays if one.verdict == "violated"]
    found.open += [one.message for one in replays if one.verdict == "not decided"]


def survival_faults(instance: Instance, servers: dict[str, list[Server]]) -> Iterator[tuple[str, bool]]:
    """Yield a line for everything that no longer holds after a loss, and whether that is certain."""
    seen: set[tuple[str, tuple[tuple[object, ...], ...]]] = set()
    for gpu in sorted({one.piece.gpu for each in servers.values() for one in each}):
        for name, everyone in servers.items():
            left = [one for one in everyone if one.piece.gpu != gpu]
            if len(left) == len(everyone):
                continue
            key = (name, tuple(sorted((*_look(one.piece), one.at) for one in left)))
            if key in seen:
                continue
            seen.add(key)
            yield from _without(instance, gpu, name, left)


def _look(piece: Slice) -> tuple[object, ...]:
    """A key that is equal for slices that behave in the same way."""
    return piece.gpu_type, piece.profile, repr(piece.replicas)


def _without(instance: Instance, gpu: int, name: str, left: list[Server]) -> Iterator[tuple[str, bool]]:
    """Judge a workload on the remaining replicas. It must hold with some division of its rate among them."""
    planned = instance.planned_rps(name)
    if planned <= 0:
        return
    if not left:
        yield f"without GPU {gpu}: {name} has no replica left", True
        return
    carried = np.array([carried_rps(instance, one) for one in left])
    if carried.sum() < planned * (1 - 1e-6):
        yield f"without GPU {gpu}: {name} has replicas for {carried.sum():.6g} of {planned:.6g} requests/s", True
        return
    routed = np.array([one.replica.rate_rps for one in left])
    splits = [np.ones(len(left))] if instance.policy.even_replicas else [routed, carried]
    reasons: list[tuple[str, bool]] = []
    for weights in splits:
        if weights.sum() <= 0:
            continue
        rates = weights * planned / weights.sum()
        if instance.policy.rule == "queueing":
            found = judge_random(instance, left, rates, LOSS_S)
            late: list[Found] = [one for one in found if one.verdict != "holds"]
            reasons = [(one.message, False) for one in late]
        else:
            reasons = [(fault, False) for fault in (*crowded_faults(instance, left, rates.tolist()),
                                                    *rule_faults(instance, left, rates))]
        if not reasons:
            return
    yield from ((f"without GPU {gpu}: {reason}", sure) for reason, sure in reasons)
