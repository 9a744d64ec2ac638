"""Operating points of workloads that share whole GPUs: every workload takes one point, of one model, on one GPU.

That is the rule of iGniter and InSS: bounds are valid for plans with one replica per workload and SM shares in whole
units. The data is iGniter's (`igniter_points`) or co-location's (`colocated_points`). For max_throughput all points are
kept that carry the rate alone, since a point that is slower may carry more.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.memory import SharedMemoryData
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload


@dataclass(frozen=True)
class Points(ABC):
    """Operating points of one workload on a whole GPU of one fleet entry, as arrays (points,).

    Attributes
    ----------
    model
        Index into the workload's models.
    batch, units, memory_gib
        Batch size, units of the SMs, memory; 0 where it is not known.
    rps
        Requests/s that the point carries alone on a GPU, the most that it ever carries.
    load_ms, room_ms
        The time in ms for which a batch is loaded before it occupies its process, and the longest time in ms for which
        it may occupy the process if SLO and planned rate are to be kept.
    demand
        (resources, points) what a replica at this point adds to the demands that slow its neighbours.
    """

    model: Floats
    batch: Floats
    units: Floats
    memory_gib: Floats
    rps: Floats
    load_ms: Floats
    room_ms: Floats
    demand: Floats

    def __len__(self) -> int:
        return len(self.batch)

    def beside(self, at: Ints, count: int, others: Floats) -> tuple[Bools, Floats]:
        """Two arrays: whether points keep SLO and planned rate on a GPU with ``count`` replicas, and the requests/s
        that they carry there.

        ``at`` are indices of points, of any shape; ``others`` (resources, ...) are the sums of the neighbours' demands.
        """
        hold_ms = self.hold_ms(at, count, others)
        return hold_ms <= self.room_ms[at] * (1 + TOLERANCE), 1000 * self.batch[at] / hold_ms

    @abstractmethod
    def hold_ms(self, at: Ints, count: int, others: Floats) -> Floats:
        """For how many ms a batch occupies its process; the arguments are those of ``beside``."""


Kind = TypeVar("Kind", bound=Points)


def joined(tables: Sequence[Kind]) -> Kind | None:
    """The Points of several models of a workload as one; None if there are none."""
    if not sum(map(len, tables)):
        return None
    columns: dict[str, Any] = {}
    for field in fields(tables[0]):
        parts = [getattr(one, field.name) for one in tables]
        if isinstance(parts[0], tuple):
            columns[field.name] = type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))
        else:
            columns[field.name] = np.concatenate(parts, -1) if isinstance(parts[0], np.ndarray) else parts[0]
    return type(tables[0])(**columns)


def longest_hold_ms(instance: Instance, workload: Workload, batch: Floats, load_ms: Floats) -> Floats:
    """The longest time in ms for which a batch may occupy its process if SLO and planned rate are to be kept, within
    the verifier's tolerances.
    """
    rule, planned = instance.policy.rule_for(workload), instance.planned_rps(workload) / (1 + TOLERANCE)
    with np.errstate(divide="ignore"):
        return rule.room_ms(batch, planned, load_ms, instance.budget_ms(workload) * (1 + TOLERANCE))


def choices(data: SharedMemoryData, model: str, units: int, max_batch: int, mps: bool) -> tuple[Ints, Ints, Floats]:
    """Every batch size and number of units of a model, and the memory of each; without MPS it has all units."""
    sizes = np.arange(1, max_batch + 1)
    batch, many = (axis.ravel() for axis in np.meshgrid(sizes, np.arange(1 if mps else units, units + 1)))
    known = np.array([data.stated[model].memory_gib(size) or 0.0 for size in sizes.tolist()])
    return batch, many, known[batch - 1]


def undominated(costs: Floats) -> Ints:
    """The indices of the rows of ``costs`` (points, criteria) that no other row dominates; less is better. Of equal
    rows, one is kept.
    """
    kept: list[int] = []
    for row in np.lexsort(costs.T[::-1]):  # a row comes after all rows that dominate it
        if not kept or not (costs[kept] <= costs[row]).all(axis=1).any():
            kept.append(int(row))
    return np.sort(np.array(kept, int))
