"""``provision simulate``: replay a plan; the exit code is 0 if every P99 is within its SLO, otherwise 1."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, get_args

from provision import draw
from provision.commands.common import add_force, add_json, print_json, print_table, seconds
from provision.commands.reading import read_instance
from provision.draw.figures import check_picture, write_figure
from provision.instances.read import read_plan
from provision.models.base.errors import InputError
from provision.models.traffic.routing import Routing
from provision.simulation.draws import ALL, refutes, replay_draws
from provision.simulation.simulate import simulate

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from provision.models.plans.plan import Plan
    from provision.models.plans.simulation_report import Interval, SimulatedWorkload, SimulationReport
    from provision.models.problem.instance import Instance

COLUMNS = ("workload", "slo_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "violated", "served/s", "busy", "batch",
           "dropped")


def add_simulate(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("plan", metavar="PLAN", help="a plan, or ParvaGPU's deployment map (.csv)")
    _add(parser, "--seconds", seconds, "S", "length of the arrivals", 60.0)
    _add(parser, "--warmup", float, "S", "beginning that is not measured (default: a tenth, at most 5)")
    _add(parser, "--seed", int, "N", "of the random numbers", 0)
    _add(parser, "--replications", int, "R", "repeat with new random numbers, for confidence intervals", 1)
    _add(parser, "--arrival-cv", float, "C", "variation of inter-arrival times: 1 Poisson, 0 constant, else Gamma "
         "(default: arrivals as the instance states them)")
    parser.add_argument("--routing", choices=get_args(Routing), help="how requests are dealt to replicas (default: as "
                        "the instance states it; constant arrivals in turns)")
    _add(parser, "--trace", str, "F", "CSV file time_s,workload: arrivals in place of random ones")
    _add(parser, "--max-delay-ms", float, "D", "longest wait for a batch to fill (default: what a full batch leaves "
         "of its part of the SLO)")
    _add(parser, "--queue-limit", int, "N", "requests that may wait at a replica; more are dropped")
    _add(parser, "--service-cv", float, "C", "variation of batch times, lognormal", 0.0)
    _add(parser, "--service-factor", float, "F", "factor on all batch times: 1.1 is a model 10 %% too optimistic", 1.0)
    parser.add_argument("--shadow", action="store_true", help="iGniter's standby processes take over on violations")
    parser.add_argument("--fail", type=_failure, metavar="GPU@S", help="lose a GPU of the plan, by its index, after so "
                        "many seconds")
    _add(parser, "--draws", int, "N", "replay N draws of the policy's uncertain service times and rates; exit 1 when "
         "a workload keeps its SLO in so few of them that its confidence is refuted")
    parser.add_argument("--png", metavar="F", help="draw the latency distributions (.png or .svg)")
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _add(parser: ArgumentParser, name: str, kind: Callable[[str], Any], metavar: str, text: str,
         default: float | None = None) -> None:
    """Declare an option; a default that is not None is appended to the help text."""
    shown = f"{text} (default: {default})" if default is not None else text
    parser.add_argument(name, type=kind, metavar=metavar, help=shown, default=default)


def _draws(options: Namespace, instance: Instance, plan: Plan) -> int:
    """Replay draws of uncertain service times and rates, and print how often each workload keeps its SLO. Returns the
    exit code: 1 if the draws refute the confidence for some workload.
    """
    if options.draws < 1:
        raise InputError(f"--draws {options.draws}: give at least 1")
    found = replay_draws(instance, plan, options.draws, options.seconds, options.seed)
    asked = instance.policy.confidence or 0.0
    refuted = [one for one in found if one.workload != ALL and refutes(one, asked)]
    if options.json:
        print_json({"confidence": asked, "draws": [one.model_dump() for one in found]})
    else:
        for one in found:
            print(f"{one.workload}: SLO kept in {one.kept} of {one.draws} draws ({one.kept / one.draws:.0%})")
    return 1 if refuted else 0


def _failure(text: str) -> dict[str, int | float]:
    """The fields of a Failure that ``GPU@SECONDS`` describes."""
    gpu, _, seconds = text.partition("@")
    try:
        return {"gpu": int(gpu), "at_s": float(seconds)}
    except ValueError:
        raise ArgumentTypeError(f"{text!r} should be GPU@SECONDS, such as 1@20") from None


def _run(options: Namespace) -> int:
    instance = read_instance(options.instance)
    plan = read_plan(options.plan, instance)
    if options.draws is not None:
        return _draws(options, instance, plan)
    if options.png:
        check_picture(options.png, options.force)
    report = simulate(
        instance, plan, options.seconds, options.seed, warmup_s=options.warmup, replications=options.replications,
        arrival_cv=options.arrival_cv, routing=options.routing, trace=options.trace, max_delay_ms=options.max_delay_ms,
        queue_limit=options.queue_limit, service_cv=options.service_cv, service_factor=options.service_factor,
        shadow=options.shadow, fail=options.fail,
    )
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    if options.json:
        print_json(report.summary())
    else:
        _print(report)
    if options.png:
        write_figure(draw.latencies.latencies_figure(report), options.png, options.force)
        print(f"picture written to {options.png}", file=sys.stderr)
    return 0 if report.ok else 1


def _print(report: SimulationReport) -> None:
    print_table(COLUMNS, [_row(one) for one in report.timed])
    for one in report.switches:
        print(f"{one.workload} on GPU {one.gpu} went over to its standby process after {one.at_s:g} s: "
              f"SM share {one.from_share:g} to {one.to_share:g}")
    total = report.summary()
    print(f"{total['arrived']} requests arrived = {total['served']} served + {total['dropped']} dropped + "
          f"{total['in_flight']} in flight at the end")
    print(f"over their SLO: {', '.join(report.late)}" if report.late else "every P99 that was met is within its SLO")


def _row(one: SimulatedWorkload) -> list[Any]:
    times = [_time(quantile) for quantile in (one.p50, one.p95, one.p99, one.p999)]
    busy = None if one.utilisation is None else f"{one.utilisation:.1%}"
    batch = None if one.mean_batch is None else round(one.mean_batch, 1)
    violated, served = f"{one.violation_rate:.2%}", round(one.throughput_rps, 1)
    return [one.workload, one.slo_ms, *times, violated, served, busy, batch, one.dropped]


def _time(quantile: Interval) -> float | str | None:
    """A quantile in milliseconds, with half the width of its confidence interval if it has an interval."""
    if quantile.mean_ms is None or quantile.low_ms is None or quantile.high_ms is None:
        return quantile.mean_ms and round(quantile.mean_ms, 2)
    return f"{quantile.mean_ms:.2f} ± {(quantile.high_ms - quantile.low_ms) / 2:.2f}"
