"""The settings of a simulation and its report: latencies and counts by workload."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Count, Flag, Name, NonNegative, Positive, PositiveCount, Record, Text, absent
from provision.models.base.shown import Shown, frame
from provision.models.base.tolerances import CLOCK_MS
from provision.models.traffic.arrivals import Routing

if TYPE_CHECKING:
    from pandas import DataFrame

TAIL_LEVELS = tuple(float(level) for level in 1 - np.logspace(0, -4, 121))
"""The levels of the quantiles that are kept for drawing; 1 - level is spaced logarithmically from 1 to 0.0001."""

TARGET = 0.99
"""The fraction of its requests that a workload has to answer in time to keep its SLO."""


class Failure(Record):
    """The loss of a GPU, given by its index in the plan, ``at_s`` seconds after the start."""

    gpu: Count
    at_s: NonNegative


class SimulationSettings(Record):
    """The settings of a simulation.

    Attributes
    ----------
    seconds, warmup_s
        The duration of the arrivals, and the duration of the warm-up at their start, whose requests latencies and rates
        leave out (by default a tenth of the duration, at most 5 s).
    seed, replications
        The seed of the random numbers, and the number of replays with different random numbers.
    arrival_cv
        The coefficient of variation of inter-arrival times: 1 means Poisson arrivals, 0 constant arrivals, other
        numbers a Gamma distribution; None replays the arrivals that the instance states.
    routing
        The way in which requests are routed to replicas. None routes as the instance states; with ``arrival_cv`` 0 None
        routes round robin, so that the arrivals at replicas are constant too.
    trace
        A CSV file of arrivals (``time_s,workload``) that replaces random arrivals.
    max_delay_ms
        The longest time that the oldest request of a batch waits for more requests while a process is idle. None means
        the policy's budget minus the latency of a full batch with all processes busy; under half_slo, half of the SLO
        minus this latency.
    queue_limit
        The most requests that may wait at a replica; further requests are dropped.
    service_cv, service_factor
        The coefficient of variation of batch times (lognormal), and a factor on all batch times: with 1.1 the
        simulation shows the effect of a performance model that is 10 % too optimistic.
    shadow
        Whether iGniter's standby processes (section 4.2 of the paper) are simulated: a workload whose P99 misses its
        SLO gets more SMs.
    fail
        The loss of a GPU; None for no loss.
    """

    seconds: Annotated[Positive, Field(le=1e6)] = 60.0
    warmup_s: NonNegative | None = None
    seed: Count = 0
    replications: Annotated[PositiveCount, Field(le=1000)] = 1
    arrival_cv: Annotated[NonNegative, Field(le=10)] | None = None
    routing: Routing | None = None
    trace: Text | None = None
    max_delay_ms: Annotated[NonNegative, Field(le=1e9)] | None = None
    queue_limit: PositiveCount | None = None
    service_cv: Annotated[NonNegative, Field(le=10)] = 0.0
    service_factor: Annotated[Positive, Field(le=1000)] = 1.0
    shadow: Flag = False
    fail: Failure | None = Field(default=None, exclude_if=absent)

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if self.warmup_s is not None and self.warmup_s >= self.seconds:
            raise ValueError(f"warmup_s: {self.warmup_s:g} leaves nothing of {self.seconds:g} seconds; shorten it")
        return self

    @property
    def measured_from_s(self) -> float:
        """The end of the warm-up, in seconds."""
        return min(self.seconds / 10, 5.0) if self.warmup_s is None else self.warmup_s


class Interval(Record):
    """A quantile of latencies: its mean over the replications and, with several replications, its 95 % confidence
    interval, in ms.

    Replications without requests are left out. None means that the quantile does not exist, because too many requests
    were dropped or there were none.
    """

    mean_ms: float | None
    low_ms: float | None = None
    high_ms: float | None = None


class SimulatedWorkload(Record):
    """Latencies and counts of the requests of one workload.

    Percentiles and rates are over the requests that arrive after the warm-up; a dropped request counts as never
    answered and violates the SLO. Left out are the requests that wait or run on a GPU when it is lost. The counts are
    over all requests in all replications: arrived = served + dropped + in_flight at the end. ``utilisation`` is the
    fraction of the time in which the workload's processes were busy, ``mean_batch`` the mean number of requests in a
    batch. ``tail_ms`` has the quantiles at TAIL_LEVELS; ``at_slo`` is the quantile at ``percentile``, for which the SLO
    is stated.
    """

    workload: Name
    slo_ms: float
    offered_rps: float
    p50: Interval
    p95: Interval
    p99: Interval
    p999: Interval
    percentile: float = 99.0
    at_slo: Interval
    throughput_rps: float
    violation_rate: float
    utilisation: float | None
    mean_batch: float | None
    arrived: int
    served: int
    dropped: int
    in_flight: int
    tail_ms: tuple[float | None, ...]

    @property
    def ok(self) -> bool:
        """Whether the percentile is within the SLO; true if no requests arrive."""
        met_ms = self.at_slo.mean_ms
        return not self.offered_rps or (met_ms is not None and met_ms <= self.slo_ms + CLOCK_MS)

    @property
    def over_slo(self) -> float:
        """The percentile divided by the SLO, at most 1 if the SLO is kept. It is 0 if no requests arrive, and infinite
        if the percentile does not exist.
        """
        if not self.offered_rps:
            return 0.0
        return math.inf if self.at_slo.mean_ms is None else self.at_slo.mean_ms / self.slo_ms

    def summary(self) -> dict[str, Any]:
        """The JSON object of one workload."""
        quantiles = {name: getattr(self, name) for name in ("p50", "p95", "p99", "p999")}
        rest = self.model_dump(exclude={*quantiles, "tail_ms", "at_slo"})
        times = {f"{name}_ms": one.mean_ms for name, one in quantiles.items()}
        intervals = {f"{name}_ci_ms": (one.low_ms, one.high_ms) for name, one in quantiles.items()}
        known = {name: None if None in pair else list(pair) for name, pair in intervals.items()}
        times["at_slo_ms"] = self.at_slo.mean_ms
        return {"workload": rest.pop("workload"), "ok": self.ok} | times | known | rest


class Switch(Record):
    """The switch of a workload to its standby process: the time, and the SM shares before and after."""

    replication: int
    at_s: float
    gpu: int
    workload: Name
    from_share: float
    to_share: float


class SimulationReport(Shown, Record):
    """The report of a simulated plan, with the results of every workload.

    For language models ``workloads`` has the latencies of whole answers, and ``tokens`` those of first tokens and per
    output token. ``workflows`` are timed from the request to the last answer of the last stage. ``notes`` tells where
    the simulation had to make assumptions.
    """

    instance: Name
    settings: SimulationSettings
    workloads: tuple[SimulatedWorkload, ...]
    tokens: tuple[SimulatedWorkload, ...] = ()
    workflows: tuple[SimulatedWorkload, ...] = ()
    switches: tuple[Switch, ...] = ()
    notes: tuple[Text, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every workload and workflow keeps its SLO."""
        return not self.late

    def __repr__(self) -> str:
        verdict = f"{len(self.late)} late" if self.late else "every SLO kept"
        return f"<SimulationReport of {self.instance}: {len(self.workloads)} workloads, {verdict}>"

    __str__ = __repr__

    def to_frame(self) -> DataFrame:
        """A pandas frame with a row per workload and workflow: latencies, rates and counts."""
        return frame([one.summary() for one in (*self.workloads, *self.workflows)])

    @property
    def late(self) -> list[str]:
        """The names of the workloads and workflows that miss their SLO."""
        return [one.workload for one in self.timed if not one.ok]

    @property
    def timed(self) -> tuple[SimulatedWorkload, ...]:
        """The results of everything that has an SLO: workloads, tokens and workflows."""
        return (*self.workloads, *self.tokens, *self.workflows)

    @property
    def worst(self) -> SimulatedWorkload:
        """The workload or workflow with the largest ratio of percentile to SLO."""
        return max(self.timed, key=lambda one: one.over_slo)

    @property
    def violation_rate(self) -> float:
        """The fraction of all requests after the warm-up that are not answered within their SLO."""
        offered_rps = sum(one.offered_rps for one in self.workloads)
        late_rps = sum(one.violation_rate * one.offered_rps for one in self.workloads)
        return late_rps / offered_rps if offered_rps else 0.0

    def summary(self) -> dict[str, Any]:
        """The JSON object that ``provision simulate --json`` prints."""
        counts = ("arrived", "served", "dropped", "in_flight")
        return {
            "ok": self.ok,
            "instance": self.instance,
            "settings": self.settings.model_dump() | {"warmup_s": self.settings.measured_from_s},
            "workloads": [one.summary() for one in self.workloads],
            "tokens": [one.summary() for one in self.tokens],
            "workflows": [one.summary() for one in self.workflows],
            **{name: sum(getattr(one, name) for one in self.workloads) for name in counts},
            "switches": [one.model_dump() for one in self.switches],
            "notes": list(self.notes),
        }
