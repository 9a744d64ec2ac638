"""Nexus' squishy bin packing (SOSP 2019, Algorithm 1), in the form in which gpu-lets runs it (ATC 2022, sections 2.2
and 3.1).

From the paper: ScheduleSaturate gives a workload as many whole machines as the workload can saturate with the largest
batch of which two executions fit into the SLO. ScheduleResidue gives the rest of the rate the largest batch that can be
gathered and run within the SLO. It sorts these residues by occupancy (execution time divided by duty cycle), and merges
each residue into the machine on which the merged occupancy is largest, at the shorter of the two duty cycles; if none
fits, the residue gets a new machine. For ``nexus`` a machine is a whole GPU, on which one workload runs at a time. For
``nexus-halves`` both halves of every GPU are independent machines, as in gpu-lets' section 3.1, without interference;
if the data predicts that the plan misses an SLO, the outcome is ``unknown``, with this reason.

Three points are guessed: batch sizes are those of the data, and a merged batch is rounded up to the next of these
sizes; a rate that is too low to gather even the smallest batch gets the longest duty cycle that its SLO leaves; a
machine has memory in proportion to its share.
"""

from dataclasses import dataclass

import numpy as np

from provision.formulations.pricing.temporal.tables import ALONE
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.segments import best_segments
from provision.heuristics.gpulets.gpulets import RESERVE, chosen, planning_tables
from provision.heuristics.gpulets.plans import FEATURES, GpuletTables, outcome
from provision.models.base.errors import UnsupportedError
from provision.models.base.tolerances import STRICT
from provision.models.hardware.gpu import WHOLE
from provision.models.problem.instance import Instance
from provision.models.problem.method import Method
from provision.models.problem.search import Outcome, Search

DONE = 1e-9
"""A rest of at most this fraction of a workload's rate counts as assigned."""


@dataclass(frozen=True)
class _Node:
    """A machine: its requests/s by workload, its duty cycle in ms, and the fraction of the duty cycle that is busy."""

    load: dict[int, float]
    duty_ms: float
    occupancy: float


@dataclass(frozen=True)
class _Variant:
    """A variant of Nexus, callable as the ``run`` of a Method. It uses every GPU as ``parts`` machines of equal size.

    A call raises UnsupportedError if the GPUs cannot be split into so many parts.
    """

    name: str
    parts: int

    def __call__(self, instance: Instance, control: Search) -> Outcome:
        refused = proved_infeasible(instance, best_segments(instance))
        if refused:
            return refused
        tables = planning_tables(instance, chosen(control), interference=False)
        if 1 / self.parts not in tables.shares:
            raise UnsupportedError(f"method {self.name} cannot plan GPUs that no split halves; use --method nexus")
        share = tables.shares.index(1 / self.parts)
        slow = [one.name for one, rps in zip(instance.workloads, tables.capacity_alone[share], strict=True) if not rps]
        if slow:
            return outcome(tables, None, self.name, f"half a GPU never meets the SLO of {', '.join(slow)}")
        nodes = _Packing(tables, share, self.parts).nodes()
        loads = [(share, tuple(node.load.items())) for node in nodes]
        gpus = [loads[at : at + self.parts] for at in range(0, len(loads), self.parts)]
        return outcome(tables, gpus, self.name)


class _Packing:
    """Squishy bin packing onto machines of one share."""

    def __init__(self, tables: GpuletTables, share: int, parts: int) -> None:
        self.tables, self.time_ms = tables, tables.beside(share, ALONE)
        self.memory_gib = tables.gpu.slice_memory_gib(WHOLE) / parts
        self.capacity = tables.capacity_alone[share]

    def nodes(self) -> list[_Node]:
        """All machines; saturated machines come first."""
        machines = np.floor(self.tables.rates / self.capacity * (1 + DONE)).astype(int)
        left = self.tables.rates - machines * self.capacity
        saturated = np.repeat(np.arange(len(left)), machines).tolist()
        full = [_Node({one: float(self.capacity[one])}, 0.0, 1.0) for one in saturated]
        open_ = np.flatnonzero(left > DONE * self.tables.rates).tolist()
        rest = [self._residue(one, float(left[one])) for one in open_]
        packed: list[_Node] = []
        for node in sorted(rest, key=lambda node: -node.occupancy):
            merged = [(self._merged(other, node), at) for at, other in enumerate(packed)]
            best, at = max(((one, at) for one, at in merged if one), key=lambda pair: pair[0].occupancy,
                           default=(node, len(packed)))
            packed[at : at + 1] = [best]
        return full + packed

    def _residue(self, workload: int, rate: float) -> _Node:
        """The machine for the rest of a workload's rate."""
        time_ms, allowed_ms = self.time_ms[workload], self.tables.allowed_ms[workload]
        gather_ms = np.maximum(1000 * self.tables.batches / rate, time_ms)
        fits = np.flatnonzero(time_ms + gather_ms <= allowed_ms)
        size = fits[-1] if len(fits) else 0
        duty_ms = min(float(gather_ms[size]), float(allowed_ms - time_ms[size]))
        return _Node({workload: rate}, duty_ms, float(time_ms[size]) / duty_ms)

    def _merged(self, one: _Node, other: _Node) -> _Node | None:
        """The machine with both loads at the shorter duty cycle; None if an SLO would be missed, or the cycle or the
        memory is too small.
        """
        load, duty_ms = one.load | other.load, min(one.duty_ms, other.duty_ms)
        who, rates = np.array(list(load)), np.array(list(load.values()))
        size = np.searchsorted(self.tables.batches, rates * duty_ms / 1000 * (1 - STRICT))
        if size.max() == len(self.tables.batches) or self.tables.memory_gib[who].sum() > self.memory_gib:
            return None
        time_ms = self.time_ms[who, size]
        holds = time_ms.sum() <= duty_ms and (duty_ms + time_ms <= self.tables.allowed_ms[who]).all()
        return _Node(load, duty_ms, float(time_ms.sum() / duty_ms)) if holds else None


def _method(variant: _Variant, summary: str) -> Method:
    return Method(
        name=variant.name,
        summary=summary,
        run=variant,
        source="Nexus, SOSP 2019, Algorithm 1",
        features=FEATURES,
        parameters=RESERVE,
    )


METHODS = (
    _method(_Variant("nexus", 1), "squishy bin packing: turns on whole GPUs"),
    _method(_Variant("nexus-halves", 2), "squishy bin packing onto halves of GPUs as if they were independent"),
)
