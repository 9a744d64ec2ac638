"""Computes the margins of each workload of a plan: how much may change before the workload misses its SLO. A workload
has three margins: the largest factor on its service times, the largest factor on its rate, and the largest coefficient
of variation of its inter-arrival times (1 for Poisson arrivals) with which the latency rule still accepts all of its
replicas, while everything else is as planned. The percentile of the workload's latency with its band stands beside the
margins (`tails`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.answers.tails import Tail, bands_at, tail_of, token_tails, without_bands
from provision.answers.token_margins import borne
from provision.models.base.fields import Record
from provision.models.base.tolerances import TOLERANCE
from provision.models.plans.plan import PlannedGpu
from provision.models.problem.prediction import predict_slice
from provision.models.problem.stages import as_deployed
from provision.models.traffic.arrivals import Renewal

if TYPE_CHECKING:
    from provision.models.base.clock import Deadline
    from provision.models.performance.operating_points import Prediction
    from provision.models.plans.plan import Plan, Replica, Slice
    from provision.models.plans.result import Replay
    from provision.models.problem.instance import Instance

MOST = 10.0
"""The largest factor and the largest coefficient of variation that are tried."""
STEPS = 16
"""The number of bisection steps in the search for a factor."""
CV_STEPS, CV_REQUESTS = 6, 2**15
"""The number of bisection steps in the search for a coefficient of variation, and the number of requests in each
replay.
"""
MOST_REPLAYED, MOST_JUDGED = 60, 1000
"""The most different replicas that a plan may have so that coefficients of variation are computed, and so that any
margin is computed. With these limits the computation takes seconds.
"""
LONGER, MORE = 0.05, 0.1
"""The increases of service times and of rates, as fractions, for which one line tells how many SLOs break."""
FEW = 8
"""The number of workloads that are printed; the workloads closest to their SLOs come first."""


class Margin(Record):
    """The margins of a workload. A field is None if the latency rule or the kind of data tells nothing about it.

    ``service`` and ``rate`` are factors; ``cv`` is a coefficient of variation of inter-arrival times. ``first`` names
    the smallest margin. ``tail`` is the percentile of latency, with its band, of the replica that may come closest to
    its SLO, and ``fit_error`` the part by which service times may be longer than predicted: the upper end of the band.
    """

    workload: str
    service: float | None
    rate: float | None
    cv: float | None
    first: str
    fit_error: float | None
    tail: Tail | None = None


class _Placed(NamedTuple):
    """A replica: the GPU type, the slice, and its index among the replicas of the slice."""

    gpu: str
    piece: Slice
    at: int

    @property
    def replica(self) -> Replica:
        return self.piece.replicas[self.at]


def margins_of(instance: Instance, plan: Plan, end: Deadline | None = None) -> list[Margin] | None:
    """The Margin of every workload that has replicas in a plan.

    Parameters
    ----------
    instance, plan
        The instance and a valid plan for it.
    end
        The deadline; None for no limit. Workloads that are not reached before the deadline are left out.

    Returns
    -------
    list of Margin or None
        The margins in the order of the workloads that have requests; None if the plan has more than MOST_JUDGED
        different replicas.
    """
    instance, different = as_deployed(instance, plan), _different(plan)
    if len(different) > MOST_JUDGED:
        return None
    placed: defaultdict[str, list[_Placed]] = defaultdict(list)
    for place in different:
        placed[place.replica.workload].append(place)
    replayed = len(different) <= MOST_REPLAYED
    judged = (one for one in instance.workloads if one.name in placed and one.rate_rps)
    return [_token_margin(instance, one.name, placed[one.name]) if one.tokens
            else _margin(instance, one.name, placed[one.name], replayed)
            for one in judged if end is None or not end.over]


def _different(plan: Plan) -> list[_Placed]:
    """The replicas of a plan that differ in more than their GPU and where their slice starts; of too many (MOST_JUDGED)
    only the first.
    """
    alike = ((gpu.gpu, piece.model_copy(update={"start": 0})) for gpu in plan.gpus for piece in gpu.slices)
    found: dict[_Placed, None] = {}
    for gpu, piece in alike:
        found |= dict.fromkeys(_Placed(gpu, piece, at) for at in range(len(piece.replicas)))
        if len(found) > MOST_JUDGED:
            break
    return list(found)


def how_sure(instance: Instance, plan: Plan, margins: list[Margin] | None, replay: Replay | None = None
             ) -> Iterator[str]:
    """Yield lines on the margins of a plan (`margins_of`), the latencies of its language models, and missing bands.
    Nothing is known of a plan that serves workloads which the instance does not have.

    Parameters
    ----------
    instance, plan, margins
        The instance, the plan and its margins.
    replay
        The replay of the plan; None if it was not replayed.
    """
    if margins is None:
        yield (f"What workloads bear is not computed for more than {MOST_JUDGED:,} different replicas; provision "
               "simulate --service-factor 1.05 replays the plan with longer service times")
    else:
        yield from filter(None, [first_to_break(margins)])
        yield from lines(margins)
    if all(one.workload in instance.workload for *_, one in plan.replicas()):
        yield from token_tails(instance, plan, replay)
        yield from without_bands(instance, plan)


def lines(margins: list[Margin]) -> Iterator[str]:
    """Yield a line for each of the FEW workloads that are closest to their SLOs."""
    nearest = sorted(margins, key=_room)
    for one in nearest[:FEW]:
        service, rate = (None if factor is None else f"{factor - 1:+.0%}" for factor in (one.service, one.rate))
        parts = [f"{name} {value}" for name, value in (("service", service), ("rate", rate)) if value is not None]
        parts += [] if one.cv is None else [f"cv up to {one.cv:.2g}"]
        tail = "" if one.tail is None else f": {one.tail};"
        yield f"{one.workload}{tail} bears {', '.join(parts)}; {one.first} breaks first"
    if len(nearest) > FEW:
        yield f"{len(nearest) - FEW} further workloads bear more (--json has all)"


def first_to_break(margins: list[Margin]) -> str | None:
    """A line on which SLOs break if service times are longer by LONGER, and if rates are higher by MORE; None if no
    margins are known.
    """
    parts = []
    for what, part, bears in (("longer service times", LONGER, {one.workload: one.service for one in margins}),
                              ("more traffic", MORE, {one.workload: one.rate for one in margins})):
        known = {name: factor for name, factor in bears.items() if factor is not None}
        if not known:
            continue
        first = min(known, key=lambda name: known[name])
        broken = sum(factor < 1 + part for factor in known.values())
        verdict = f"{broken} of {len(known)} SLOs break" if broken else "every SLO holds"
        parts.append(f"at {part:.0%} {what} {verdict} (the first to break: {first}, at {known[first] - 1:+.1%})")
    return f"What if: {'; '.join(parts)}" if parts else None


def _room(one: Margin) -> float:
    """How close a workload is to its SLO: the smallest of its margins minus 1; infinite if it has no margins."""
    return min((value - 1 for value in (one.service, one.rate, one.cv) if value is not None), default=math.inf)


def _margin(instance: Instance, name: str, replicas: list[_Placed], replayed: bool) -> Margin:
    """The Margin of a workload: the smallest margins of its replicas."""
    service = min(_largest(partial(_longer_holds, instance, one)) for one in replicas)
    rate = min(_largest(partial(_more_holds, instance, one)) for one in replicas)
    found = [_largest_cv(instance, one) for one in replicas] if replayed else [None]
    known = [cv for cv in found if cv is not None]
    cv = min(known) if len(known) == len(found) else None
    tails = [tail for each in replicas if (tail := tail_of(instance, each.gpu, each.piece, each.at)) is not None]
    return Margin(workload=name, service=service, rate=rate, cv=cv, first=_first(service, rate, cv),
                  fit_error=max((one.high - 1 for one in tails), default=None),
                  tail=max(tails, key=lambda one: math.inf if one.high_ms is None else one.high_ms, default=None))


def _token_margin(instance: Instance, name: str, replicas: list[_Placed]) -> Margin:
    """The Margin of a language model: that of the replica with the highest rate, for each way to run one."""
    busiest: dict[tuple[object, ...], _Placed] = {}
    for one in sorted(replicas, key=lambda one: one.replica.rate_rps):
        busiest[one.gpu, one.piece.profile, one.replica.batch, instance.model_of(one.replica)] = one
    found = [borne(instance, one.gpu, one.piece) for one in busiest.values() if one.replica.rate_rps]
    service, rate, cv = (min((each for each in column if each is not None), default=None)
                         for column in zip(*found, strict=True))
    bands = [each for one in busiest.values() if (each := bands_at(instance, one.gpu, one.piece, one.replica))]
    return Margin(workload=name, service=service, rate=rate, cv=cv, first=_first(service, rate, cv),
                  fit_error=max((one.service.high - 1 for one in bands), default=None))


def _first(service: float | None, rate: float | None, cv: float | None) -> str:
    """The name of the smallest margin; one of them is known."""
    room = {"service": service, "rate": rate, "burstiness": cv}
    return min((what for what in room if room[what] is not None), key=lambda what: room[what] or 0.0)


def _largest(holds: Callable[[float], bool], steps: int = STEPS) -> float:
    """The largest factor up to MOST for which ``holds`` is true, by bisection; 0 if it is false even near 0."""
    low, high = 0.0, MOST
    if holds(high):
        return high
    if holds(1.0):
        low = 1.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _longer_holds(instance: Instance, one: _Placed, factor: float) -> bool:
    return _judged(instance, one, service=factor)


def _more_holds(instance: Instance, one: _Placed, factor: float) -> bool:
    return _judged(instance, one, rate=factor)


def _judged(instance: Instance, one: _Placed, service: float = 1.0, rate: float = 1.0) -> bool:
    """Whether a replica keeps the latency rule with its service times, or its rate, multiplied by a factor.

    The queue delay of the replica's batcher is set anew, to what the changed service times leave of the budget. With
    the planned delay, a replica whose batches may wait as long as the budget allows would have no margin at all.
    """
    found = _predicted(instance, one, rate)
    if found is None:
        return False
    workload, rate_rps = instance.workload[one.replica.workload], one.replica.rate_rps * rate
    budget_ms = instance.budget_ms(workload) * (1 + TOLERANCE)
    found = found._replace(latency_ms=found.latency_ms * service, throughput_rps=found.throughput_rps / service)
    delay_ms = instance.policy.queue_delay_ms(workload.slo_ms, found.latency_ms)
    tail_ms = instance.policy.rule_for(workload).tail_ms(
        one.replica.batch, one.replica.processes, found, rate_rps, delay_ms)
    return (max(found.latency_ms, tail_ms or 0.0) <= budget_ms
            and rate_rps <= found.throughput_rps * (1 + TOLERANCE))


def _predicted(instance: Instance, one: _Placed, rate: float) -> Prediction | None:
    """The Prediction for a replica with its rate multiplied by a factor."""
    faster = one.replica.model_copy(update={"rate_rps": one.replica.rate_rps * rate})
    replicas = (*one.piece.replicas[: one.at], faster, *one.piece.replicas[one.at + 1 :])
    return predict_slice(instance, one.gpu, one.piece.model_copy(update={"replicas": replicas}))[one.at]


def _largest_cv(instance: Instance, one: _Placed) -> float | None:
    """The largest coefficient of variation of inter-arrival times with which a replica keeps its percentile.

    None if the latency rule is not for random arrivals, or requests come in bursts.
    """
    replica, found = one.replica, _predicted(instance, one, 1.0)
    if not instance.policy.rule.random_arrivals or found is None or not replica.rate_rps:
        return None
    workload = instance.workload[replica.workload]
    if workload.stage and workload.stage.burst > 1:
        return None
    if found.in_turns:
        return _largest(partial(_kept_in_turns, instance, one), CV_STEPS)
    from provision.models.traffic.queue_replays import Queue, late_shares  # compiled kernels, only where they replay

    hold_ms = 1000 * replica.batch * replica.processes / found.throughput_rps
    delay = instance.policy.queue_delay_ms(workload.slo_ms, found.latency_ms) / hold_ms
    patience = (instance.budget_ms(workload) - found.latency_ms) / hold_ms
    load, percentile = replica.rate_rps / found.throughput_rps, instance.policy.percentile_of(workload)

    def keeps(cv: float) -> bool:
        queue = Queue(Renewal(cv=max(cv, 0.1)), percentile)
        late = late_shares(queue, replica.batch, replica.processes, load, patience, delay, CV_REQUESTS)
        return float(np.mean(late)) <= queue.late

    return _largest(keeps, CV_STEPS)


def _kept_in_turns(instance: Instance, one: _Placed, cv: float) -> bool:
    """Whether a workload keeps its percentile on a GPU whose replicas take turns, in a replay with this coefficient of
    variation at all of them.
    """
    from provision.simulation.simulate import simulate  # compiled kernels, only where they replay

    rates = defaultdict[str, float](float)
    for replica in one.piece.replicas:
        rates[replica.workload] += replica.rate_rps
    there = instance.replace(workflows=(), workloads=[
        workload.model_copy(update={"rate_rps": rates[workload.name]}) for workload in instance.workloads
        if workload.name in rates])
    plan = there.plan_of("", [PlannedGpu(gpu=one.gpu, mig=False, slices=(one.piece,))])
    name = one.replica.workload
    found = simulate(there, plan, CV_REQUESTS / rates[name], arrival_cv=max(cv, 0.1)).workloads
    late_ms = next(each.at_slo.mean_ms for each in found if each.workload == name)
    return late_ms is not None and late_ms <= instance.budget_ms(instance.workload[name])
