"""Tells how far the latency rule's bound on a percentile may be from what it says: the bound is computed anew with the
service times at both ends of the band that the performance data state for them. Rates and the time that a batch waits
to fill stay as planned. The band of the percentile itself is that of replays (`margins`).
"""

import math
from collections.abc import Iterator

from provision.models.base.fields import Record
from provision.models.performance.bands import CONFIDENCE
from provision.models.performance.catalogue import PerformanceFile, ServiceBands
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, Replica, Slice
from provision.models.plans.result import Replay
from provision.models.problem.instance import Instance
from provision.models.problem.prediction import bands_at, performance_beside, predict_slice

FEW = 4
"""The number of workloads that a line names."""
BATCH = "batch"
"""What is told if the latency rule tells no percentile: the time of a batch."""
FIRST_TOKEN = "TTFT"
"""What the SLO of first tokens is called in replays."""


class Tail(Record):
    """A latency ``what`` in ms, such as the P99 or the rule's bound on it, and the ends of its band: what it is with
    service times at the ends ``low`` and ``high`` of the band of measured over predicted ones, between which they are
    with probability ``confidence``. ``high_ms`` is None if the queue would grow without limit.
    """

    what: str
    ms: float
    low_ms: float
    high_ms: float | None
    low: float
    high: float
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        return f"{self.what} {self.ms:.4g} ms ({self._ends}, {self.confidence:.0%})"

    @property
    def at_most(self) -> str:
        """The latency as the bound that a latency rule promises, in words."""
        return f"promised at most {self.ms:.4g} ms ({self._ends} with these errors)"

    @property
    def _ends(self) -> str:
        return f"{self.low_ms:.4g} to {'overload' if self.high_ms is None else f'{self.high_ms:.4g}'}"


def tail_of(instance: Instance, gpu: str, piece: Slice, at: int) -> Tail | None:
    """The rule's bound on the percentile of a replica's latency with its band; the time of a batch if the latency rule
    tells no percentile.

    It is None if no data describes the replica or its errors. ``at`` is the index of the replica on the slice.
    """
    bands = bands_at(instance, gpu, piece, piece.replicas[at])
    if bands is None:
        return None
    calmer = piece.model_copy(update={"replicas": tuple(_as_asked(instance, one) for one in piece.replicas)})
    found = predict_slice(instance, gpu, calmer)[at]
    if found is None:
        return None
    replica, low, high = calmer.replicas[at], bands.service.low, bands.service.high
    percentile = f"P{instance.policy.percentile_of(instance.workload[replica.workload]):g}"
    told = [_percentile_ms(instance, replica, found, factor) for factor in (1.0, low, high)]
    known = [one for one in told if one is not None]
    what, times = (percentile, known) if known else (BATCH, [found.latency_ms * one for one in (1.0, low, high)])
    ms, low_ms, high_ms = times
    return Tail(what=what, ms=ms, low_ms=low_ms, high_ms=high_ms if math.isfinite(high_ms) else None,
                low=low, high=high)


def token_tails(instance: Instance, plan: Plan, replay: Replay | None) -> Iterator[str]:
    """Yield a line for every SLO of a language model: its percentile in the replay, with the band.

    Without a replay there is a line per workload with the bands alone. They are the bands of means over requests; a P99
    has at least such a band.
    """
    met = {one.name: one for one in replay.slos} if replay else {}
    for workload in (one for one in instance.workloads if one.tokens):
        bands = [found for at, _, piece, one in plan.replicas() if one.workload == workload.name
                 and (found := bands_at(instance, plan.gpus[at].gpu, piece, one)) is not None]
        if not bands:
            continue
        widest = ServiceBands(*(max(column, key=lambda one: one.high) for column in zip(*bands, strict=True)))
        told = [(name, one) for name, one in met.items() if name.partition(": ")[0] == workload.name and one.met_ms]
        for name, one in told:
            band, ms = widest.first_token if FIRST_TOKEN in name else widest.service, one.met_ms or 0.0
            tail = Tail(what=f"P{one.percentile:g}", ms=ms, low_ms=ms * band.low, high_ms=ms * band.high,
                        low=band.low, high=band.high)
            yield f"{name}: replayed {tail}"
        if not told:
            parts = (f"{what} {band.low:.2f} to {band.high:.2f}" for what, band in
                     (("first tokens", widest.first_token), ("further tokens", widest.service)))
            yield f"{workload.name}: {', '.join(parts)} times what is predicted ({CONFIDENCE:.0%})"


def without_bands(instance: Instance, plan: Plan) -> Iterator[str]:
    """Yield a line for every performance file that a plan uses and that states no errors of its predictions.

    The line names some of the workloads and quotes the first sentence of the file's ``source``, which tells why.
    """
    named: dict[str, tuple[PerformanceFile, dict[str, None]]] = {}
    bandless: dict[tuple[object, ...], PerformanceFile | None] = {}
    for at, _, piece, one in plan.replicas():
        gpu, models = plan.gpus[at].gpu, list(map(instance.model_of, piece.replicas))
        key = (gpu, piece.profile, instance.model_of(one), *models, one.batch, one.sm_share)
        if key not in bandless:
            bandless[key] = _bandless(instance, gpu, piece, one)
        data = bandless[key]
        if data is not None:
            named.setdefault(data.name, (data, {}))[1][one.workload] = None
    for name, (data, workloads) in named.items():
        first = list(workloads)[:FEW]
        more = f" and {len(workloads) - FEW} more" if len(workloads) > FEW else ""
        why = (data.source or "no source given").partition(". ")[0].rstrip(".")
        yield f"No band is known for {', '.join(first)}{more}: {name} states no errors of its predictions ({why})"


def _bandless(instance: Instance, gpu: str, piece: Slice, replica: Replica) -> PerformanceFile | None:
    """The performance data that describe a replica if they state no errors of its predictions, else None."""
    data = performance_beside(instance, gpu, piece.profile, [instance.model_of(one) for one in piece.replicas])
    return data if data is not None and bands_at(instance, gpu, piece, replica) is None else None


def _as_asked(instance: Instance, replica: Replica) -> Replica:
    """A replica at the rate that its requests have.

    A plan with a ``confidence`` states rates that are higher by the factor on service times: a higher rate has the same
    effect as longer service times. This divides by that factor.
    """
    return replica.model_copy(update={"rate_rps": replica.rate_rps / instance.policy.stretch.service})


def _percentile_ms(instance: Instance, replica: Replica, found: Prediction, factor: float) -> float | None:
    """The percentile of a replica's latency with service times multiplied by a factor, in ms; None if the latency rule
    does not tell it.
    """
    workload = instance.workload[replica.workload]
    slower = found._replace(latency_ms=found.latency_ms * factor, throughput_rps=found.throughput_rps / factor)
    delay_ms = instance.policy.queue_delay_ms(workload.slo_ms, found.latency_ms)
    rule = instance.policy.rule_for(workload)
    return rule.tail_ms(replica.batch, replica.processes, slower, replica.rate_rps, delay_ms)
