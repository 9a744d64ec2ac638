"""Counts how much the replacement of a running plan by another plan disturbs it, from the two plans alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from provision.models.plans.plan import Plan, PlannedGpu, Replica


class Disturbance(NamedTuple):
    """The numbers of changes from one plan to another.

    ``slices_destroyed`` and ``slices_created`` count MIG instances; a GPU without MIG counts as one slice.
    ``replicas_started`` counts replicas whose server processes start, ``batch_changes`` replicas whose processes keep
    running with another batch size.
    """

    slices_destroyed: int
    slices_created: int
    replicas_started: int
    batch_changes: int
    gpus_added: int
    gpus_removed: int

    @property
    def moved(self) -> int:
        """Slices destroyed plus replicas started: the changes whose cost replanning weighs."""
        return self.slices_destroyed + self.replicas_started


def disturbance(before: Plan, after: Plan) -> Disturbance:
    """The Disturbance if the plan ``before`` is replaced by the plan ``after``.

    GPUs of the two plans are matched so that the fewest slices and replicas change.

    Parameters
    ----------
    before, after
        The plan that runs, and the new plan.
    """
    pairs = matched(before.gpus, after.gpus)
    destroyed = created = started = batches = 0
    for old, new in pairs:
        held = places_of(before.gpus[old]) if old is not None else {}
        wanted = places_of(after.gpus[new]) if new is not None else {}
        destroyed += len(held.keys() - wanted.keys())
        created += len(wanted.keys() - held.keys())
        for place, replicas in wanted.items():
            same = _same(held.get(place, ()), replicas)
            started += len(replicas) - same
            batches += same - _same(held.get(place, ()), replicas, batch=True)
    added, removed = (sum(pair[side] is None for pair in pairs) for side in (0, 1))
    return Disturbance(destroyed, created, started, batches, added, removed)


def going_on(before: Plan, after: Plan) -> set[tuple[int, int]]:
    """The slices of the plan ``after`` whose replicas all keep running, as pairs (index of the GPU, index of the
    slice).
    """
    found = set()
    for old, new in matched(before.gpus, after.gpus):
        if old is not None and new is not None:
            held = places_of(before.gpus[old])
            for position, piece in enumerate(after.gpus[new].slices):
                if _same(held.get((piece.profile, piece.start), ()), piece.replicas) == len(piece.replicas):
                    found.add((new, position))
    return found


def places_of(gpu: PlannedGpu) -> dict[tuple[str, int], tuple[Replica, ...]]:
    """The replicas of every slice of a GPU, by (profile, start) of the slice."""
    return {(piece.profile, piece.start): piece.replicas for piece in gpu.slices}


def matched(before: Sequence[PlannedGpu], after: Sequence[PlannedGpu]) -> list[tuple[int | None, int | None]]:
    """Pairs (index of a GPU before, index of a GPU after) of the same type and, where all stand on nodes, of the same
    node; the partner of an added or removed GPU is None. The matching keeps the most slices and replicas.
    """
    pairs: list[tuple[int | None, int | None]] = []
    on_nodes = all(gpu.node is not None for gpu in (*before, *after))
    kinds = [[(gpu.gpu, gpu.mig, gpu.node if on_nodes else None) for gpu in gpus] for gpus in (before, after)]
    for kind in sorted({*kinds[0], *kinds[1]}):
        old, new = ([at for at, one in enumerate(each) if one == kind] for each in kinds)
        held, wanted = [_parts(before[at]) for at in old], [_parts(after[at]) for at in new]
        gain = np.array([[len(one & other) for other in wanted] for one in held]).reshape(len(old), len(new))
        rows, columns = linear_sum_assignment(gain, maximize=True)
        pairs += [(old[row], new[column]) for row, column in zip(rows, columns, strict=True)]
        pairs += [(old[row], None) for row in set(range(len(old))) - set(rows.tolist())]
        pairs += [(None, new[column]) for column in set(range(len(new))) - set(columns.tolist())]
    return pairs


def _parts(gpu: PlannedGpu) -> set[tuple[Any, ...]]:
    """The slices and replicas of a GPU as a set of keys; equal replicas are numbered, so that each has its own key."""
    parts: set[tuple[Any, ...]] = {(place,) for place in places_of(gpu)}
    for place, replicas in places_of(gpu).items():
        counts = Counter(map(_key, replicas))
        parts |= {(place, key, number) for key, count in counts.items() for number in range(count)}
    return parts


def _same(before: Sequence[Replica], after: Sequence[Replica], batch: bool = False) -> int:
    """The number of replicas that keep running; with ``batch`` only those that keep their batch size count."""
    kept = Counter(_key(one, batch) for one in before) & Counter(_key(one, batch) for one in after)
    return sum(kept.values())


def _key(replica: Replica, batch: bool = False) -> tuple[Any, ...]:
    """The properties in which two replicas must agree so that one can continue as the other; with ``batch`` also the
    batch size.
    """
    return replica.workload, replica.model, replica.processes, replica.sm_share, replica.batch if batch else 0
