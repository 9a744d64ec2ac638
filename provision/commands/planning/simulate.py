"""``provision simulate``: replay a plan; the exit code is 0 if every P99 is within its SLO, otherwise 1."""

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from provision import Instance, Plan, draw, read_plan, simulate
from provision.commands.verb import Given, Seconds, Writing, read_instance
from provision.draw.figures import write_figure
from provision.draw.output import Rows
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.fields import Count, Flag, NonNegative, Positive, PositiveCount
from provision.models.plans.simulation_report import (
    Failure,
    Interval,
    SimulatedWorkload,
    SimulationReport,
    SimulationSettings,
)
from provision.models.traffic.arrivals import Routing
from provision.simulation.draws import ALL, refutes, replay_draws

COLUMNS = ("workload", "slo_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "violated", "served/s", "busy", "batch",
           "dropped")


def _failure(text: str) -> dict[str, int | float]:
    """The fields of a Failure that ``GPU@SECONDS`` describes."""
    gpu, _, seconds = text.partition("@")
    try:
        return {"gpu": int(gpu), "at_s": float(seconds)}
    except ValueError:
        raise ArgumentTypeError(f"{text!r} should be GPU@SECONDS, such as 1@20") from None


class Simulate(Writing):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    plan: str = operand("PLAN", "a plan, or ParvaGPU's deployment map (.csv)")
    seconds: Seconds = option(60.0, "S", "length of the arrivals", most=1e5)
    warmup_s: NonNegative | None = option(None, "S", "beginning that is not measured (default: a tenth, at most 5)")
    seed: Count = option(0, "N", "of the random numbers")
    replications: PositiveCount = option(1, "R", "repeat with new random numbers, for confidence intervals", most=100)
    arrival_cv: Annotated[NonNegative, Field(le=10)] | None = option(
        None, "C", "variation of inter-arrival times: 1 Poisson, 0 constant, else Gamma (default: arrivals as the "
        "instance states them)")
    routing: Routing | None = option(None, None, "how requests are dealt to replicas (default: as the instance states "
                                     "it; constant arrivals in turns)")
    trace: str | None = local(None, "F", "CSV file time_s,workload: arrivals in place of random ones")
    max_delay_ms: Annotated[NonNegative, Field(le=1e9)] | None = option(
        None, "D", "longest wait for a batch to fill (default: what a full batch leaves of its part of the SLO)")
    queue_limit: PositiveCount | None = option(None, "N", "requests that may wait at a replica; more are dropped")
    service_cv: Annotated[NonNegative, Field(le=10)] = option(0.0, "C", "variation of batch times, lognormal")
    service_factor: Annotated[Positive, Field(le=1000)] = option(
        1.0, "F", "factor on all batch times: 1.1 is a model 10 % too optimistic")
    shadow: Flag = option(False, None, "iGniter's standby processes take over on violations")
    fail: Failure | None = option(None, "GPU@S", "lose a GPU of the plan, by its index, after so many seconds",
                                  type=_failure)
    draws: PositiveCount | None = local(
        None, "N", "replay N draws of the policy's uncertain service times and rates; exit 1 when a workload keeps its "
        "SLO in so few of them that its confidence is refuted")
    png: str | None = written("draw the latency distributions (.png or .svg)", what="picture")

    def run(self) -> int:
        instance = read_instance(self.instance)
        plan = read_plan(self.plan, instance)
        if self.draws is not None:
            found = replay_draws(instance, plan, self.draws, self.seconds, self.seed)
            asked = instance.policy.confidence or 0.0
            refuted = [one for one in found if one.workload != ALL and refutes(one, asked)]
            return self.answer({"confidence": asked, "draws": [one.model_dump() for one in found]}, (
                f"{one.workload}: SLO kept in {one.kept} of {one.draws} draws ({one.kept / one.draws:.0%})"
                for one in found), 1 if refuted else 0)
        report = self._replayed(instance, plan)
        for note in report.notes:
            print(f"note: {note}", file=sys.stderr)
        self.answer(report.summary(), _told(instance, report))
        if self.png:
            write_figure(draw.latencies.latencies_figure(report), self.png, self.force)
            print(f"picture written to {self.png}", file=sys.stderr)
        return 0 if report.ok else 1

    def job(self, given: Given) -> dict[str, Any]:
        return self._replayed(given.instance, given.plan).summary()

    def _replayed(self, instance: Instance, plan: Plan) -> SimulationReport:
        return simulate(instance, plan, **{name: getattr(self, name) for name in SimulationSettings.model_fields})


def _told(instance: Instance, report: SimulationReport) -> Iterator[str | Rows]:
    yield Rows(COLUMNS, [_row(one, one.workload not in instance.derived_limits) for one in report.timed])
    for one in report.switches:
        yield (f"{one.workload} on GPU {one.gpu} went over to its standby process after {one.at_s:g} s: "
               f"SM share {one.from_share:g} to {one.to_share:g}")
    total = report.summary()
    yield (f"{total['arrived']} requests arrived = {total['served']} served + {total['dropped']} dropped + "
           f"{total['in_flight']} in flight at the end")
    yield f"over their SLO: {', '.join(report.late)}" if report.late else "every P99 that was met is within its SLO"


def _row(one: SimulatedWorkload, stated: bool) -> list[Any]:
    times = [_time(quantile) for quantile in (one.p50, one.p95, one.p99, one.p999)]
    busy = None if one.utilisation is None else f"{one.utilisation:.1%}"
    batch = None if one.mean_batch is None else round(one.mean_batch, 1)
    violated, served = f"{one.violation_rate:.2%}" if stated else None, round(one.throughput_rps, 1)
    return [one.workload, one.slo_ms if stated else None, *times, violated, served, busy, batch, one.dropped]


def _time(quantile: Interval) -> float | str | None:
    """A quantile in milliseconds, with half the width of its confidence interval if it has an interval."""
    if quantile.mean_ms is None or quantile.low_ms is None or quantile.high_ms is None:
        return quantile.mean_ms and round(quantile.mean_ms, 2)
    return f"{quantile.mean_ms:.2f} ± {(quantile.high_ms - quantile.low_ms) / 2:.2f}"
