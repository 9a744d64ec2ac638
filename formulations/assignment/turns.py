"""Patterns of whole GPUs on which replicas take turns (gpu-lets).

With the latency rule ``half_slo`` all patterns are listed, if there are few enough: every replica runs one batch per
duty cycle, whatever rate is routed to it. Otherwise only some patterns are listed, whose replicas carry the whole rates
of their workloads. Bounds then come from a relaxation: each request takes at least the least part of a GPU's time that
any share and batch size allow.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, islice

import numpy as np

from provision.formulations.assignment.network import SharedSliceBound
from provision.formulations.assignment.patterns import PatternReplica, SlicePattern, clients_of
from provision.formulations.pricing.listing import TooManyError, undominated
from provision.formulations.pricing.temporal.batches import largest_batches
from provision.formulations.pricing.temporal.listing import listing
from provision.formulations.pricing.temporal.tables import Part, TurnTables
from provision.formulations.search.problem import Problem, groups_of
from provision.formulations.search.segments import SliceType
from provision.models.base.clock import Deadline
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.gpulets import Gpulets
from provision.models.problem.instance import Instance

MOST_LISTED = 6
"""The most workloads for which all patterns are listed; with seven there are about a million patterns."""
MOST_PATTERNS = 20_000
"""The most patterns that are listed when a running plan is replanned: its replicas may stay as they are."""
MOST_SETTLED = 300
"""The most loads of a GPU that are tried if not all patterns can be listed."""

Running = Mapping[tuple[int, int, float], int]
"""The most running replicas of a GPU that may go on, by workload, model and SM share."""


def turns_of(instance: Instance, slice_type: SliceType) -> Gpulets | None:
    """The data by which replicas take turns on a slice type; None if there is none."""
    gpu = instance.fleet[slice_type.entry].gpu
    files = (data for data in instance.performance if data.gpu == gpu and isinstance(data, Gpulets))
    return next(files, None) if slice_type.profile == WHOLE else None


def every_pattern(instance: Instance, slice_type: SliceType, data: Gpulets, running: Running, until: Deadline
                  ) -> list[SlicePattern]:
    """List the undominated patterns.

    Raises
    ------
    TooManyError
        If they cannot be listed: feasibility depends on the rates, there are too many, or the deadline comes first.
    """
    groups = [group._replace(members=(one,)) for group in groups_of(instance) for one in group.members]
    at = {group.members[0]: number for number, group in enumerate(groups)}
    going = {(at[workload], model, share): many for (workload, model, share), many in running.items() if workload in at}
    found = listing(Problem(instance, groups), slice_type, data, going, until)
    if found is None:
        raise TooManyError
    kept = np.arange(len(found.rps))
    if not going:
        asked = np.array([group.asked_rps for group in groups])
        features = [np.minimum(found.rps / asked, 1), -found.number, -found.replicas]
        kept = undominated(np.column_stack(features), until=until)
    elif len(kept) > MOST_PATTERNS:
        raise TooManyError
    patterns = []
    for row in kept.tolist():
        members, rps = found.rated(row)
        patterns.append(SlicePattern(tuple(
            PatternReplica(groups[one.group].members[0], one.run.model, one.run.batch, one.run.processes,
                           one.run.sm_share, rate, one.run.turn)
            for one, rate in zip(members, rps, strict=True)), sum(rps)))
    return patterns


def shared(instance: Instance, slice_type: SliceType, until: Deadline) -> tuple[list[SlicePattern], bool]:
    """Patterns of a slice type on which replicas take turns, and whether they are all that a plan may need. If they are
    not all listed at the deadline, some are.
    """
    data = turns_of(instance, slice_type)
    if data is None:
        return [], True
    if len(instance.workloads) <= MOST_LISTED:
        with suppress(TooManyError):
            return every_pattern(instance, slice_type, data, {}, until), True
    return _whole_rates(instance, slice_type, data), False


def relaxed(instance: Instance, slice_type: SliceType) -> SharedSliceBound | None:
    """The bound on GPUs on which replicas take turns; None if no data describes that.

    On a part with the share s of a GPU, a request in a batch of b takes at least the time t(b, s) / b of the part. The
    parts of a GPU are busy for at most all of the time, and their shares add up to 1; so over all replicas the sum of
    rate * s * t(b, s) / b is at most 1.
    """
    data = turns_of(instance, slice_type)
    if data is None:
        return None
    time, most = np.full(len(instance.workloads), np.inf), np.zeros(len(instance.workloads))
    for w, workload in enumerate(instance.workloads):
        planned = instance.planned_rps(workload)
        for model in (data.models[name] for name in workload.models if name in data.models):
            for share in {one for split in data.splits for one in split}:
                for batch in data.batches:
                    each_ms = model.execution_ms(batch, share, data.scaling) / batch
                    time[w] = min(time[w], planned * share * each_ms / 1000)
                    most[w] = max(most[w], 1000 / each_ms / planned if planned else 1.0)
    return SharedSliceBound(time, most, clients_of(instance.fleet[slice_type.entry], WHOLE))


def _whole_rates(instance: Instance, slice_type: SliceType, data: Gpulets) -> list[SlicePattern]:
    """Some patterns whose replicas carry the whole rates of their workloads."""
    known = [w for w, one in enumerate(instance.workloads) if one.model in data.models]
    workloads = [instance.workloads[w] for w in known]
    tables = TurnTables(data, [one.model for one in workloads], [instance.budget_ms(one) for one in workloads],
                        [instance.planned_rps(one) for one in workloads], instance.shared_rule)
    clients, patterns = clients_of(instance.fleet[slice_type.entry], WHOLE), []
    for parts in islice(_loads(tables, len(known)), MOST_SETTLED):
        if sum(len(load) for _, load in parts) <= clients and tables.settle(parts) is not None:
            patterns.append(_pattern(tables, known, parts))
    return patterns


def _loads(tables: TurnTables, workloads: int) -> Iterator[Sequence[Part]]:
    """Yield loads of a GPU whose parts serve disjoint sets of workloads; loads with many workloads come first."""
    rates = tables.rates.tolist()
    splits = [[tables.shares.index(share) for share in split] for split in tables.data.splits]
    for many in range(workloads, 0, -1):
        for chosen in combinations(range(workloads), many):
            for split in splits:
                for parts in _divided(chosen, len(split)):
                    yield [(share, tuple((w, rates[w]) for w in part))
                           for share, part in zip(split, parts, strict=True) if part]


def _divided(chosen: Sequence[int], parts: int) -> Iterator[Sequence[Sequence[int]]]:
    """Yield all ways to divide workloads among one or two parts of a GPU; no part stays empty."""
    if parts == 1:
        yield [chosen]
        return
    for first in range(1, len(chosen)):
        for one in combinations(chosen, first):
            yield [one, [w for w in chosen if w not in one]]


def _pattern(tables: TurnTables, known: Sequence[int], parts: Sequence[Part]) -> SlicePattern:
    """The pattern of a GPU whose parts have the given loads, with the largest batches that keep every SLO and rate.
    ``known`` maps the workloads of the tables to those of the instance.
    """
    replicas = []
    for turn, ((share, load), sizes) in enumerate(zip(parts, largest_batches(tables, parts), strict=True)):
        replicas += [
            PatternReplica(known[w], 0, int(tables.batches[size]), 1, tables.shares[share], rate,
                           turn if len(load) > 1 else None)
            for (w, rate), size in zip(load, sizes, strict=True)
        ]
    return SlicePattern(tuple(replicas), sum(one.capacity_rps for one in replicas), routed=True)
