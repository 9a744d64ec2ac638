"""``provision recommend``: how few GPUs are enough for what runs, proven, what that saves, and the way there.

The demand of the state is solved for the proven least cost, and planned again from what runs with as few moves as that
cost allows. Both are the public functions ``solve`` and ``replan``; nothing is searched here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field

from provision.cluster.state import HOURS_PER_MONTH, Provenance, Question, State, StateGpu
from provision.cluster.steps import Order, Place, Step, Unit, ordered
from provision.draw.words import plural
from provision.exporters.export import export
from provision.instances.files.files import FilePath, write_text
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, NonNegative, Record, Text
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.disturbance import disturbance, matched
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.replanning.replan import Replan, replan
from provision.solving.solve import solve
from provision.verification.capacity import capacity_rps
from provision.verification.verify import verify

FEW_MOVES, DEAREST, ROUNDS, GAP = 0.001, 10.0, 9, 1e-9
"""The cost of a move, as a part of the price of the cheapest GPU: where cost comes first and moves second, and where no
GPU is worth one. Between the two a limit on moves is sought in so many rounds, each solved to this gap.
"""
ROUNDING = 1e-5
"""The part of a GPU by which a bound may miss a whole number of GPUs, for the precision of solvers."""
MOST_NAMED = 8
"""The most machines that are named."""
PROOF, CHANGE = 0.5, 0.45
"""The parts of the time for the proof of the least cost, and for the plan with few moves."""
Carries = tuple[tuple[str, float], ...]
"""The requests/s that a slice carries, by workload."""
EXPORTS = ("mig-parted", "kubernetes", "kubernetes-device-plugin", "kubernetes-dra")
"""The targets of ``--export``."""


class Recommendation(Record):
    """What is recommended.

    Attributes
    ----------
    gpus, per_hour
        The GPUs of the cluster now, and their price per hour.
    target_gpus, target_per_hour
        The same after the change, GPUs that stay included.
    status, bound_per_hour
        ``optimal`` if it is proven that no plan costs less, and the proven least price per hour; with ``max_moves``, of
        all plans with so few moves.
    improves
        Whether the target costs less than what runs.
    stays
        The GPUs that stay as they are, with the reason.
    breaks
        Workloads whose SLO what runs breaks, as predicted.
    moves
        The numbers of changes.
    order
        The steps, in order.
    plan, places
        The target without the GPUs that stay, and the machine and number of each of its GPUs.
    empty_nodes
        Machines without any replica after the change.
    provenance, questions, notes
        Those of the state.
    """

    state: Name
    gpus: Count
    per_hour: NonNegative
    target_gpus: Count
    target_per_hour: NonNegative
    status: Name
    bound_per_hour: NonNegative
    improves: Flag
    saving_per_month: float
    stays: dict[Text, Text] = Field(default={})
    breaks: tuple[Text, ...] = ()
    moves: dict[Name, int]
    order: Order
    plan: Plan
    places: tuple[Text, ...]
    empty_nodes: tuple[Text, ...]
    instance: Instance
    provenance: dict[Name, Provenance]
    questions: tuple[Question, ...]
    notes: tuple[Text, ...]


def recommend(
    state: State, max_moves: int | None = None, keep: Sequence[str] = (), time_limit_s: float = 60.0
) -> Recommendation:
    """Recommend the cheapest plan for what runs, and the way to it.

    Parameters
    ----------
    state
        The state of a cluster or machine.
    max_moves
        The most slices destroyed and replicas started together; None for any number.
    keep
        Namespaces whose GPUs stay as they are.
    time_limit_s
        The seconds for the proof and the plan together.

    Raises
    ------
    InputError
        If an option is out of range, everything stays, or no plan on the cluster's GPUs keeps all SLOs.
    """
    if max_moves is not None and max_moves < 0:
        raise InputError(f"max_moves {max_moves}: should be 0 or more")
    known = set().union(*(gpu.namespaces for gpu in state.gpus))
    for one in keep:
        if one not in known:
            raise InputError(f"--keep {one}: no GPU has a pod of this namespace; there are {', '.join(sorted(known))}")
    kept = [gpu for gpu in state.gpus if gpu.stays or gpu.namespaces & set(keep)]
    free = [gpu for gpu in state.gpus if gpu not in kept]
    instance = _without(state, kept)
    running = [gpu for gpu in free if any(piece.replicas for piece in gpu.slices)]
    before = Plan(version=1, instance=instance.name, digest=instance.digest, method="running",
                  gpus=tuple(gpu.planned() for gpu in running))
    best = solve(instance, time_limit_s=PROOF * time_limit_s, start=before)
    if best.plan is None or best.bound is None:
        raise InputError(f"{state.name}: no plan on these GPUs keeps all SLOs: {best.status}"
                         + "".join(f"; {note}" for note in best.notes[:2]) + "; see provision verify, or raise an SLO")
    found, bound = _few_moves(instance, before, best.plan, best.bound, max_moves, CHANGE * time_limit_s)
    target = found.plan
    if target is None:
        raise InputError(f"--max-moves {max_moves}: no plan with so few moves keeps all SLOs; allow more")
    objective = objective_of(instance)
    if objective.value(target) >= objective.value(before) and verify(instance, before).ok:
        target = before  # what costs no less is no reason to change anything
    value = objective.value(target)
    places, seats = _seats(state, free, running, before, target)
    order = _order(instance, state, running, before, target, places, seats)
    kept_price = sum(state.price_of(gpu.gpu) or 0.0 for gpu in kept)
    now, after = state.per_hour or 0.0, kept_price + value
    used = {gpu.node for gpu in kept} | {place.rpartition("/")[0] for place in places}
    return Recommendation(
        state=state.name, gpus=len(state.gpus), per_hour=now, target_gpus=len(kept) + target.gpu_count,
        target_per_hour=after, status="optimal" if objective.proved(value, bound) else "feasible",
        bound_per_hour=min(kept_price + bound, after), improves=after < now - 1e-9,
        saving_per_month=(now - after) * HOURS_PER_MONTH,
        stays={gpu.place: gpu.stays or "its namespace is kept" for gpu in kept}, breaks=_breaks(instance, before),
        moves=dict(disturbance(before, target)._asdict()), order=order, plan=target, places=tuple(places),
        empty_nodes=tuple(sorted({gpu.node for gpu in state.gpus} - used)), instance=instance,
        provenance=state.provenance, questions=state.questions, notes=state.notes,
    )


def _without(state: State, kept: Sequence[StateGpu]) -> Instance:
    """The instance without the GPUs that stay, and without the traffic that they carry."""
    carried: defaultdict[str, float] = defaultdict(float)
    for gpu in kept:
        for piece in gpu.slices:
            for replica in piece.replicas:
                carried[replica.workload] += replica.rate_rps
    served = {one.workload for gpu in state.gpus if gpu not in kept for piece in gpu.slices for one in piece.replicas}
    workloads = [one.model_copy(update={
        "rate_rps": max(one.rate_rps - carried[one.name], 0.0), "min_replicas": 0 if one.name in carried
        else one.min_replicas}) for one in state.instance.workloads if one.name in served]
    if not workloads:
        raise InputError(f"{state.name}: everything stays as it is; there is nothing to recommend: see its notes, or "
                         "keep fewer namespaces")
    gone = Counter(gpu.gpu for gpu in kept)
    fleet = tuple(one.model_copy(update={"count": max((one.count or 0) - gone[one.gpu], 0)})
                  for one in state.instance.fleet)
    return state.instance.replace(workloads=tuple(workloads), fleet=fleet)


def _few_moves(instance: Instance, before: Plan, best: Plan, least: float, most: int | None, limit_s: float
               ) -> tuple[Replan, float]:
    """The plan of least cost with few moves, and a bound on the cost; with ``most``, of plans with at most so many.

    A plan that is best at a cost per move is the cheapest with its number of moves. For plans with at most M moves, the
    bound on cost and moves together, less M times the cost of a move, is a bound on the cost.
    """
    cheapest = min(map(objective_of(instance).weight, instance.fleet))

    def at(weight: float) -> Replan:
        return replan(instance, before, weight * cheapest, time_limit_s=limit_s / (ROUNDS + 1), gap=GAP, others=[best])

    low, high, bound = FEW_MOVES, DEAREST, least
    found = [at(low)]
    if most is None or _moved(found[0]) <= most:
        return found[0], least
    for number in range(ROUNDS):
        weight = (low * high) ** 0.5 if number else high
        one = at(weight)
        found.append(one)
        if one.bound is not None:
            bound = max(bound, one.bound - weight * cheapest * most)
        if _moved(one) == most:
            break
        low, high = (low, weight) if _moved(one) < most else (weight, high)
    able = [one for one in found if _moved(one) <= most]
    if not able:
        raise InputError(f"--max-moves {most}: no plan with so few moves was found that keeps all SLOs; allow more")
    return min(able, key=lambda one: one.objective or 0.0), _whole_gpus(instance, bound)


def _whole_gpus(instance: Instance, bound: float) -> float:
    """A bound on the cost, raised to the price of a whole number of GPUs if all have one price."""
    prices = {objective_of(instance).weight(one) for one in instance.fleet if one.count != 0}
    price = next(iter(prices), 0.0)
    return price * ceil(bound / price - ROUNDING) if len(prices) == 1 and price else bound


def _moved(one: Replan) -> float:
    return one.changes.moved if one.changes is not None else float("inf")


def _breaks(instance: Instance, before: Plan) -> tuple[str, ...]:
    """The workloads whose SLO or rate what runs breaks; replicas that no data describes are not judged."""
    report = verify(instance, before)
    return tuple(sorted({one.workload for one in report.violations
                         if one.workload is not None and one.kind in ("latency", "rate")}))


def _seats(state: State, free: Sequence[StateGpu], running: Sequence[StateGpu], before: Plan, target: Plan
           ) -> tuple[list[str], dict[int, StateGpu]]:
    """The place of every GPU of the target, and the GPU of the state there: where most goes on, then idle GPUs, then
    GPUs of machines that are in use.
    """
    seats = {new: running[old] for old, new in matched(before.gpus, target.gpus) if old is not None and new is not None}
    taken = {gpu.place for gpu in seats.values()}
    full = Counter(gpu.node for gpu in seats.values())
    for index, gpu in enumerate(target.gpus):
        if index in seats:
            continue
        able = [one for one in free if one.gpu == gpu.gpu and one.place not in taken]
        seat = min(able, key=lambda one: (any(piece.replicas for piece in one.slices), -full[one.node], one.place))
        seats[index] = seat
        taken.add(seat.place)
        full[seat.node] += 1
    return [seats[index].place for index in range(len(target.gpus))], seats


def _order(instance: Instance, state: State, running: Sequence[StateGpu], before: Plan, target: Plan,
           places: Sequence[str], seats: dict[int, StateGpu]) -> Order:
    """The order of steps from what runs to the target."""
    now, later = _units(instance, before, True), _units(instance, target, False)
    at = {gpu.place: index for index, gpu in enumerate(running)}
    new = {gpu.place: index for index, gpu in seats.items()}
    names = list(dict.fromkeys([*at, *new]))
    by_name = {gpu.place: gpu for gpu in state.gpus}
    changing = []
    for number, name in enumerate(names):
        gpu = by_name[name]
        old = [Unit(number, *one) for one in now[at[name]]] if name in at else []
        old += [Unit(number, planned) for planned in _idle(gpu)]
        coming = [Unit(number, *one) for one in later[new[name]]] if name in new else []
        changing.append(Place(name, gpu.gpu, old, coming))
    carried: defaultdict[str, float] = defaultdict(float)
    for units in now:
        for _, carries in units:
            for workload, rps in carries:
                carried[workload] += rps
    floors = {one.name: min(one.rate_rps, carried[one.name]) for one in instance.workloads}
    spares = {gpu.place: (gpu.gpu, gpu.mig) for gpu in state.gpus if gpu.place not in names and not gpu.stays
              and not any(piece.pods for piece in gpu.slices)}
    return ordered(changing, floors, spares)


def _idle(gpu: StateGpu) -> Iterator[Slice]:
    """Yield the MIG instances of a GPU that have no pod."""
    for piece in gpu.slices:
        if not piece.replicas and piece.profile != WHOLE:
            yield Slice(profile=piece.profile, start=piece.start)


def _units(instance: Instance, plan: Plan, runs: bool) -> list[list[tuple[Slice, Carries]]]:
    """The slices of every GPU with what they carry: as predicted, and where no data tells, what is routed to them now.
    """
    predictions = verify(instance, plan).predictions
    by_slice = defaultdict(list)
    for one in predictions:
        by_slice[one.gpu, one.slice].append(one)
    cached: dict[tuple[Any, ...], Carries] = {}
    units = []
    for at, gpu in enumerate(plan.gpus):
        of_gpu = []
        for position, piece in enumerate(gpu.slices):
            key = gpu.gpu, gpu.mig, piece.profile, piece.replicas
            if key not in cached:
                told = capacity_rps(instance, plan, by_slice[at, position])
                routed: defaultdict[str, float] = defaultdict(float)
                for replica in piece.replicas:
                    routed[replica.workload] += replica.rate_rps
                cached[key] = tuple((name, max(told.get(name, 0.0), rps) if runs else told.get(name, 0.0))
                                    for name, rps in routed.items())
            of_gpu.append((piece, cached[key]))
        units.append(of_gpu)
    return units


def export_paths(folder: FilePath) -> list[Path]:
    """The files that ``write_exports`` writes beside the folders of the exports: plan, instance, and places of GPUs."""
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
