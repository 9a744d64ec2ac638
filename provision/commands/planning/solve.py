"""``provision solve``: plan an instance; the result is a verified plan with its proof."""

from __future__ import annotations

import sys
from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING, Any

from rich.text import Text

from provision import draw
from provision.answers.margins import how_sure, margins_of
from provision.commands.common import add_executor, add_force, add_json, print_json, seconds, telling, verdict
from provision.commands.live import planning
from provision.commands.planning.from_nothing import add_from_nothing, instance_of, refuse_description
from provision.commands.planning.verify import print_second
from provision.commands.reading import read_instance
from provision.draw.figures import check_picture, write_figure
from provision.draw.output import Output
from provision.draw.page import render_page
from provision.draw.standing import standing_of
from provision.draw.terminal import drawn
from provision.draw.verdict import made, problems, sentence, slo_table, slos_of
from provision.instances.files.files import check_writable, write_text
from provision.instances.read import write
from provision.models.base.clock import Deadline, Stopwatch, present_stop
from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.base.tolerances import TOLERANCE
from provision.models.problem.executor import executor_of
from provision.models.problem.objective import objective_of
from provision.models.traffic.queue_tables import limited
from provision.proofs.check import Facts
from provision.solving.certificate import Certificate, certificate_of
from provision.solving.methods import method as find_method
from provision.solving.solve import TABLES, solve
from provision.verification.second import second_opinion

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from rich.console import RenderableType

    from provision.models.plans.result import Result
    from provision.models.problem.instance import Instance


def add_solve(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("instance", nargs="?", metavar="INSTANCE", help="a shipped instance or a file")
    parser.add_argument("--method", default="auto", metavar="M", help="one of `provision methods` (default: auto)")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S",
                        help="seconds for all of it, but for compiling kernels once (default: 60)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="for methods that draw numbers (default: 0)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the method"
    )
    parser.add_argument("--out", metavar="F", help="write the plan here (.json, else YAML)")
    parser.add_argument("--png", metavar="F", help="draw the plan with its proof (.png or .svg)")
    parser.add_argument("--html", metavar="F", help="write a self-contained page of the plan with its proof")
    parser.add_argument("--trace", metavar="F", help="draw how plan and bound converged over time (.png or .svg)")
    parser.add_argument("--certificate", metavar="F",
                        help="write what the bound rests on, for `provision check-proof` (as long again as the search)")
    parser.add_argument("--replay", action=BooleanOptionalAction,
                        help="replay the plan under its traffic (default: where the rule is for random arrivals)")
    parser.add_argument("--check", action="store_true",
                        help="also ask the second, independent verifier (seconds); exit 1 where it finds a violation")
    add_executor(parser)
    add_from_nothing(parser)
    add_force(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    instance = _instance(options)
    parameters = _parameters(options)
    for path in filter(None, (options.out, options.html, options.certificate)):
        check_writable(path, options.force)
    if options.certificate:
        Facts(instance)  # refuses an instance that has no certificates before the search
    for path in filter(None, (options.png, options.trace)):
        check_picture(path, options.force)
    end = Deadline(options.time_limit - Stopwatch(options.started).elapsed_s)
    with limited(options.time_limit * TABLES):
        with executor_of(options.workers, options.dask) as executor, planning(instance, options.method) as watch:
            trace = draw.convergence.Trace(show=watch.report) if options.trace else None
            result = solve(instance, options.method, options.time_limit, options.seed, trace or watch.report,
                           replay=options.replay, started=options.started, tell=watch.tell, strict=True,
                           executor=executor, **parameters)
        if result.plan is None and present_stop().asked:
            raise KeyboardInterrupt  # main tells that there is nothing to return
        if options.out and result.plan is not None:
            write(result.plan, options.out, options.force)
        margins = margins_of(instance, result.plan, end) if result.plan is not None and result.verified else []
    _draw(instance, result, options)
    if trace is not None:
        figure = draw.convergence.convergence_figure(instance, result, trace)
        write_figure(figure, options.trace, options.force)
    second = None
    if options.check and result.plan is not None:
        second = second_opinion(options.instance or instance, result.plan)
    certificate = _certificate(instance, result, options)
    if options.json:
        written = options.out if result.plan is not None else None
        more = {} if second is None else {"independent": second.summary()}
        if certificate is not None:
            more["certificate"] = {"file": options.certificate, "bound": certificate.bound}
        margins_told = [one.model_dump() for one in margins or ()]
        print_json(result.summary() | {"plan_file": written, "margins": margins_told} | more)
    else:
        print_answer(instance, result)
        for line in how_sure(instance, result.plan, margins, result.replay) if result.plan is not None else ():
            print(line)
        judged = len(instance.workloads) if margins is None else len(margins)
        if result.verified and judged < sum(one.rate_rps > 0 for one in instance.workloads) and end.over:
            print("The time was over before it was known what all workloads bear; provision verify tells.")
        if options.out and result.plan is not None:
            print(f"Plan written to {options.out}.")
        if certificate is not None:
            print(_proven(instance, result, certificate, options.certificate))
        if second is not None:
            print_second(second)
    holds = result.verified and result.status != "refuted" and (second is None or second.verdict != "violated")
    return verdict(holds, result.status if result.plan is None else "violated")


def _instance(options: Namespace) -> Instance:
    """The instance in a file, or the instance that the options describe instead of a file."""
    if (options.instance is None) == (options.model is None):
        raise InputError("solve: name an INSTANCE, or describe one with --model, --rate, --isl, --osl, --ttft, --tpot "
                         "and --gpus; one of the two, not both")
    if options.model is None:
        refuse_description(options)
        return read_instance(options.instance)
    if options.instance_out:
        check_writable(options.instance_out, options.force)
    instance, lines = instance_of(options)
    for line in lines:
        print(line, file=sys.stderr)
    if options.instance_out:
        write(instance, options.instance_out, options.force)
    return instance


def _certificate(instance: Instance, result: Result, options: Namespace) -> Certificate | None:
    """Write the certificate that the options ask for; None if there is no bound to certify."""
    if not options.certificate or result.bound is None:
        return None
    with telling("certificate") as tell:
        found = certificate_of(instance, options.time_limit, result.objective, tell)
    write_text(options.certificate, "".join(f"{line}\n" for line in found.lines), options.force)
    return found


def _proven(instance: Instance, result: Result, certificate: Certificate, path: str) -> str:
    """What a certificate proves, in words."""
    unit = objective_of(instance).unit.replace("price", "$")
    told = f"Certificate written to {path}: it proves {certificate.bound:.12g} {unit}"
    assert result.bound is not None
    weaker = certificate.bound < result.bound * (1 - TOLERANCE)
    return f"{told}{f', less than the search did ({result.bound:.12g})' if weaker else ''}; see provision check-proof."


def _draw(instance: Instance, result: Result, options: Namespace) -> None:
    """Draw the pictures that the options ask for, if there is a plan."""
    if result.plan is None:
        return
    standing = standing_of(instance, result)
    if options.png:
        draw.picture.draw_picture(result.plan, options.png, instance, options.force, standing)
    if options.html:
        page = render_page(result.plan, instance, result.report, standing=standing)
        write_text(options.html, page, options.force)


def _parameters(options: Namespace) -> dict[str, Any]:
    """The method's own parameters, from every ``--set NAME=VALUE``."""
    known = find_method(options.method).parameters
    parameters: dict[str, Any] = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r}: write it as NAME=VALUE")
        if name not in known:
            has, meant = ", ".join(known) or "none", did_you_mean(name, known)
            raise InputError(f"--set {text!r}: method {options.method} has no parameter {name!r}; it has: {has}{meant}")
        parameters[name] = value
    return parameters


def print_answer(instance: Instance, result: Result) -> None:
    """Print the answer: cost and proof, problems of the plan, the drawing, and every SLO."""
    console = Output(highlight=False, soft_wrap=True)
    console.print(Text(sentence(instance, result)))
    for line in problems(result):
        console.print(Text(line))
    if result.plan is None:
        return
    slos = slos_of(instance, result)
    more: list[RenderableType] = [slo_table(slos), Text()] if slos else []
    console.print()
    console.print(drawn(result.plan, instance, console.width, standing_of(instance, result), more))
    console.print(Text(made(result)))
