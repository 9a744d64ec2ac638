"""The policy of an instance: the rules that hold for all its workloads."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from provision.models.base.fields import Flag, Fraction, NonNegative, Percentile, Record, absent, empty
from provision.models.base.register import did_you_mean
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.tokens.requests import Limits
from provision.models.problem.uncertainty import Stretch, Uncertainty, stretch_of
from provision.models.problem.workload import Stage, Workload
from provision.models.traffic.arrivals import POISSON, Arrivals, Mmpp, Poisson, Renewal, Routing, Trace, steadiest_bound
from provision.models.traffic.rule import LatencyRule, Traffic
from provision.models.traffic.rules import rule_names, rule_of

MOST_HEADROOM = 10


def _known_rule(name: object) -> object:
    if name not in rule_names():
        known = " or ".join(map(repr, rule_names()))
        raise ValueError(f"should be {known} (got {name!r}){did_you_mean(name, rule_names())}")
    return name


class Survive(Record):
    """The failures that a plan must survive: the loss of any ``gpu_failures`` GPUs, after which no rate and no SLO is
    missed.
    """

    gpu_failures: Annotated[int, Field(strict=True, ge=1, le=1)]


class Policy(Record):
    """Rules that hold for all workloads of an instance.

    ``latency_budget`` names the latency rule, which tells when a plan keeps an SLO. ``queueing``: the P99 of a
    request's latency, batching and queueing included, is within the SLO times ``safety``. ``half_slo``: the batch
    latency is within half of the SLO times ``safety``; the other half is for batching and queueing (Nexus, iGniter,
    ParvaGPU). ``full_batches``: the time to fill and run a batch is within the SLO times ``safety``, if requests arrive
    evenly and only full batches start (InSS).

    ``headroom`` is the fraction by which the planned rate exceeds the stated rate. With ``share_slices`` different
    workloads may share a MIG slice under MPS if the performance data predicts their times. (Closed networks do, but
    such pairs have not been measured on MIG slices.)

    ``arrivals`` is the process by which requests arrive at a workload, ``routing`` the way in which they are routed to
    its replicas, and ``percentile`` the percentile of their latency that must keep the SLO. A workload can override
    each of these. ``queueing`` plans for them, and a simulation replays them; ``half_slo`` does not depend on them. For
    rules for random arrivals, ``holds`` tells when the percentile must be kept: in the long run, or in every single
    minute, in which the fraction of late requests varies around its mean. With ``confidence`` every workload keeps its
    SLO with this probability although service times, rates and burstiness are uncertain (``uncertainty``): the plan is
    made for longer times and higher rates, at their quantiles.

    With ``survive`` the GPUs that are left after the loss of any single GPU carry every planned rate within its SLO.
    With ``even_replicas`` all replicas of a workload carry the same rate, as behind a load balancer without weights.
    """

    latency_budget: Annotated[str, BeforeValidator(_known_rule)] = "queueing"
    safety: Fraction = 1.0
    headroom: NonNegative = Field(default=0.0, le=MOST_HEADROOM)
    share_slices: Flag = False
    arrivals: Arrivals = Field(default=POISSON, exclude_if=lambda arrivals: arrivals == POISSON)
    routing: Routing = Field(default="random", exclude_if=lambda routing: routing == "random")
    percentile: Percentile = Field(default=99.0, exclude_if=lambda percentile: percentile == 99)
    survive: Survive | None = Field(default=None, exclude_if=absent)
    even_replicas: Flag = Field(default=False, exclude_if=empty)
    holds: Literal["long_run", "every_minute"] = Field(default="long_run", exclude_if=lambda holds: holds == "long_run")
    confidence: Annotated[float, Field(strict=True, ge=0.5, lt=1)] | None = Field(default=None, exclude_if=absent)
    uncertainty: Uncertainty | None = Field(default=None, exclude_if=absent)
    _stretch: Stretch = PrivateAttr(default=Stretch())

    @property
    def stretch(self) -> Stretch:
        """The factors that plans must bear; the instance computes them from the policy and the performance data."""
        private = self.__pydantic_private__  # read directly, since access by name takes 20 times as long
        found: Stretch = private["_stretch"] if private else Stretch()
        return found

    def stretched(self, files: Iterable[PerformanceFile], models: set[str]) -> Self:
        """The policy with the factors that its plans must bear, given performance data for these models. Raises
        ValueError if the performance data should state its errors and does not, or ``confidence`` is missing.
        """
        if self.uncertainty and self.confidence is None:
            raise ValueError("policy.uncertainty: is for plans that hold with some confidence; add policy.confidence")
        found = self.model_copy()
        found._stretch = Stretch()
        if self.confidence is not None:
            found._stretch = stretch_of(self.confidence, self.uncertainty or Uncertainty(), files, models)
        return found

    def without_room(self) -> Self:
        """The policy for an instance whose rates already include headroom and uncertainty. It has the same limits, but
        adds nothing to rates.
        """
        safety = self.safety / max(self.stretch.service, self.stretch.first_token)
        arrivals = {"arrivals": Renewal(cv=self.uncertainty.cv)} if self.uncertainty and self.uncertainty.cv else {}
        found = self.model_copy(update={"headroom": 0.0, "confidence": None, "uncertainty": None, "safety": safety}
                                | arrivals)
        found._stretch = Stretch()
        return found

    @property
    def rule(self) -> LatencyRule:
        """The latency rule of the policy, for Poisson arrivals and the P99."""
        return rule_of(self.latency_budget)

    def arrivals_of(self, workload: Workload) -> Poisson | Renewal | Mmpp | Trace:
        """The arrival process for which a workload is planned; if ``uncertainty`` states ``cv``, a renewal process with
        this ``cv``.
        """
        if self.confidence and self.uncertainty and self.uncertainty.cv:
            return Renewal(cv=self.uncertainty.cv)
        return workload.arrivals or self.arrivals

    def routing_of(self, workload: Workload) -> Routing:
        """The way in which the requests of a workload are routed to its replicas."""
        return workload.routing or self.routing

    def percentile_of(self, workload: Workload) -> float:
        """The percentile of the latency of a workload's requests that must keep its SLO."""
        stated = workload.slo.percentile if workload.slo else None
        return workload.percentile or stated or self.percentile

    def limits_of(self, workload: Workload) -> Limits:
        """The limits on the times of a workload's tokens and answers that a plan must keep, with the workload's
        percentile.
        """
        limits = workload.limits.scaled(self.safety / self.stretch.service)
        first_ms = limits.ttft_ms * self.stretch.service / self.stretch.first_token
        return limits._replace(ttft_ms=first_ms, percentile=self.percentile_of(workload))

    def traffic_of(self, workload: Workload) -> Traffic:
        """The traffic at each replica of a workload, whatever the number of replicas.

        Requests routed round robin, or to the least loaded replica, are assumed to arrive at a replica no more
        irregularly than requests routed at random.
        """
        stage = workload.stage or Stage()
        return Traffic(steadiest_bound(self.arrivals_of(workload)), self.percentile_of(workload), stage.burst,
                       self.planned_rps(workload.rate_rps) if stage.burst > 1 else 0.0, stage.most_batch)

    def rule_for(self, workload: Workload) -> LatencyRule:
        """The latency rule for the traffic of a workload's replicas."""
        return self.rule.under(self.traffic_of(workload))

    @property
    def part_of_slo(self) -> float:
        """The fraction of an SLO that a batch, or under ``queueing`` a request, may take. It does not apply to language
        models.
        """
        return self.rule.part_of_slo * self.safety / self.stretch.service

    def queue_delay_ms(self, slo_ms: float, latency_ms: float) -> float:
        """The longest time that a request should wait for its batch to fill while a process is idle, in ms."""
        return self.rule.queue_delay_ms(slo_ms, self.safety / self.stretch.service, latency_ms)

    def fill_ms(self, slo_ms: float) -> float:
        """The longest time, in ms, that a batch should wait to fill on a slice that different workloads share."""
        return slo_ms / 2 / self.stretch.service

    def planned_rps(self, rate_rps: float) -> float:
        """The rate for which to plan, in requests/s, headroom and uncertainty included. Service times that are longer
        by a factor have the same effect as an SLO that is shorter and a rate that is higher by this factor, since both
        give the same queue in another unit of time.
        """
        stretch = self.stretch
        return rate_rps * (1 + self.headroom) * stretch.rate * stretch.service
