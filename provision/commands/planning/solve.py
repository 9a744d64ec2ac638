"""``provision solve`` and ``minimum``: plan an instance, or a language model that options describe, with a proof."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field
from rich.console import RenderableType
from rich.text import Text

from provision import InputError, Instance, Result, draw, executor_of, write
from provision.answers.margins import Margin
from provision.commands.verb import Given, Seconds, Writing, planned, print_json, read_instance, verdict
from provision.draw.figures import write_figure
from provision.draw.output import Output, show
from provision.draw.progress import planning, telling
from provision.draw.terminal import drawn
from provision.draw.verdict import made, nodes, problems, sentence, slo_table, slos_of, standing_of
from provision.instances.files.files import load, validate, write_text
from provision.models.base.arguments import arguments, flag_of, local, operand, option, written
from provision.models.base.clock import Deadline, Stopwatch, end_if_asked
from provision.models.base.fields import Count, Flag, Name, Number, PositiveCount
from provision.models.base.objects import known
from provision.models.base.register import did_you_mean
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.problem.method import needs
from provision.models.problem.objective import power_told, proven
from provision.models.traffic.queue_tables import limited
from provision.solving.methods import method as find_method
from provision.solving.schedule import SOLVE
from provision.solving.solve import solve
from provision.starting.described import Described, instance_described

if TYPE_CHECKING:
    from provision.solving.certificate import Certificate

Value: TypeAlias = Number | Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*$", max_length=60)]
"""The value of a method's parameter in a job: a number, or a word that cannot be taken for a path."""
COMPARED_S = 15.0
"""The most seconds for the configurations beside the plan of a described language model."""
KEEP_S = 5.0
"""The time limit in seconds for the replacement plan of a job that was stopped before it had a plan."""


class Solve(Described, Writing):
    instance: str | None = operand("INSTANCE", "a shipped instance or a file", None, nargs="?")
    method: Name = option("auto", "M", "one of `provision methods`")
    time_limit_s: Seconds = option(60.0, "S", "seconds for all of it, but for compiling kernels once")
    seed: Count = option(0, "N", "for methods that draw numbers")
    parameters: dict[Name, Any] = option({}, "NAME=VALUE", "a parameter of the method", "--set",
                                         remote=dict[Name, Value])
    out: str | None = written("write the plan here (.json, else YAML)")
    png: str | None = written("draw the plan with its proof (.png or .svg)", what="picture")
    html: str | None = written("write a self-contained page of the plan with its proof")
    trace: str | None = written("draw how plan and bound converged over time (.png or .svg)", what="picture")
    certificate: str | None = written(
        "write what the bound rests on, for `provision check-proof` (as long again as the search)")
    replay: bool | None = local(
        None, None, "replay the plan under its traffic (default: where the rule is for random arrivals)")
    check: Flag = local(
        False, None, "also ask the second, independent verifier (seconds); exit 1 where it finds a violation")
    workers: PositiveCount | None = local(None, "N", "processes on this machine for the replays (default: 1)")
    dask: str | None = local(None, "ADDRESS", "the scheduler of a Dask cluster for the replays, as tcp://host:8786")
    started: float | None = None

    def job(self, given: Given) -> dict[str, Any]:
        for name in sorted(self.parameters.keys() & find_method(self.method).files):
            raise InputError(f"parameters.{name}: names a file, and a job reads none of the server's; leave it out")
        result = solve(given.instance, self.method, self.time_limit_s, self.seed, given.incumbent, given.start,
                       strict=True, **self.parameters)
        if result.plan is None and result.termination == "stopped":
            raise KeyboardInterrupt
        return _solved(result)

    def kept(self, given: Given) -> dict[str, Any] | None:
        """The result with greedy's plan, or with auto's if greedy cannot plan the instance; None if no plan is found.
        """
        found = self._at_once(given.instance, strict=True)
        note = f"stopped before {self.method} had a plan; this one is of {found.method}, made at once"
        return _solved(replace(found, termination="stopped", notes=(*found.notes, note))) if found.plan else None

    def _at_once(self, instance: Instance, strict: bool = False) -> Result:
        """The result of greedy without a replay, or of auto if greedy cannot plan the instance."""
        able = not needs(instance) - find_method("greedy").features
        return solve(instance, "greedy" if able else "auto", KEEP_S, self.seed, replay=False, strict=strict)

    def run(self) -> int:
        described = instance = self._instance()
        if self.model:
            from provision.answers.configurations import configurations, disaggregated, plain, told
        if self.disaggregated:
            instance = disaggregated(described)
        if self.instance_out:
            write(instance, self.instance_out, self.force)
        for name, value in self.parameters.items():
            if name not in (has := find_method(self.method).parameters):
                listed, meant = ", ".join(has) or "none", did_you_mean(name, has)
                raise InputError(f"--set {f'{name}={value}'!r}: method {self.method} has no parameter {name!r}; it "
                                 f"has: {listed}{meant}")
        if self.certificate:
            from provision.proofs.check import Facts  # here and below: what is not needed to plan loads later

            Facts(instance)  # refuses an instance that has no certificates before the search
        end = Deadline(self.time_limit_s - Stopwatch(self.started).elapsed_s)
        with limited(self.time_limit_s * SOLVE.tables):
            # On a busy machine, loading kernels alone may take a short limit; there is a plan all the same.
            start = self._at_once(instance).plan if self.model else None
            with executor_of(self.workers, self.dask) as executor, planning(instance, self.method) as watch:
                trace = draw.convergence.Trace(show=watch.report) if self.trace else None
                result = solve(instance, self.method, self.time_limit_s, self.seed, trace or watch.report,
                               start, replay=self.replay, started=self.started, tell=watch.tell, strict=True,
                               executor=executor, **self.parameters)
            plan = result.plan
            if plan is None:
                end_if_asked()  # main tells that there is nothing to return
            elif self.out:
                write(plan, self.out, self.force)
            from provision.answers.margins import how_sure, margins_of

            margins = margins_of(instance, plan, end) if plan is not None and result.verified else []
        within = Deadline(min(end.left_s, COMPARED_S))
        compared = configurations(described, within) if self.model and plan is not None else []
        if plan is not None:
            standing = standing_of(instance, result)
            if self.png:
                draw.picture.draw_picture(plan, self.png, instance, self.force, standing)
            if self.html:
                from provision.draw.page import render_page

                write_text(self.html, render_page(plan, instance, result.report, standing=standing), self.force)
        if trace is not None and self.trace:
            write_figure(trace.figure(instance, result), self.trace, self.force)
        second = None
        if self.check and plan is not None:
            from provision.verification.second import second_opinion

            second = second_opinion(self.instance or instance, plan)
        certificate = self._certified(instance, result)
        if self.as_json:
            more = {} if second is None else {"independent": second.summary()}
            if certificate is not None:
                more["certificate"] = {"file": self.certificate, "bound": certificate.bound}
            more |= plain(compared) if self.model else {}
            margins_told = [one.model_dump() for one in margins or ()]
            print_json(result.summary() | {"plan_file": self.out if plan is not None else None, "margins": margins_told}
                       | more)
        else:
            with limited(0.0):  # printing waits for no latency table
                print_answer(instance, result, margins)
                show(how_sure(instance, plan, margins, result.replay) if plan is not None else ())
            cost_per_hour = None if result.report is None else result.report.cost_per_hour
            show(told(compared, not within.over, cost_per_hour) if compared else ())
            judged = len(instance.workloads) if margins is None else len(margins)
            if result.verified and judged < sum(one.rate_rps > 0 for one in instance.workloads) and end.over:
                print("The time was over before it was known what all workloads bear; provision verify tells.")
            if self.out and plan is not None:
                print(f"Plan written to {self.out}.")
            if certificate is not None:
                print(_proven(instance, result, certificate, known(self.certificate)))
            if second is not None:
                from provision.commands.planning.verify import told_second

                print(*told_second(second), sep="\n")
        holds = result.verified and result.status != "refuted" and (second is None or second.verdict != "violated")
        return verdict(holds, result.status if plan is None else "violated")

    def _instance(self) -> Instance:
        """The instance in a file, or the instance that the options describe instead of a file."""
        if (self.instance is None) == (self.model is None):
            raise InputError("solve: name an INSTANCE, or describe one with --model, --rate, --isl, --osl, --ttft, "
                             "--tpot and --gpus; one of the two, not both")
        if self.instance is not None:
            if given := [flag_of(name, argument) for name, (_, argument) in arguments(Described).items()
                         if name in self.model_fields_set]:
                raise InputError(f"solve: only --model takes {', '.join(given)}; change the instance instead, or give "
                                 "--model in its place")
            return read_instance(self.instance)
        instance, lines = instance_described(self)
        for line in lines:
            print(line, file=sys.stderr)
        return instance

    def _certified(self, instance: Instance, result: Result) -> Certificate | None:
        """Write the certificate that is asked for; None if there is no bound to certify."""
        if not self.certificate or result.bound is None:
            return None
        from provision.solving.certificate import certificate_of

        with telling("certificate") as tell:
            found = certificate_of(instance, self.time_limit_s, result.objective, tell)
        write_text(self.certificate, "".join(f"{line}\n" for line in found.lines), self.force)
        return found


def _proven(instance: Instance, result: Result, certificate: Certificate, path: str) -> str:
    """What a certificate proves, in words."""
    told = f"Certificate written to {path}: it proves {proven(instance, float(certificate.bound))}"
    assert result.bound is not None
    weaker = certificate.bound < result.bound * (1 - TOLERANCE)
    less = f", less than the search did ({proven(instance, result.bound)})" if weaker else ""
    return f"{told}{less}; see provision check-proof."


def _solved(result: Result) -> dict[str, Any]:
    """The result of a solve as plain content."""
    return result.summary() | {"plan_file": None} | planned(result.plan, result.report)


def print_answer(instance: Instance, result: Result, margins: list[Margin] | None = None) -> None:
    """Print the answer: cost and proof, the weakest workload, problems of the plan, the drawing, and every SLO."""
    from provision.answers.margins import weakest

    console = Output(highlight=False, soft_wrap=True)
    console.print(Text(sentence(instance, result)))
    if told := weakest(margins or []):
        console.print(Text(told))
    for line in problems(result):
        console.print(Text(line))
    if result.plan is None:
        return
    for line in power_told(instance, result.plan):
        console.print(Text(line))
    slos = slos_of(instance, result)
    more: list[RenderableType] = [slo_table(slos), Text()] if slos else []
    console.print()
    console.print(drawn(result.plan, instance, console.width, standing_of(instance, result), more))
    for line in nodes(result.plan):
        console.print(Text(line))
    console.print(Text(made(result)))


class Minimum(Writing):
    spec: str = operand("SPEC", "specification of inference-perf (YAML or JSON)")
    performance: tuple[str, ...] = option(..., "F", "performance data of kind tokens, a file per GPU type (see "
                                                    "`provision import vllm`)", action="append")
    model: str | None = option(None, "NAME", "the model's name in there (default: the specification's)")
    ttft_ms: float | None = option(None, "MS", "limit of the first token (default: the specification's)")
    tpot_ms: float | None = option(None, "MS", "limit per further token (default: the specification's)")
    percentile: float | None = option(None, "P", "of the requests, within them (default: 99)")
    input_tokens: PositiveCount | None = option(
        None, "N", "of every request, where the specification takes requests from a data set")
    output_tokens: PositiveCount | None = option(
        None, "N", "of every request, where the specification takes requests from a data set")
    time_limit_s: Seconds = option(60.0, "S", "seconds")
    instance: str | None = written("write the instance here, to change it or ask what-if")
    out: str | None = written("write the plan here (.json, else YAML)")

    def run(self) -> int:
        from provision.instances.importers.tokens.inference_perf import minimum_instance, read_inference_perf

        files = [validate(TokenModels, load(path), path) for path in self.performance]
        prompt, output = (None if tokens is None else TokenCounts.uniform(tokens, tokens)
                          for tokens in (self.input_tokens, self.output_tokens))
        instance = minimum_instance(read_inference_perf(self.spec), files, self.model, self.ttft_ms,
                                    self.tpot_ms, self.percentile, prompt, output)
        if self.instance:
            write(instance, self.instance, self.force)
        with planning(instance, "auto") as watch:
            result = solve(instance, time_limit_s=self.time_limit_s, report=watch.report, tell=watch.tell, strict=True)
        if result.plan is None:
            end_if_asked()  # main tells that there is nothing to return
        if self.out and result.plan is not None:
            write(result.plan, self.out, self.force)
        if self.as_json:
            print_json(result.summary() | {"plan_file": self.out if result.plan is not None else None})
        else:
            print_answer(instance, result)
        return verdict(result.verified, result.status if result.plan is None else "violated")
