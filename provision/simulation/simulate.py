"""``provision.simulate``: replays a plan request by request, and compares the latencies with the SLOs.

The report summarises the tallies of all replications: quantiles with confidence intervals, rates and counts.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from provision.instances.files.files import FilePath, refused
from provision.instances.read import read, read_plan
from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.base.fields import finite
from provision.models.base.tolerances import CLOCK_MS
from provision.models.plans.plan import Plan
from provision.models.plans.simulation_report import (
    TAIL_LEVELS,
    TARGET,
    Interval,
    SimulatedWorkload,
    SimulationReport,
    SimulationSettings,
)
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload
from provision.simulation.changes import refuse_no_failure, refuse_other_models
from provision.simulation.deployment import Deployment, deploy
from provision.simulation.replay import Tally, read_trace, replay
from provision.simulation.tokens import further_limits, refuse_settings
from provision.simulation.workflows import refuse_without_stages

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": TARGET, "p999": 0.999}
CONFIDENCE = 0.95


class Timed(NamedTuple):
    """Something with an SLO that is not a workload: a workflow."""

    name: str
    slo_ms: float


def summarise(workload: Workload | Timed, processes: int, settings: SimulationSettings, tallies: Sequence[Tally],
              percentile: float = 100 * TARGET) -> SimulatedWorkload:
    """Summarise the requests of one workload.

    Parameters
    ----------
    workload
        The Workload, a Timed, or a FurtherLimit.
    processes
        The number of its processes.
    settings
        SimulationSettings.
    tallies
        Its Tally in every replication.
    percentile
        The percentile for which the SLO is stated.

    Returns
    -------
    SimulatedWorkload
    """
    measured_s = (settings.seconds - settings.measured_from_s) * len(tallies)
    counts = {name: sum(getattr(one, name) for one in tallies) for name in tallies[0]._fields[1:]}
    offered = counts["measured_drops"] + sum(len(one.latencies_ms) for one in tallies)
    late = counts["measured_drops"] + sum(np.sum(one.latencies_ms > workload.slo_ms + CLOCK_MS) for one in tallies)
    asked = [one for one in tallies if one.measured_drops or len(one.latencies_ms)] or tallies
    tails = np.array([quantiles(one.latencies_ms, one.measured_drops, TAIL_LEVELS) for one in asked])
    taken = counts["arrived"] - counts["dropped"]
    return SimulatedWorkload(
        workload=workload.name,
        slo_ms=workload.slo_ms,
        offered_rps=offered / measured_s,
        **{name: _interval(asked, level) for name, level in LEVELS.items()},
        percentile=percentile,
        at_slo=_interval(asked, percentile / 100),
        throughput_rps=counts["answers"] / measured_s,
        violation_rate=late / offered if offered else 0.0,
        utilisation=counts["busy_ns"] / (1e9 * measured_s * processes) if processes else None,
        mean_batch=taken / counts["batches"] if counts["batches"] else None,
        **{name: counts[name] for name in ("arrived", "served", "dropped", "in_flight")},
        tail_ms=tuple(finite(tails.mean(axis=0).tolist())),
    )


def quantiles(latencies_ms: Floats, drops: int, levels: Sequence[float]) -> list[float]:
    """Quantiles of latency, in ms: for every level, the shortest latency that this fraction of all requests does not
    exceed.

    A quantile that falls among the dropped requests is infinite.

    Parameters
    ----------
    latencies_ms
        Sorted latencies of the requests that were answered.
    drops
        The number of requests that were never answered.
    levels
        The levels, as fractions.
    """
    count = len(latencies_ms) + drops
    ranks = [max(math.ceil(level * count * (1 - 1e-12)), 1) - 1 for level in levels]
    return [latencies_ms[rank] if rank < len(latencies_ms) else math.inf for rank in ranks]


def _interval(tallies: Sequence[Tally], level: float) -> Interval:
    """The mean of a quantile over the replications, with its confidence interval (Student's t)."""
    values = np.array([quantiles(one.latencies_ms, one.measured_drops, [level])[0] for one in tallies])
    if len(values) == 1 or not np.isfinite(values).all():
        return Interval(mean_ms=finite(float(values.mean())))
    half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / math.sqrt(len(values))
    return Interval(mean_ms=values.mean(), low_ms=max(values.mean() - half, 0.0), high_ms=values.mean() + half)


MOST_REQUESTS = 5e7
"""The most requests of a simulation. More hardly fit the memory."""


def simulate(instance: Instance | FilePath, plan: Plan | FilePath, seconds: float = 60.0, seed: int = 0,
             **options: Any) -> SimulationReport:
    """Replay a plan by discrete events.

    The requests of every workload arrive at its stated rate, by the instance's arrival process. They are routed to its
    replicas in proportion to the plan's rates, at random unless the instance says otherwise. An idle process of a
    replica starts a batch as soon as it is full or its oldest request has waited long enough. The batch's time follows
    from the performance data: it depends on the batch size and on the processes that are busy on the slice at each
    moment. Of replicas that take turns, one at a time runs a batch; the next in order whose batch is due follows.
    Requests of a workflow pass from stage to stage. Arrivals end after ``seconds``; all requests that have arrived are
    served.

    Parameters
    ----------
    instance
        An Instance, its shipped name or its path.
    plan
        A Plan, from any source, or its path. It need not be valid.
    seconds, seed, options
        The fields of SimulationSettings.

    Returns
    -------
    SimulationReport

    Raises
    ------
    InputError
        If an option is out of range, a trace cannot be used, or no performance data describes a replica.
    """
    instance, plan = read(instance), read_plan(plan, instance)
    settings = checked(seconds=seconds, seed=seed, **options)
    trace, left_out = None, 0
    if settings.trace:
        trace, left_out = read_trace(settings.trace, list(instance.workload), settings.seconds)
    _refuse_too_many(instance, settings, trace)
    _refuse_too_few(instance, settings, trace)
    deployment = deploy(instance, plan)
    if deployment.engines:
        refuse_settings(settings)
    refuse_without_stages(instance, deployment, settings)
    if settings.fail:
        refuse_no_failure(instance, plan, settings, settings.fail)
    if settings.shadow:
        refuse_other_models(instance, plan)
    rounds = [replay(instance, deployment, settings, number, trace) for number in range(settings.replications)]
    workloads = [
        summarise(one, _processes(deployment, one.name), settings, found, instance.policy.percentile_of(one))
        for one, *found in zip(instance.workloads, *(found for found, *_ in rounds), strict=True)
    ]
    tokens = [
        summarise(one, 0, settings, found, instance.policy.percentile_of(instance.workloads[one.workload]))
        for one, *found in zip(further_limits(instance), *(found for _, found, *_ in rounds), strict=True)
    ]
    workflows = [
        summarise(Timed(one.name, instance.workflow_slo_ms(one)), 0, settings, found, one.percentile)
        for one, *found in zip(instance.workflows, *(found for *_, found, _ in rounds), strict=True)
    ]
    return SimulationReport(
        instance=instance.name,
        settings=settings,
        workloads=tuple(workloads),
        tokens=tuple(tokens),
        workflows=tuple(workflows),
        switches=tuple(switch for *_, switches in rounds for switch in switches),
        notes=(*_notes(instance, plan, deployment, settings), *_unmeasured(instance, settings, workloads, left_out)),
    )


def checked(**options: Any) -> SimulationSettings:
    """The SimulationSettings with the given options. Raises InputError if an option is out of range."""
    with refused("simulate"):
        return SimulationSettings(**options)


def _refuse_too_many(instance: Instance, settings: SimulationSettings, trace: Sequence[Ints] | None) -> None:
    arriving = sum(map(len, trace)) if trace else sum(one.rate_rps for one in instance.workloads) * settings.seconds
    if arriving * settings.replications > MOST_REQUESTS:
        raise InputError(
            f"simulate: {arriving:.3g} requests in {settings.seconds:g} seconds, {settings.replications} times; at "
            f"most {MOST_REQUESTS:g} can be replayed at once, take fewer seconds or replications"
        )


def _refuse_too_few(instance: Instance, settings: SimulationSettings, trace: Sequence[Ints] | None) -> None:
    """Refuse a percentile above the P99 if there are so few requests that not even one of them may be late."""
    for index, one in enumerate(instance.workloads):
        percentile = instance.policy.percentile_of(one)
        arriving = len(trace[index]) if trace else one.rate_rps * (settings.seconds - settings.measured_from_s)
        late = arriving * settings.replications * (1 - percentile / 100)
        if percentile > 100 * TARGET and 0 < late < 1:
            raise InputError(
                f"simulate: {arriving:.3g} requests of {one.name} are too few for percentile {percentile:g}; take "
                f"{settings.seconds / late:.3g} seconds or lower the percentile"
            )


def _processes(deployment: Deployment, name: str) -> int:
    """The number of processes of a workload."""
    places = deployment.places[name]
    return sum(deployment.slices[place.slice].piece.replicas[place.replica].processes for place in places)


def _notes(instance: Instance, plan: Plan, deployment: Deployment, settings: SimulationSettings) -> Iterator[str]:
    """Yield a line on everything that the simulation assumes."""
    if other := plan.made_for_another(instance.name, instance.digest):
        yield f"the plan was made for {other}; it is replayed on {instance.name} as it is"
    for name, places in deployment.places.items():
        if not places and not deployment.engines.get(name):
            yield f"{name} has no replica: all its requests are dropped"
    for planned in deployment.slices:
        if planned.times.always_busy:
            yield (
                f"GPU {planned.gpu}, {planned.piece.profile}: too many combinations of busy processes; neighbours "
                "count as always busy"
            )
    if settings.trace and settings.replications > 1 and settings.service_cv == 0:
        yield "a trace and batch times that do not vary: all replications are the same"


def _unmeasured(instance: Instance, settings: SimulationSettings, workloads: Sequence[SimulatedWorkload],
                left_out: int) -> Iterator[str]:
    """Yield a line on everything that the percentiles do not cover."""
    if left_out:
        yield f"{left_out} requests of the trace come after {settings.seconds:g} seconds and are left out"
    for one in workloads:
        if instance.workload[one.workload].rate_rps and not one.offered_rps:
            yield f"{one.workload} has no request after the warm-up, so nothing says whether it keeps its SLO"
