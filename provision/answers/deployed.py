"""Replays the traffic of one workload on its replicas as a plan deploys them: batchers wait as long as planned,
whatever service times, rates and arrivals are tried. What follows from these replays is an estimate.

Slices that are equal are replayed once. Requests come to a slice as routing deals them: by lot, or round robin;
``least_loaded`` is taken by lot. Workloads of workflows are replayed together with all of the plan.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.tolerances import CLOCK_MS
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.plan import Plan, PlannedGpu, Slice
from provision.models.plans.simulation_report import TAIL_LEVELS, SimulationSettings
from provision.models.problem.instance import Instance
from provision.models.problem.workflow import Workflow
from provision.models.traffic.arrivals import Mmpp, Poisson, Renewal, Trace, by_lot, in_turns
from provision.simulation.deployment import Deployment, deploy
from provision.simulation.replay import arrivals_ns, replay
from provision.simulation.simulate import simulate

REQUESTS, FEWEST = 2**14, 2**12
"""The requests of a workload in one replay of all of its slices, and the fewest on one slice."""
BESIDE, BEFORE_ROUTING = 2**17, 2**20
"""The most requests of a replay of one slice with its neighbours, and the most that are drawn to be routed to it."""
IN_FLOWS = 2**12
"""The requests of a workflow in a replay."""
CLUSTER = 8
"""Late requests come in clusters of about this size."""
CLEAR, LONGER = 3.0, 8
"""A replay is repeated with LONGER times as many requests if the late part is within CLEAR standard errors of the
allowed one; and the ends of bands are replayed with as many.
"""
SEED = 300
"""The seed of these replays, different from those of other replays."""


class _Part(NamedTuple):
    """Equal slices: an instance with their workloads at their rates there, a plan of one of them as it is deployed, the
    part of the workload's requests that all of them get, and the part that one of them gets.
    """

    instance: Instance
    deployment: Deployment
    weight: float
    each: float


class Latencies(NamedTuple):
    """Latencies in ms, ascending, the part of the workload's requests that each stands for, and their number."""

    ms: Floats
    weights: Floats
    requests: int

    def late_part(self, limit_ms: float) -> float:
        """The part of the requests that take longer than a limit."""
        return float(self.weights[self.ms > limit_ms + CLOCK_MS].sum())

    def percentile_ms(self, percent: float, errors: float = 0.0) -> float:
        """A percentile of the latencies; with the level moved by so many standard errors."""
        level = percent / 100
        level += errors * math.sqrt(level * (1 - level) * CLUSTER / self.requests)
        place = int(np.searchsorted(np.cumsum(self.weights), min(level, 1.0) * (1 - 1e-12)))
        return float(self.ms[min(place, len(self.ms) - 1)])


class Deployed:
    """A workload of a valid plan under a rule for random arrivals; its rates are those of the instance."""

    def __init__(self, instance: Instance, plan: Plan, name: str) -> None:
        self.instance, self.plan, self.workload = instance, plan, instance.workload[name]
        self.flow = next((one for one in instance.workflows if name in one.workloads), None)
        self.known: dict[tuple[float, float, float | None, int], Latencies] = {}

    def keeps(self, service: float = 1.0, rate: float = 1.0, cv: float | None = None) -> bool:
        """Whether the workload keeps its SLO with service times and rate multiplied by factors, and with a coefficient
        of variation of inter-arrival times; None for the arrivals of the instance.
        """
        allowed = 1 - self.instance.policy.percentile_of(self.workload) / 100
        found = self.latencies(service, rate, cv)
        error = math.sqrt(allowed * (1 - allowed) * max(CLUSTER, (cv or 1.0) ** 2) / found.requests)
        if self.flow is None and abs(found.late_part(self.workload.slo_ms) - allowed) < CLEAR * error:
            found = self.latencies(service, rate, cv, LONGER)
        return found.late_part(self.workload.slo_ms) <= allowed

    def percentile_ms(self, service: float = 1.0, errors: float = 0.0) -> float:
        """The percentile of the latency that the SLO is for, with service times multiplied by a factor. Other times
        than predicted are replayed longer, since near saturation the percentile varies.
        """
        percent = self.instance.policy.percentile_of(self.workload)
        return self.latencies(service, length=LONGER if service != 1 else 1).percentile_ms(percent, errors)

    def latencies(self, service: float = 1.0, rate: float = 1.0, cv: float | None = None, length: int = 1) -> Latencies:
        """The latencies in replays with service times, rate and the number of requests multiplied by factors."""
        key = (service, rate, cv, length)
        if key not in self.known:
            self.known[key] = (self._in_flow(self.flow, service, rate) if self.flow
                               else self._on_all(service, rate, cv, length))
        return self.known[key]

    def _on_all(self, service: float, rate: float, cv: float | None, length: int) -> Latencies:
        found = [(self._on(part, service, rate, cv, length), part.weight) for part in self._parts]
        ms = np.concatenate([some for some, _ in found])
        weights = np.concatenate([np.full(len(some), weight / max(len(some), 1)) for some, weight in found])
        order = np.argsort(ms, kind="stable")
        return Latencies(ms[order], weights[order] / (weights.sum() or 1.0), len(ms))

    @cached_property
    def _parts(self) -> list[_Part]:
        """The slices of the workload, equal ones together."""
        alike: dict[tuple[str, Slice], int] = {}
        routed: dict[str, float] = {}
        for gpu in self.plan.gpus:
            for piece in gpu.slices:
                for one in piece.replicas:
                    routed[one.workload] = routed.get(one.workload, 0.0) + one.rate_rps
                if _rate_on(piece, self.workload.name) > 0:
                    key = gpu.gpu, piece.model_copy(update={"start": 0})
                    alike[key] = alike.get(key, 0) + 1
        return [self._part(gpu, piece, many, routed) for (gpu, piece), many in alike.items()]

    def _part(self, gpu: str, piece: Slice, many: int, routed: dict[str, float]) -> _Part:
        shares = {one.workload: _rate_on(piece, one.workload) / (routed[one.workload] or 1.0) for one in piece.replicas}
        there = self.instance.replace(workflows=(), workloads=[
            one.model_copy(update={"rate_rps": one.rate_rps * shares[one.name]})
            for one in self.instance.workloads if one.name in shares])
        alone = PlannedGpu(gpu=gpu, mig=piece.profile != WHOLE, slices=(piece,))
        deployment = deploy(there, there.plan_of("", [alone]))
        share = shares[self.workload.name]
        return _Part(there, deployment, many * share, share)

    def _on(self, part: _Part, service: float, rate: float, cv: float | None, length: int) -> Floats:
        """The latencies on one slice in ms."""
        rates = {one.name: one.rate_rps * (rate if one.name == self.workload.name else 1.0)
                 for one in part.instance.workloads}
        seconds = min(max(REQUESTS * part.weight, FEWEST) / rates[self.workload.name], BESIDE / sum(rates.values()))
        if self._routed_first(part, self.workload.name, cv):
            seconds = min(seconds, BEFORE_ROUTING * part.each / rates[self.workload.name])
        seconds *= length
        trace = [self._arriving(part, name, rates[name], seconds, at, cv if name == self.workload.name else None)
                 for at, name in enumerate(rates)]
        settings = SimulationSettings(seconds=min(seconds, 1e6), seed=SEED, service_factor=service)
        tallies, *_ = replay(part.instance, part.deployment, settings, 0, trace)
        return tallies[list(rates).index(self.workload.name)].latencies_ms

    def _arriving(self, part: _Part, name: str, rate_rps: float, seconds: float, at: int, cv: float | None) -> Ints:
        """The arrivals of a workload's requests on a slice, in ns."""
        random, policy, workload = np.random.default_rng([SEED, at]), self.instance.policy, self.instance.workload[name]
        arrivals: Poisson | Renewal | Mmpp | Trace = policy.arrivals_of(workload) if cv is None else Renewal(cv=cv)
        if not self._routed_first(part, name, cv):
            return arrivals_ns(arrivals, rate_rps, seconds, random)
        everyone_ns = arrivals_ns(arrivals, rate_rps / part.each, seconds, random)
        parts = (part.each, 1 - part.each)
        turns = policy.routing_of(workload) == "round_robin"
        owners = in_turns(len(everyone_ns), parts) if turns else by_lot(len(everyone_ns), parts, random)
        return everyone_ns[owners == 0]

    def _routed_first(self, part: _Part, name: str, cv: float | None) -> bool:
        """Whether all requests are drawn and those of a slice chosen among them: a part of a Poisson process, chosen by
        lot, is one itself. Neighbours count as if all of their requests came to the slice in the same way.
        """
        policy, workload = self.instance.policy, self.instance.workload[name]
        plain = policy.routing_of(workload) != "round_robin" and (
            isinstance(policy.arrivals_of(workload), Poisson) if cv is None else cv == 1)
        return name == self.workload.name and part.each < 1 and not plain

    def _in_flow(self, flow: Workflow, service: float, rate: float) -> Latencies:
        """Quantiles of the latency in a replay of the whole plan, in which all rates of a workflow grow."""
        faster = self.instance.replace(workloads=[
            one.model_copy(update={"rate_rps": one.rate_rps * rate}) if one.name in flow.workloads else one
            for one in self.instance.workloads])
        total = sum(one.rate_rps for one in faster.workloads)
        seconds = min(IN_FLOWS / faster.workload[self.workload.name].rate_rps, BESIDE / total)
        report = simulate(faster, self.plan, seconds, SEED, service_factor=service)
        met = next(one for one in report.workloads if one.workload == self.workload.name)
        times = np.array([math.inf if one is None else one for one in met.tail_ms])
        return Latencies(times, np.diff(TAIL_LEVELS, append=1.0), met.arrived)


def _rate_on(piece: Slice, name: str) -> float:
    """The rate of a workload on a slice, in requests/s."""
    return sum(one.rate_rps for one in piece.replicas if one.workload == name)
