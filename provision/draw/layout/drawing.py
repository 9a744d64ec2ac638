"""A plan as it is drawn everywhere, in the terminal, as a picture and as a page: its rows, workloads and texts."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from provision.draw.layout.boxes import ReplicaBox, Row, styles
from provision.draw.layout.rows import NAMES, Served, arrangement, by_model, gpus_alike, likeness, row_of, served
from provision.draw.verdict import Standing
from provision.draw.words import plural, printable, ranges
from provision.models.plans.plan import Plan
from provision.models.problem.instance import Instance
from provision.models.problem.objective import cost_per_hour

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
