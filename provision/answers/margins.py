"""Computes the margins of each workload of a plan: how much may change before the workload misses its SLO. A workload
has three margins: the largest factor on its service times, the largest factor on its rate, and the largest coefficient
of variation of its inter-arrival times (1 for Poisson arrivals) with which it keeps its SLO, while everything else is
as planned: batchers wait as long as they were told.

Under a rule for random arrivals the margins are estimates by replays (`deployed`). Beside them stands the factor on the
rate up to which the latency rule accepts the plan, as the verifier does. Without random arrivals all is the rule's. The
margins of a language model, until a limit on its tokens breaks, are found by replays of its engine. The percentile of
the workload's latency with its band stands beside the margins (`tails`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from provision.answers.tails import BATCH, Tail, tail_of, token_tails, without_bands
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.fields import Record
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.operating_points import Prediction
from provision.models.performance.tokens.data import TokenModels
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.plans.result import Replay
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import as_deployed, bands_at, predict_slice
from provision.models.traffic.arrivals import Poisson, Renewal

if TYPE_CHECKING:
    from provision.answers.deployed import Deployed

MOST = 10.0
"""The largest factor and the largest coefficient of variation that are tried."""
STEPS, REPLAYED_STEPS, ENGINE_STEPS = 16, 7, 6
"""The numbers of bisection steps in the search for a factor by the rule, by replays, and by replays of an engine."""
SEED = 200
"""The seed of an engine's replays, different from those of planning and of the verifier."""
MOST_REPLAYED, MOST_JUDGED = 60, 1000
"""The most different replicas that a plan may have so that it is replayed, and so that any margin is computed. With
these limits the computation takes seconds.
"""
ERRORS = 2.0
"""The standard errors by which the ends of a replayed percentile's band are widened."""
LONGER, MORE = 0.05, 0.1
"""The increases of service times and of rates, as fractions, for which one line tells how many SLOs break."""
WAITING = (" Waiting limits it, not load: its batches wait for requests until only their predicted time is left of "
           "the SLO; policy.safety 0.9 keeps a tenth back.")
"""What is said of a workload that hardly bears longer service times, though it bears much more traffic."""
FEW = 8
"""The number of workloads that are printed; the workloads closest to their SLOs come first."""


class Margin(Record):
    """The margins of a workload. A field is None if nothing tells it, or nothing was replayed.

    ``service`` and ``rate`` are factors; ``cv`` is a coefficient of variation of inter-arrival times. ``estimated``
    tells that they come from replays of the plan as deployed, and not from the latency rule; ``rule_rate`` is then the
    factor on the planned rate up to which the rule accepts the plan. ``first`` names the smallest margin. ``tail`` is
    what the rule says of the percentile of latency, with its band, of the replica that may come closest to its SLO;
    ``replayed`` is the percentile itself, with its band, over all replicas. ``fit_error`` is the part by which service
    times may be longer than predicted: the upper end of the band.
    """

    workload: str
    service: float | None
    rate: float | None
    cv: float | None
    first: str
    fit_error: float | None
    tail: Tail | None = None
    estimated: bool = False
    rule_rate: float | None = None
    replayed: Tail | None = None


class _Placed(NamedTuple):
    """A replica: the GPU type, the slice, and its index among the replicas of the slice."""

    gpu: str
    piece: Slice
    at: int

    @property
    def replica(self) -> Replica:
        return self.piece.replicas[self.at]


def margins_of(instance: Instance, plan: Plan, end: Deadline = NEVER) -> list[Margin] | None:
    """The Margin of every workload that has replicas in a plan.

    Parameters
    ----------
    instance, plan
        The instance and a valid plan for it.
    end
        The deadline. Workloads of which not everything is known before it are left out.

    Returns
    -------
    list of Margin or None
        The margins in the order of the workloads that have requests; None if the plan has more than MOST_JUDGED
        different replicas.
    """
    stated, instance, different = instance, as_deployed(instance, plan), _different(plan)
    if len(different) > MOST_JUDGED:
        return None
    placed: defaultdict[str, list[_Placed]] = defaultdict(list)
    for place in different:
        placed[place.replica.workload].append(place)
    if replayed := instance.policy.rule.random_arrivals and len(different) <= MOST_REPLAYED:
        from provision.answers.deployed import Deployed  # it loads slowly, and without replays nobody needs it

    found: list[Margin] = []
    with suppress(TimeOverError):
        for one in instance.workloads:
            if one.tokens and one.name in placed and one.rate_rps:
                found.append(_token_margin(instance, one.name, placed[one.name], end))
            elif one.name in placed and one.rate_rps:
                deployed = Deployed(stated, plan, one.name) if replayed else None
                found.append(_margin(instance, placed[one.name], deployed, end))
    return found


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
        if beyond := [one.workload for one in margins if one.replayed and (
                one.replayed.high_ms or math.inf) > instance.workload[one.workload].slo_ms]:
            yield (f"A tick promises the SLO for service times as predicted; at the upper end of their known errors "
                   f"{', '.join(beyond[:FEW])} would be late: measure before you rely on it")
    if all(one.workload in instance.workload for *_, one in plan.replicas()):
        yield from token_tails(instance, plan, replay)
        yield from without_bands(instance, plan)


def weakest(margins: list[Margin]) -> str | None:
    """A sentence on the workload that breaks first, by traffic or by service times; None if no such margin is known."""
    bears = {one.workload: [(factor, what) for factor, what in ((one.rate, "traffic"), (one.service, "service time"))
                            if factor is not None] for one in margins}
    known = {name: factors for name, factors in bears.items() if factors}
    if not known:
        return None
    first = min(known, key=lambda name: min(known[name]))
    at = " or ".join(f"{_beyond(factor)} {what}" for factor, what in known[first])
    one = next(one for one in margins if one.workload == first)
    by = " by replays" if one.estimated else ""
    return f"The weakest workload is {first}: it breaks at {at}{by}.{WAITING if _waits(one) else ''}"


def _waits(one: Margin) -> bool:
    """Whether longer service times break a workload much sooner than more traffic does, so that no queue is the cause.
    """
    return (one.estimated and one.service is not None and one.rate is not None
            and one.service - 1 < min(LONGER + MORE, (one.rate - 1) / 2))


def lines(margins: list[Margin]) -> Iterator[str]:
    """Yield a line for each of the FEW workloads that are closest to their SLOs."""
    nearest = sorted(margins, key=_room)
    for one in nearest[:FEW]:
        parts = [] if one.service is None else [f"{_beyond(one.service)} service time"]
        parts += [] if one.rate is None else [f"{_beyond(one.rate)} traffic"]
        if parts and one.estimated and one.rule_rate is not None:
            parts[-1] += f" (verify accepts {_beyond(one.rule_rate)})"
        parts += [] if one.cv is None else [f"cv {math.floor(10 * one.cv) / 10:g}"]
        yield f"{one.workload}{_told(one)} breaks at {', '.join(parts)}"
    if len(nearest) > FEW:
        yield f"{len(nearest) - FEW} further workloads break later (--json has all)"


def _beyond(factor: float) -> str:
    """How much more a factor is, in percent, rounded down."""
    return f"{math.floor(1000 * (factor - 1) + 1e-6) / 10:+.1f}%"


def _told(one: Margin) -> str:
    """The percentile of latency in words, replayed or by the rule; empty if it is unknown."""
    if one.tail is None:
        return ""
    if one.tail.what == BATCH:
        return f": {one.tail};"
    what, _, replayed = str(one.replayed or one.tail.what).partition(" ")
    return f": {what} {f'replayed {replayed}, ' if one.replayed else ''}{one.tail.at_most};"


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
        parts.append(f"at {part:.0%} {what} {verdict} (the first to break: {first}, at {_beyond(known[first])})")
    by = "What if, by replays" if any(one.estimated for one in margins) else "What if"
    return f"{by}: {'; '.join(parts)}" if parts else None


def _room(one: Margin) -> float:
    """How close a workload is to its SLO: the smallest of its margins minus 1; infinite if it has no margins."""
    return min((value - 1 for value in (one.service, one.rate, one.cv) if value is not None), default=math.inf)


def _margin(instance: Instance, replicas: list[_Placed], deployed: Deployed | None, end: Deadline) -> Margin:
    """The Margin of the workload whose different replicas are ``replicas``.

    With ``deployed``, which replays the workload, its margins are estimated by replays. Without it they come from the
    latency rule, as the smallest margins of any replica; ``cv`` is then None, and under random arrivals ``service``.
    """
    name, random = replicas[0].replica.workload, instance.policy.rule.random_arrivals
    rule_rate = min(largest(partial(_judged, instance, one, 1.0), 1.0, MOST, STEPS, end) for one in replicas)
    tails = [tail for each in replicas if (tail := tail_of(instance, each.gpu, each.piece, each.at)) is not None]
    told = {"fit_error": max((one.high - 1 for one in tails), default=None),
            "tail": max(tails, key=lambda one: math.inf if one.high_ms is None else one.high_ms, default=None)}
    if deployed is None:
        service = None if random else min(
            largest(partial(_judged, instance, one), 1.0, MOST, STEPS, end) for one in replicas)
        return Margin(workload=name, service=service, rate=rule_rate, cv=None, first=_first(service, rule_rate, None),
                      **told)
    service = largest(lambda factor: deployed.keeps(service=factor), 1.0, MOST, REPLAYED_STEPS, end)
    rate = max(largest(lambda factor: deployed.keeps(rate=factor), 1.0, MOST, REPLAYED_STEPS, end), rule_rate)
    cv = None if deployed.flow else largest(lambda factor: deployed.keeps(cv=factor), 1.0, MOST, REPLAYED_STEPS, end)
    return Margin(workload=name, service=service, rate=rate, cv=cv, first=_first(service, rate, cv), estimated=True,
                  rule_rate=rule_rate, replayed=_replayed(instance, deployed, tails), **told)


def _replayed(instance: Instance, deployed: Deployed, tails: list[Tail]) -> Tail | None:
    """The percentile of latency in replays, and with service times at both ends of the widest band, wider by the errors
    of the replays.
    """
    if not tails:
        return None
    low, high = min(one.low for one in tails), max(one.high for one in tails)
    high_ms = deployed.percentile_ms(high, ERRORS)
    return Tail(what=f"P{instance.policy.percentile_of(deployed.workload):g}", ms=deployed.percentile_ms(),
                low_ms=deployed.percentile_ms(low, -ERRORS), high_ms=high_ms if math.isfinite(high_ms) else None,
                low=low, high=high)


def _token_margin(instance: Instance, name: str, replicas: list[_Placed], end: Deadline) -> Margin:
    """The Margin of a language model: that of the replica with the highest rate, for each way to run one."""
    busiest: dict[tuple[object, ...], _Placed] = {}
    for one in sorted(replicas, key=lambda one: one.replica.rate_rps):
        busiest[one.gpu, one.piece.profile, one.replica.batch, instance.model_of(one.replica)] = one
    found = [borne(instance, one.gpu, one.piece, end) for one in busiest.values() if one.replica.rate_rps]
    service, rate, cv = (min((each for each in column if each is not None), default=None)
                         for column in zip(*found, strict=True))
    bands = [each for one in busiest.values() if (each := bands_at(instance, one.gpu, one.piece, one.replica))]
    return Margin(workload=name, service=service, rate=rate, cv=cv, first=_first(service, rate, cv),
                  fit_error=max((one.service.high - 1 for one in bands), default=None))


def _first(service: float | None, rate: float | None, cv: float | None) -> str:
    """The name of the smallest margin; one of them is known."""
    room = {"service": service, "rate": rate, "burstiness": cv}
    return min((what for what in room if room[what] is not None), key=lambda what: room[what] or 0.0)


def _judged(instance: Instance, one: _Placed, service: float = 1.0, rate: float = 1.0) -> bool:
    """Whether a replica keeps the latency rule with its service times, or its rate, multiplied by a factor."""
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


class Borne(NamedTuple):
    """The largest factors on all times and on the rate, and the largest coefficient of variation of inter-arrival
    times; only the rate is known if arrivals are neither Poisson nor a renewal process.
    """

    service: float | None
    rate: float
    cv: float | None


class TimeOverError(Exception):
    """The time is over before it is known what a workload bears."""


def largest(holds: Callable[[float], bool], low: float, high: float, steps: int, end: Deadline = NEVER) -> float:
    """The largest number from ``low``, which is known to hold, to ``high`` that holds, by bisection of their ratio.
    Raises TimeOverError if the deadline comes first.
    """
    def tried(number: float) -> bool:
        if end.over:
            raise TimeOverError
        return holds(number)

    if low >= high or tried(high):
        return high
    for _ in range(steps):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tried(middle) else (low, middle)
    return low


def borne(instance: Instance, gpu: str, piece: Slice, end: Deadline = NEVER) -> Borne:
    """What the replica on a slice of a valid plan bears; at its planned rate it keeps its limits.

    Times longer by a factor have the same effect as a rate higher, and limits shorter, by that factor. Raises
    TimeOverError if the deadline comes first.
    """
    from provision.models.performance.tokens.operating import answers_ms, costs_of, late_shares, part_of

    [replica] = piece.replicas
    workload, model = instance.workload[replica.workload], instance.model_of(replica)
    data, tokens, limits = instance.performance_of(gpu, model), workload.tokens, instance.policy.limits_of(workload)
    assert isinstance(data, TokenModels) and tokens is not None
    engine = data.engine_of(model, piece.profile, replica.batch)
    costs = costs_of(data.models[model].slices[piece.profile])
    arrivals = instance.policy.traffic_of(workload).arrivals

    def keeps(rate: float, service: float = 1.0, asked: Poisson | Renewal | None = None) -> bool:
        times_ms = service * answers_ms(replica.rate_rps * rate * service, tokens.input.counts, tokens.output.counts,
                                        engine, costs, asked or arrivals, SEED, part_of(tokens))
        return bool((late_shares(times_ms, limits) <= limits.may_be_late).all())

    rate = largest(keeps, 1.0, MOST, ENGINE_STEPS, end)
    if not isinstance(arrivals, (Poisson, Renewal)):
        return Borne(None, rate, None)
    least_cv = arrivals.cv if isinstance(arrivals, Renewal) else 1.0
    return Borne(largest(lambda factor: keeps(1.0, factor), 1.0, rate, ENGINE_STEPS, end), rate,
                 largest(lambda cv: keeps(1.0, asked=Renewal(cv=cv)), least_cv, MOST, ENGINE_STEPS, end))
