"""A plan as it is drawn everywhere, in the terminal, as a picture and as a page: which GPUs look the same, where their
slices and replicas are, in memory slots, what the plan does for each workload, and the texts beside.

Invalid plans are drawn too, since a drawing shows what is wrong: a slice that reaches past its GPU is cut off, and a
slice that overlaps another is moved to a second lane. Both cases are listed as problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from typing import Any, NamedTuple

from provision.draw.boxes import FillStyle, ReplicaBox, Row, SliceBox, mean_share, styles
from provision.draw.output import plural, printable, ranges
from provision.draw.verdict import Standing
from provision.models.hardware.gpu import WHOLE, GpuType, MigProfile, gpu_types, known_type
from provision.models.performance.operating_points import Prediction
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour
from provision.models.problem.prediction import counted_rps, predict_slice
from provision.models.problem.workload import Workload

NAMES = ("TTFT", "TPOT")
"""The latencies of language models that replays measure, as the replay writes them after a workload's name."""


class Served(NamedTuple):
    """What a plan does for a workload. Predictions are None if unknown; ``asked``, the workload, is None without an
    instance. ``met_ms`` has the TTFT and TPOT of a replay in milliseconds; it is empty if nothing was replayed.
    """

    name: str
    style: FillStyle
    model: str
    replicas: int
    processes: int
    rate_rps: float
    latency_ms: float | None
    throughput_rps: float | None
    asked: Workload | None
    budget_ms: float | None
    planned_rps: float | None
    capacity_rps: float | None
    met_ms: Mapping[str, float]

    @property
    def tokens(self) -> float:
        """The mean number of output tokens of a request; 0 for models without tokens."""
        return self.asked.tokens.output.counts.mean if self.asked and self.asked.tokens else 0.0

    @property
    def latency_slack(self) -> float | None:
        """The fraction of the latency budget that is left; None if unknown."""
        return 1 - self.latency_ms / self.budget_ms if self.latency_ms is not None and self.budget_ms else None

    @property
    def rate_slack(self) -> float | None:
        """The fraction of the predicted throughput that is left; None if unknown."""
        rate = self.rate_rps if self.planned_rps is None else self.planned_rps
        return 1 - rate / self.throughput_rps if self.throughput_rps else None


def served(name: str, boxes: Sequence[ReplicaBox], style: FillStyle, instance: Instance | None,
           met_ms: Mapping[str, float]) -> Served:
    """What the replicas in these boxes do for the workload of this name."""
    asked = instance.workload.get(name) if instance else None
    found = [box.prediction for box in boxes if box.prediction]
    predicted = boxes and len(found) == len(boxes)
    return Served(
        name=name,
        style=style,
        model=_models(boxes, asked),
        replicas=sum(len(box.rates_rps) for box in boxes),
        processes=sum(one.processes for box in boxes for one in box.replicas),
        rate_rps=sum(sum(box.rates_rps) for box in boxes),
        latency_ms=max(one.latency_ms for one in found) if predicted else None,
        throughput_rps=(
            sum(len(box.rates_rps) * one.throughput_rps for box, one in zip(boxes, found, strict=True))
            if predicted else None
        ),
        asked=asked,
        budget_ms=instance.budget_ms(asked) if instance and asked else None,
        planned_rps=instance.planned_rps(asked) if instance and asked else None,
        capacity_rps=_whole((box.capacity_rps, len(box.rates_rps)) for box in boxes) if predicted else None,
        met_ms=met_ms,
    )


def _whole(parts: Iterable[tuple[float | None, int]]) -> float | None:
    """The sum of number times count over the pairs whose number is known; None if no number is known."""
    known = [(value, many) for value, many in parts if value is not None]
    return sum(value * many for value, many in known) if known else None


def _models(boxes: Sequence[ReplicaBox], asked: Workload | None) -> str:
    """The models that the replicas of a workload run, as text; without replicas the workload's own model."""
    default = asked.model if asked else "not in the instance"
    return ", ".join(sorted({box.model or default for box in boxes} or {default}))


ASSUMED_SLOTS = 8
"""The memory slots with which a GPU of unknown type is drawn."""


def gpus_alike(plan: Plan, key: Callable[[PlannedGpu], tuple[Any, ...]]) -> list[list[int]]:
    """The indices of GPUs with equal keys, in the order of the first GPU of each key."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for index, gpu in enumerate(plan.gpus):
        found.setdefault(key(gpu), []).append(index)
    return list(found.values())


def likeness(gpu: PlannedGpu) -> tuple[Any, ...]:
    """A key of a GPU's content except for its rates; GPUs with equal keys are drawn as one row."""
    slices = [(piece.start, piece.profile, *map(_work, piece.replicas)) for piece in _ordered(gpu)]
    return gpu.gpu, gpu.mig, tuple(slices)


def arrangement(gpu: PlannedGpu) -> tuple[Any, ...]:
    """A key of a GPU's slices and of the workloads on them."""
    slices = [(piece.start, piece.profile, *(one.workload for one in piece.replicas)) for piece in _ordered(gpu)]
    return gpu.gpu, gpu.mig, tuple(slices)


def _work(replica: Replica) -> tuple[str, int, int, float, str | None]:
    return replica.workload, replica.batch, replica.processes, replica.sm_share, replica.model


def _ordered(gpu: PlannedGpu) -> list[Slice]:
    return sorted(gpu.slices, key=lambda piece: (piece.start, piece.profile))


def by_model(plan: Plan, instance: Instance | None) -> Plan:
    """The plan with models in place of workloads, and the replicas of every slice in the order of their models. Without
    the instance, workloads stay whose replicas state no model.
    """
    def named(replica: Replica) -> Replica:
        known = instance is not None and replica.workload in instance.workload
        model = instance.model_of(replica) if instance and known else replica.model or replica.workload
        return Replica.of_checked(dict(replica) | {"workload": model, "model": None}, replica.model_fields_set)

    def renamed(piece: Slice) -> Slice:
        several = sorted(map(named, piece.replicas), key=lambda one: (one.workload, one.sm_share))
        return Slice.of_checked(dict(piece) | {"replicas": tuple(several)}, piece.model_fields_set)

    return plan.model_copy(update={"gpus": tuple(
        gpu.model_copy(update={"slices": tuple(map(renamed, gpu.slices))}) for gpu in plan.gpus)})


def row_of(plan: Plan, indices: Sequence[int], instance: Instance | None) -> Row:
    """The row that stands for the GPUs of these indices, which must be alike but for their rates."""
    alike = [plan.gpus[index] for index in indices]
    first, kind = alike[0], known_type(alike[0].gpu)
    slots = _slots(kind)
    spans = [_span(kind, slots, piece) for piece in _ordered(first)]
    lanes = _lanes([(start, size) for start, size, _ in spans])
    same = zip(*(_ordered(gpu) for gpu in alike), strict=True)
    slices = tuple(
        _slice_box(first.gpu, pieces, span, lane, instance)
        for pieces, span, lane in zip(same, spans, lanes, strict=True)
    )
    return Row(
        gpus=tuple(indices),
        gpu=first.gpu,
        mig=first.mig,
        slots=slots,
        lanes=max(lanes, default=0) + 1,
        slices=slices,
        idle=_idle(slots, slices),
        idle_compute=_idle_compute(kind, slices),
        problems=() if kind else (f"unknown GPU type {first.gpu}, drawn with {slots} memory slots",),
    )


def _slots(kind: GpuType | None) -> int:
    """The number of memory slots with which a GPU is drawn; 1 if it cannot be partitioned."""
    if kind is None:
        return ASSUMED_SLOTS
    return kind.mig.memory_slices if kind.mig else 1


def _profile(kind: GpuType | None, name: str) -> MigProfile | None:
    """The MIG profile of this name; if the GPU type lacks it, the profile of another GPU type; None if no type has it.
    """
    types = [kind, *gpu_types().values()] if kind else gpu_types().values()
    return next((one.profiles[name] for one in types if name in one.profiles), None)


def _span(kind: GpuType | None, slots: int, piece: Slice) -> tuple[int, int, tuple[str, ...]]:
    """(start, size, problems) of a slice: the memory slots inside the GPU where it is drawn, and what was changed for
    that.
    """
    if piece.profile == WHOLE:
        return 0, slots, ()
    profile, problems = _profile(kind, piece.profile), []
    size = profile.memory if profile else 1
    if profile is None or (kind and piece.profile not in kind.profiles):
        problems.append(f"there is no profile {piece.profile}, drawn with {plural(size, 'memory slot')}")
    if piece.start + size > slots:
        problems.append(f"{piece.profile} at {piece.start} reaches past the last memory slot, {slots - 1}")
    start = min(piece.start, slots - 1)
    return start, min(size, slots - start), tuple(problems)


def _lanes(spans: Iterable[tuple[int, int]]) -> list[int]:
    """For every span (start, size), in ascending order of start, the first lane that has room for it."""
    ends: list[int] = []
    lanes: list[int] = []
    for start, size in spans:
        lane = next((lane for lane, end in enumerate(ends) if end <= start), len(ends))
        ends[lane : lane + 1] = [start + size]
        lanes.append(lane)
    return lanes


def _slice_box(gpu: str, pieces: Sequence[Slice], span: tuple[int, int, tuple[str, ...]], lane: int,
               instance: Instance | None) -> SliceBox:
    """The box that stands for slices that are alike on several GPUs."""
    start, size, problems = span
    piece = pieces[0]
    if lane:
        problems += (f"{piece.profile} at {piece.start} overlaps another slice",)
    replicas = tuple(_replica_boxes(gpu, pieces, start, size, instance))
    return SliceBox(start, size, lane, piece.profile, piece.start, replicas, problems)


def _replica_boxes(gpu: str, pieces: Sequence[Slice], start: float, size: int,
                   instance: Instance | None) -> Iterator[ReplicaBox]:
    """Yield the boxes of a slice's replicas side by side. Widths are in proportion to SM shares, scaled down if the
    shares add up to more than 1.
    """
    predictions = predict_slice(instance, gpu, pieces[0]) if instance else [None] * len(pieces[0].replicas)
    alike = [tuple(piece.replicas[index] for piece in pieces) for index in range(len(pieces[0].replicas))]
    shares = list(map(mean_share, alike))
    scale = size / max(1, sum(shares))
    for several, share, prediction in zip(alike, shares, predictions, strict=True):
        capacity_rps = _capacity_rps(instance, gpu, pieces[0], several[0], prediction)
        yield ReplicaBox(start, share * scale, several, prediction, capacity_rps)
        start += share * scale


def _capacity_rps(instance: Instance | None, gpu: str, piece: Slice, replica: Replica,
                  found: Prediction | None) -> float | None:
    """The highest rate that a replica carries within its SLO, in requests/s; None if nothing predicts it."""
    if instance is None or found is None or replica.workload not in instance.workload:
        return None
    return counted_rps(instance, gpu, piece, replica, found)


def _idle(slots: int, slices: Sequence[SliceBox]) -> tuple[tuple[int, int], ...]:
    """The runs of memory slots without a slice, as (start, size)."""
    taken = {slot for piece in slices for slot in range(piece.start, piece.start + piece.size)}
    runs = [list(run) for free, run in groupby(range(slots), lambda slot: slot not in taken) if free]
    return tuple((run[0], len(run)) for run in runs)


def _idle_compute(kind: GpuType | None, slices: Sequence[SliceBox]) -> int:
    """The number of compute slices that no slice of a GPU uses."""
    if kind is None or any(piece.profile == WHOLE for piece in slices):
        return 0
    profiles = [_profile(kind, piece.profile) for piece in slices]
    return max(0, kind.compute_slices - sum(profile.compute for profile in profiles if profile))


MOST_ROWS = 300
"""The most different GPUs that are drawn one by one."""


class Drawing:
    """A plan as rows of boxes, with its workloads. Predictions and prices need the instance; without it they are left
    out.

    If there are more than ``most`` different GPUs, the drawing is an ``overview``: GPUs that run the same models on the
    same slices are drawn once, the most frequent ones first, and what is told of workloads is told of models.
    """

    def __init__(self, plan: Plan, instance: Instance | None = None, standing: Standing | None = None,
                 most: int = MOST_ROWS) -> None:
        self.plan, self.instance, self.standing, self.most = plan, instance, standing, most
        alike = gpus_alike(plan, likeness)
        self.overview = len(alike) > most
        self.told = None if self.overview else instance
        drawn = by_model(plan, instance) if self.overview else plan
        if self.overview:
            alike = sorted(gpus_alike(drawn, arrangement), key=len, reverse=True)
        self.rows = tuple(row_of(drawn, indices, self.told) for indices in alike)
        asked = self.told.workload if self.told else {}
        self.styles = styles({one.workload for *_, one in drawn.replicas()} | set(asked))

    @cached_property
    def workloads(self) -> tuple[Served, ...]:
        """A Served for every workload, or in an overview for every model, in natural order of their names."""
        boxes: dict[str, list[ReplicaBox]] = {name: [] for name in self.styles}
        for row in self.rows:
            for _, replica in row.boxes:
                boxes[replica.workload].append(replica)
        replay = self.standing.rehearsed if self.standing else None
        met_ms = {one.name: one.met_ms for one in replay.slos if one.met_ms is not None} if replay else {}
        return tuple(
            served(name, boxes[name], style, self.told,
                    {what: met_ms[f"{name}: {what}"] for what in NAMES if f"{name}: {what}" in met_ms})
            for name, style in self.styles.items()
        )

    @property
    def varied(self) -> bool:
        """Whether some replica runs another model than the first model of its workload."""
        return any(replica.model for *_, replica in self.plan.replicas())

    @property
    def title(self) -> str:
        """The title, which names the instance."""
        return printable(f"Plan for {self.plan.instance}")

    @property
    def key(self) -> str:
        """The meaning of the abbreviations in the boxes."""
        shared = any(replica.sm_share < 1 for *_, replica in self.plan.replicas())
        parts = ["b batch size", "p processes", *(["SM% share of the SMs under MPS"] if shared else [])]
        parts += ["load% rate over predicted throughput (the bar)"] if self.told else []
        return " · ".join([*parts, "/s requests per second"])

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows to draw, at most ``most``."""
        return self.rows[:self.most]

    @property
    def notes(self) -> list[str]:
        """Lines on what a drawing of many GPUs leaves out."""
        hidden = self.rows[self.most:]
        gpus = plural(sum(row.count for row in hidden), "more GPU")
        told = "an overview: GPUs with the same models on the same slices are drawn once, the most frequent first"
        return [*([told] if self.overview else []),
                *([f"and {gpus}, not drawn, in {plural(len(hidden), 'other arrangement')}"] if hidden else [])]

    @property
    def summary(self) -> str:
        """The numbers of GPUs, idle memory slots and idle compute slices, the cost, and the method, with its step that
        found the plan if that is known, in words. An overview also counts the workloads.
        """
        method = self.standing.method if self.standing else self.plan.method
        slots = sum(row.count * row.slots for row in self.rows)
        idle = sum(row.count * row.idle_slots for row in self.rows)
        compute = sum(row.count * row.idle_compute for row in self.rows)
        parts = [plural(self.plan.gpu_count, "GPU"), self._cost]
        parts += [plural(len({one.workload for *_, one in self.plan.replicas()}), "workload")] if self.overview else []
        parts += [f"{idle:,} of {plural(slots, 'memory slot')} idle"] if slots else []
        parts += [f"{plural(compute, 'compute slice')} idle"] if compute else []
        parts += [printable(f"method {method}")] if method else []
        return " · ".join(filter(None, parts))

    @property
    def _cost(self) -> str:
        """The price per hour of the GPUs in words; empty if the price of one GPU is unknown."""
        cost = cost_per_hour(self.instance, self.plan) if self.instance else None
        return "" if cost is None else f"{cost:,.2f} $ per hour"

    @property
    def problems(self) -> list[str]:
        """Lines on the parts of the plan that cannot be drawn as they are."""
        return [
            printable(f"GPU {ranges(row.gpus, 6)}: {problem}")
            for row in self.rows
            for problem in chain(row.problems, *(piece.problems for piece in row.slices))
        ]
