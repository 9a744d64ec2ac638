"""The verbs that look at what runs. ``provision/cluster/`` has the functions behind them."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from provision.cluster.calibrate import calibrate, corrected, observed_by, read_observed
from provision.cluster.defragment import Defragmentation, defragment
from provision.cluster.layout import Layout as LayoutAnswer
from provision.cluster.layout import layout
from provision.cluster.metrics import WINDOW_S, measured, metrics_table
from provision.cluster.recommend import Recommendation, recommend
from provision.cluster.state import HOURS_PER_MONTH, Observation, State, read_state
from provision.cluster.steps import Step
from provision.commands.common import UNKNOWN, Rows, read_instance
from provision.commands.verb import Answering, Given, Seconds, Writing
from provision.draw.words import plural
from provision.exporters.export import export
from provision.instances.files.files import FilePath, check_writable, validate, write_text
from provision.instances.read import read_plan, write
from provision.models.base.arguments import local, operand, option, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, PositiveCount
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance

EXPORTS = ("mig-parted", "kubernetes", "kubernetes-device-plugin", "kubernetes-dra")
"""The targets of ``recommend --export``."""
MOST_NAMED = 8
"""The most machines that are named."""
STATE = operand("STATE", "what import kubernetes or import gpus wrote")
RUNS = "a shipped instance, a file, or without PLAN a state"
"""What the operand INSTANCE of verbs on a running plan is."""


def running(instance: str, plan: str | None) -> tuple[Instance, Plan, dict[str, Observation]]:
    """The instance and the plan that runs; without a file of the plan those of a state, with what was observed then."""
    if plan is None:
        state = read_state(instance)
        return state.instance, state.plan(), state.observations
    found = read_instance(instance)
    return found, read_plan(plan, found), {}


class Layout(Answering):
    gpu: str = operand("GPU", "a GPU type, such as a100-80gb")
    profiles: tuple[str, ...] = operand("PROFILE", "the instances to create, in this order", nargs="+")
    on: tuple[str, ...] = option((), "PROFILE@START", "instances that exist and stay", nargs="+")

    def run(self) -> int:
        answer = layout(self.gpu, self.profiles, self.on)
        return self.answer(answer.model_dump(mode="json"), _layout(answer), 0 if answer.legal else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return layout(self.gpu, self.profiles, self.on).model_dump(mode="json")


def _layout(answer: LayoutAnswer) -> Iterator[str]:
    if not answer.legal:
        yield f"Not legal on {answer.gpu}: {answer.reason}."
        return
    yield f"Legal on {answer.gpu}: {', '.join(f'{name} at {start}' for name, start in answer.instances)}."
    for name, starts in answer.starts.items():
        yield f"{name} may start at {_numbers(starts)}."
    room = "; ".join(f"{name} at {_numbers(starts)}" for name, starts in answer.further.items())
    yield f"Beside them fits one more of: {room}." if room else "Nothing more fits."
    if answer.as_given:
        yield "First fit creates them in the order given."
    elif answer.order:
        yield f"First fit fails in the order given; create them as {', '.join(answer.order)}."
    else:
        yield "First fit reaches this layout in no order; create the instances at the starts above."


class Recommend(Writing):
    state: str = STATE
    max_moves: Count | None = option(None, "N", "at most so many slices destroyed and replicas started")
    keep: tuple[str, ...] = option((), "NAMESPACE", "GPUs of this namespace stay", action="append")
    time_limit_s: Seconds = option(60.0, "S", "seconds")
    markdown: Flag = local(False, None, "print Markdown, for a pull request")
    out: str | None = written("write the target plan here (.json, else YAML)")
    export: str | None = local(None, "DIR", "write the target for mig-parted, DRA and the device plugin")

    def run(self) -> int:
        state = read_state(self.state)
        for path in export_paths(self.export) if self.export else ():
            check_writable(path, self.force)
        found = recommend(state, self.max_moves, self.keep, self.time_limit_s)
        if self.out:
            write(found.plan, self.out, self.force)
        exports, whole = write_exports(found, self.export, self.force) if self.export else ([], True)
        content = found.model_dump(mode="json") | {"plan_file": self.out, "exports": exports}
        return self.answer(content, [*told(found, self.markdown), *exports], 0 if whole else 1)

    def job(self, given: Given) -> dict[str, Any]:
        return recommend(given.state, self.max_moves, self.keep, self.time_limit_s).model_dump(mode="json")


def export_paths(folder: FilePath) -> list[Path]:
    """The files that ``write_exports`` writes beside the exports: plan, instance, and places of GPUs."""
    return [Path(folder) / name for name in ("plan.json", "instance.json", "places.txt")]


def write_exports(found: Recommendation, folder: FilePath, force: bool = False) -> tuple[list[str], bool]:
    """Write the target and its exports to a folder; returns lines on what was written and what a target cannot express,
    and whether all was written.

    ``places.txt`` has the machine and the number of every GPU of the plan.
    """
    there, lines, whole = Path(folder), [], True
    plan, instance, places = export_paths(folder)
    write(found.plan, plan, force)
    write(found.instance, instance, force)
    for to in EXPORTS:
        try:
            export(found.plan, to, there / to, found.instance, force)
            lines.append(f"{to}: written to {there / to}")
        except InputError as error:
            whole = False
            lines.append(f"{to}: not written: {error.lines[0]}")
    write_text(places, "".join(f"{index} {place}\n" for index, place in enumerate(found.places)), force)
    return lines, whole


def told(found: Recommendation, markdown: bool = False) -> Collection[str]:
    """The recommendation in lines of text, or of Markdown for a pull request."""
    lines = list(_summary(found))
    if markdown:
        lines = ["### GPUs of " + found.state, "", "| | GPUs | $ per hour | $ per month |", "|---|---|---|---|",
                 _row("now", found.gpus, found.per_hour), _row("recommended", found.target_gpus, found.target_per_hour),
                 _row("saving", found.gpus - found.target_gpus, found.per_hour - found.target_per_hour), "",
                 *(f"- {line}" for line in lines[2:]), ""]
    steps = [f"{one.number}. {_step(one)}" for one in found.order.steps]
    if steps:
        head = f"{plural(len(steps), 'step')}, after each of which every workload is carried within its SLO:"
        if not found.order.found:
            head = "The steps up to where no order keeps all SLOs:"
        lines += [head, *([""] if markdown else []), *steps]
    if found.questions:
        lines += ["", "It rests on these answers:", *([""] if markdown else [])]
        lines += [f"{'- ' if markdown else '  '}{one.name} = {one.default} ({one.because})" for one in found.questions]
    return lines


def _row(name: str, gpus: int, per_hour: float) -> str:
    return f"| {name} | {gpus} | {per_hour:,.2f} | {per_hour * HOURS_PER_MONTH:,.0f} |"


def _step(one: Step) -> str:
    verbs = {"start": "make and start", "stop": "stop and remove"}
    what = ", ".join(one.workloads) or "an empty slice"
    return f"{verbs.get(one.action, one.action)} {what} on {one.gpu}, {one.slice} (least carried: {one.carried:.0%})"


def _summary(found: Recommendation) -> Iterator[str]:
    yield (f"Now: {plural(found.gpus, 'GPU')}, {found.per_hour:,.2f} $ per hour "
           f"({found.per_hour * HOURS_PER_MONTH:,.0f} $ per month).")
    proof = "proven: no plan costs less" if found.status == "optimal" else (
        f"the least cost is proven to be {found.bound_per_hour:,.2f} $ per hour or more")
    if not found.improves:
        yield f"Nothing can be improved: {plural(found.target_gpus, 'GPU')} are needed; {proof}."
    else:
        yield f"Enough: {plural(found.target_gpus, 'GPU')}, {found.target_per_hour:,.2f} $ per hour; {proof}."
        part = (found.per_hour - found.target_per_hour) / found.per_hour if found.per_hour else 0.0
        yield f"Saving: {found.saving_per_month:,.0f} $ per month ({part:.0%})."
    if found.empty_nodes:
        named = ", ".join(found.empty_nodes[:MOST_NAMED]) + (" ..." if len(found.empty_nodes) > MOST_NAMED else "")
        yield f"{plural(len(found.empty_nodes), 'machine')} without replicas then: {named}."
    if found.stays:
        reasons = Counter(found.stays.values())
        yield "Stay as they are: " + "; ".join(f"{plural(many, 'GPU')}: {why}" for why, many in reasons.items()) + "."
    if found.breaks:
        yield f"What runs breaks the SLO or rate, as predicted, of {', '.join(found.breaks)}."
    if found.order.spare_gpus:
        fewer = "fewer do not suffice, proven" if found.order.spare_proven else "fewer may suffice"
        yield f"The change needs {plural(found.order.spare_gpus, 'spare GPU')} for a time ({fewer})."
    if not found.order.found:
        yield "No order of steps was found in which all traffic stays within its SLOs; change over at a quiet time."
    moves = {name.replace("_", " "): many for name, many in found.moves.items() if many}
    yield "Changes: " + (", ".join(f"{many} {name}" for name, many in moves.items()) or "none") + "."


class Calibrate(Writing):
    instance: str = operand("INSTANCE", RUNS)
    plan: str | None = operand("PLAN", "the plan that runs; after a state, leave it out", None, nargs="?")
    prometheus: str | None = local(None, "URL", "the server that has the latency histograms")
    metrics: str | None = local(None, "FILE", "rows for the table of metric names")
    window_s: Seconds = local(float(WINDOW_S), "S", "seconds over which latencies are taken")
    observed: str | dict[Name, Observation] | None = option(
        None, "FILE", "or a table: workload,requests,p50_ms,p99_ms", remote=dict[Name, Observation])
    out: str | None = local(None, "F", "write corrected performance data here, if anything is outside")

    def run(self) -> int:
        instance, plan, observed = running(self.instance, self.plan)
        if (self.prometheus and self.observed) or not (self.prometheus or self.observed or observed):
            raise InputError("calibrate: give --prometheus URL or --observed FILE, and not both; or a state that was "
                             "imported with --prometheus")
        for path in {self.out, *_corrected_paths(self.out, len(instance.performance))} if self.out else ():
            check_writable(path, self.force)
        if self.prometheus:
            observed = observed_by(measured(self.prometheus, metrics_table(self.metrics), self.window_s), instance)
        elif self.observed:
            observed = read_observed(str(self.observed))
        found = calibrate(instance, plan, observed)
        lines = list(found.notes)
        if self.out and found.factors:
            files, further = corrected(instance, found.factors)
            lines += further
            for data, path in zip(files, _corrected_paths(self.out, len(files)), strict=True):
                write(data, path, self.force)
                lines.append(f"{data.source}: written to {path}")
        table = Rows(("workload", "percentile", "observed ms", "predicted ms", "band ms", "inside", "requests"), [
            (one.workload, one.label, one.observed_ms, one.predicted_ms,
             None if one.band_ms is None else f"{one.band_ms[0]:.4g} to {one.band_ms[1] or float('inf'):.4g}",
             {True: "yes", False: "NO", None: "-"}[one.inside], round(one.requests)) for one in found.rows])
        text = [table, *lines, "everything is inside its band" if found.ok else "the prediction does not hold"]
        return self.answer(found.model_dump(mode="json") | {"lines": lines}, text, 0 if found.ok else 1)

    def job(self, given: Given) -> dict[str, Any]:
        found = calibrate(given.instance, given.plan, validate(dict[Name, Observation], self.observed, "observed"))
        files, lines = corrected(given.instance, found.factors)
        return found.model_dump(mode="json") | {
            "lines": [*found.notes, *lines], "performance": [one.model_dump(mode="json") for one in files]}


def _corrected_paths(out: str, files: int) -> list[str]:
    """The paths of so many files of corrected data."""
    return [out] if files == 1 else [f"{out}.{number}.yaml" for number in range(files)]


class Defragment(Answering):
    state: str = STATE
    free: PositiveCount | None = option(None, "N", "let so many GPUs stand empty")
    free_node: str | None = option(None, "NODE", "let this machine stand empty")
    admit: str | None = option(None, "PROFILE", "make room for a slice: PROFILE, or GPUTYPE:PROFILE")
    max_moves: Count | None = option(None, "N", "at most so many slices move")
    keep: tuple[str, ...] = option((), "NAMESPACE", "slices of it stay", action="append")
    budget: dict[Name, Count] = option({}, "WORKLOAD=N", "at most N slices of a workload move")
    time_limit_s: Seconds = option(60.0, "S", "seconds")

    def run(self) -> int:
        found = self._found(read_state(self.state))
        code = UNKNOWN if found.status == "unknown" else int(found.status == "impossible")
        return self.answer(found.model_dump(mode="json"), _moves(found), code)

    def job(self, given: Given) -> dict[str, Any]:
        return self._found(given.state).model_dump(mode="json")

    def _found(self, state: State) -> Defragmentation:
        for name in self.budget:
            if name not in state.instance.workload:
                raise InputError(f"--budget {name}: write WORKLOAD=N with a workload of the state: "
                                 f"{', '.join(list(state.instance.workload)[:10])}")
        return defragment(state, self.free, self.free_node, self.admit, self.max_moves, self.keep, self.budget,
                          self.time_limit_s)


def _moves(found: Defragmentation) -> Iterator[str]:
    if found.status == "impossible":
        yield f"No moves reach it, proven: {found.goal}."
    elif found.weight is None:
        yield f"Nothing was found in time: {found.goal}; a longer --time-limit may help."
    else:
        proof = "proven fewest" if found.status == "optimal" else f"at least {found.bound:g} by proof"
        yield (f"{plural(len(found.moves), 'move')}, {found.weight:g} restarts and destroyed slices ({proof}): "
               f"{found.goal}.")
        for move in found.moves:
            yield f"  {', '.join(move.pods)} ({move.profile}): {move.before} to {move.after}"
        if found.moves and found.order.found:
            yield f"{plural(len(found.order.steps), 'step')}, in all of which every pod is served:"
            yield from (f"  {step.number}. {_step(step)}" for step in found.order.steps)
        if found.order.spare_gpus:
            yield f"They need {plural(found.order.spare_gpus, 'spare GPU')} for a time."
        if not found.order.found:
            yield "No order was found that serves every pod all the time; move at a quiet time."
        yield f"Then empty: {', '.join(found.freed) or 'none'}." + (f" Room: {found.room}." if found.room else "")


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
