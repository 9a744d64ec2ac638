"""``provision verify`` and ``check-proof``: does a plan hold, a certificate prove its bound? No solver is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision import InputError, Instance, Plan, Report, read_plan, verify
from provision.answers.margins import how_sure, margins_of
from provision.commands.verb import Answering, Given, read_instance
from provision.draw.output import Rows, plural
from provision.draw.progress import telling
from provision.instances.files.files import reason
from provision.models.base.arguments import local, operand
from provision.models.base.clock import Stopwatch
from provision.models.base.fields import Flag
from provision.models.problem.objective import power_told, proven
from provision.models.problem.prediction import memory_notes
from provision.proofs.check import check
from provision.proofs.lines import RefusedError

if TYPE_CHECKING:
    from provision.verification.independent.judge import Judgement


class Verify(Answering):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    plan: str = operand("PLAN", "a plan, or ParvaGPU's deployment map (.csv)")
    independent: Flag = local(
        False, None, "also ask the second verifier, which reads the files itself and replays the queues (seconds)")

    def run(self) -> int:
        instance = read_instance(self.instance)
        plan = read_plan(self.plan, instance)
        report, second = verify(instance, plan), None
        if self.independent:
            from provision.verification.second import second_opinion  # its replays load compiled kernels

            second = second_opinion(self.instance, plan)
        margins = margins_of(instance, plan) if report.ok else []
        more = {} if second is None else {"independent": second.summary()}
        content = {"notes": list(_notes(instance, plan)), "margins": [one.model_dump() for one in margins or ()]} | more
        text = chain(_told(instance, plan, report), how_sure(instance, plan, margins), told_second(second))
        holds = report.ok and (second is None or second.verdict != "violated")
        return self.answer(report.model_dump(mode="json") | content, text, 0 if holds else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return verify(given.instance, given.plan).model_dump(mode="json")


def told_second(second: Judgement | None) -> Iterator[str]:
    """Yield the judgement of the second verifier in words, one line per fault; nothing if it was not asked."""
    if second is None:
        return
    cost = f", {second.cost_per_hour:,.2f} $ per hour" if second.cost_per_hour is not None else ""
    replays = sorted(second.replays, key=lambda found: found.late.high / found.late.allowed)
    nearest = "".join(f"; most late {one.name}: {one.late.part:.2%} of {one.late.requests} requests (at most "
                      f"{one.late.high:.2%}, allowed {one.late.allowed:.2%})" for one in replays[-1:])
    yield f"independently: {second.verdict}, {plural(second.gpus, 'GPU')}{cost}{nearest}"
    yield from (f"  violated: {line}" for line in second.faults)
    yield from (f"  not decided: {line}" for line in second.open)


def _told(instance: Instance, plan: Plan, report: Report) -> Iterator[str | Rows]:
    cost = f", {report.cost_per_hour:,.2f} $ per hour" if report.cost_per_hour is not None else ""
    gpcs = f", {plural(report.gpcs, 'GPC')} in use" if report.gpcs else ""
    idle = f"; {report.external_fragmentation:.0%} are in no slice" if report.gpcs else ""
    yield (f"{plural(report.gpus, 'GPU')}{gpcs}{cost}; the SMs of slices idle {report.internal_slack:.0%} of the time"
           f"{idle}")
    yield from (f"note: {note}" for note in _notes(instance, plan))
    if report.ok:
        yield f"holds: {len(report.predictions)} replicas, {_tightest(instance, report)}"
        return
    yield f"violated: {len(report.violations)}"
    rows = [(violation.kind, violation.message, violation.margin) for violation in report.violations]
    yield Rows(("kind", "what", "margin"), [(k, m, None if g is None else f"{g:+.1%}") for k, m, g in rows])


def _notes(instance: Instance, plan: Plan) -> Iterator[str]:
    """Yield a line on everything that a verdict rests on besides the two files."""
    if other := plan.made_for_another(instance.name, instance.digest):
        yield f"the plan was made for {other}; it is judged on {instance.name} as it is; apply needs --force"
    yield from memory_notes(instance)
    yield from power_told(instance, plan)


def _tightest(instance: Instance, report: Report) -> str:
    """The replica closest to its latency budget, in words; not of models with limits of tokens alone."""
    taken_ms = [(one, one.latency_ms if one.p99_ms is None else one.p99_ms) for one in report.predictions
                if one.workload not in instance.derived_limits]
    if not taken_ms:
        return "every limit of tokens is kept" if report.predictions else "nothing to serve"
    one, most_ms = max(taken_ms, key=lambda pair: pair[1] / pair[0].budget_ms)
    what = "latency" if one.p99_ms is None else "P99 promised at most"
    taken, limit = (f"{ms:,.0f}" if ms >= 1000 else f"{ms:.4g}" for ms in (most_ms, one.budget_ms))
    return f"tightest {one.workload}: {what} {taken} of {limit} ms"


BEGINNING = '{"certificate":'
"""What the first line of a certificate begins with."""


class CheckProof(Answering):
    instance: str = operand("INSTANCE", "a shipped instance or a file")
    certificate: str = operand("FILE", "a certificate of `provision solve --certificate`")

    def run(self) -> int:
        instance, watch = read_instance(self.instance), Stopwatch()
        try:
            texts = Path(self.certificate).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InputError(f"{self.certificate}: cannot be read: {reason(error)}; name a certificate") from None
        except UnicodeDecodeError:
            texts = []
        if not texts or not texts[0].startswith(BEGINNING):
            raise InputError(f"{self.certificate}: is no certificate; give a file of `provision solve --certificate`")
        why, bound = "", None
        with telling(f"checking {plural(len(texts), 'line')}"):
            try:
                bound = float(check(instance, texts))
            except RefusedError as error:
                why = str(error)
        text = f"refused: {self.certificate}, {why}" if bound is None else (
            f"proven: no plan of {instance.name} has less than {proven(instance, bound)}; "
            f"{plural(len(texts), 'line')} checked in {watch.elapsed_s:.1f} s")
        content = {"instance": instance.name, "proven": bound is not None, "bound": bound, "why": why}
        return self.answer(content, text, 1 if bound is None else 0)
