"""``provision recommend``: how few GPUs are enough for what runs, proven, what that saves, and the way there.

The demand of the state is solved for the proven least cost, and planned again from what runs with as few moves as that
cost allows. Both are the public functions ``solve`` and ``replan``; nothing is searched here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from pydantic import Field

from provision.cluster.state import Provenance, Question, State, StateGpu, read_state
from provision.cluster.steps import Order, Place, Unit, ordered
from provision.instances.files.files import FilePath
from provision.models.base.clock import Deadline
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, Name, NonNegative, Record, Text
from provision.models.hardware.gpu import WHOLE
from provision.models.plans.disturbance import disturbance, matched
from provision.models.plans.plan import Plan, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import HOURS_PER_MONTH, objective_of
from provision.replanning.replan import Replan, replan
from provision.solving.solve import solve
from provision.verification.deployment import capacity_rps
from provision.verification.verify import verify

FEW_MOVES, DEAREST, ROUNDS, GAP = 0.001, 10.0, 9, 1e-9
"""The cost of a move, as a part of the price of the cheapest GPU: where cost comes first and moves second, and where no
GPU is worth one. Between the two a limit on moves is sought in so many rounds, each solved to this gap.
"""
ROUNDING = 1e-5
"""The part of a GPU by which a bound may miss a whole number of GPUs, for the precision of solvers."""
PROOF, CHANGE = 0.5, 0.45
"""The parts of the time for the proof of the least cost, and for the plan with few moves."""
Carries = tuple[tuple[str, float], ...]
"""The requests/s that a slice carries, by workload."""


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


def recommend(state: State | FilePath, max_moves: int | None = None, keep: Sequence[str] = (),
              time_limit_s: float = 60.0) -> Recommendation:
    """Recommend the cheapest plan for what runs, and the way to it.

    Parameters
    ----------
    state
        The State of a cluster or machine, or its path.
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
    state = read_state(state)
    if max_moves is not None and max_moves < 0:
        raise InputError(f"max_moves {max_moves}: should be 0 or more")
    state.refuse_unknown(keep)
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
    objective, holds, tried = objective_of(instance), verify(instance, before).ok, list[tuple[Any, ...]]()
    turned = instance.replace(workloads=instance.workloads[::-1])  # of plans that are as good, it may find another
    until = Deadline(CHANGE * time_limit_s)
    for one in (instance, turned):
        found, bound = _few_moves(one, before, best.plan, best.bound, max_moves, until.left_s)
        if found.plan is None:
            raise InputError(f"--max-moves {max_moves}: no plan with so few moves keeps all SLOs; allow more")
        target = instance.adopted(found.plan)
        if objective.value(target) >= objective.value(before) and holds:
            target = before  # what costs no less is no reason to change anything
        places, seats = _seats(state, free, running, before, target)
        order = _order(instance, state, running, before, target, places, seats)
        rank = not order.found, objective.value(target), order.spare_gpus
        tried.append((rank, bound, target, places, order))
        if until.over or (order.found and not order.spare_gpus):
            break
    (_, value, _), bound, target, places, order = min(tried, key=lambda one: one[0])
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
