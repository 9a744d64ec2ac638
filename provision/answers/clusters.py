"""Tells what ``provision/cluster/`` finds: layouts, recommendations with their exports, and moves."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from provision.cluster.defragment import Defragmentation
from provision.cluster.layout import Layout
from provision.cluster.recommend import Recommendation
from provision.cluster.steps import Step
from provision.draw.output import plural
from provision.exporters.common import export
from provision.instances.files.files import FilePath, write_text
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.problem.objective import HOURS_PER_MONTH

EXPORTS = ("mig-parted", "kubernetes", "kubernetes-device-plugin", "kubernetes-dra")
"""The targets of ``recommend --export``."""
MOST_NAMED = 8
"""The most machines that are named."""


def layout_told(answer: Layout) -> Iterator[str]:
    """Yield what is known about a MIG layout, in words."""
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


def recommendation_told(found: Recommendation, markdown: bool = False) -> Collection[str]:
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


def moves_told(found: Defragmentation) -> Iterator[str]:
    """Yield the moves that free GPUs, in words."""
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
