"""From the processes that a mixed-counts solution puts on slices of a kind and level to the replicas of each slice."""

import numpy as np

from provision.models.plan import Replica


def packed(model):
    """Shared slices as (kind, replicas), or None when the processes do not pack into as many as counted.

    Parameters
    ----------
    model
        The MixedCounts model, solved.
    """
    slices, pieces = [], model.pieces()
    for (kind, level), mine in (pieces or {}).items():
        bins = _bins(model, kind, level, mine, round(model.m[kind, level].value() or 0))
        if bins is None:
            return None
        slices += [(kind, _replicas(model, kind, level, held)) for held in bins if held]
    return None if pieces is None or any(replicas is None for _, replicas in slices) else slices


def _bins(model, kind, level, pieces, number):
    """Processes packed first-fit decreasing into a number of slices: utilisation, memory, MPS clients."""
    most = np.array([model.levels[level].capacity, model.memory_gib(kind), model.clients(kind, level)])
    busy, memory_gib = model.shared.busy[:, kind, level] * model.rate_rps, model.shared.memory_gib[:, kind, level]
    sizes = [np.array([busy[w] * part, memory_gib[w], 1.0]) for w, part in pieces]
    used, held = np.zeros((number, 3)), [[] for _ in range(number)]
    for at in sorted(range(len(pieces)), key=lambda at: -(sizes[at] / most).max()):
        fits = np.flatnonzero((used + sizes[at] <= most).all(axis=1))
        if not len(fits):
            return None
        fullest = fits[np.argmax((used[fits] / most).sum(axis=1))]
        used[fullest] += sizes[at]
        held[fullest].append(pieces[at])
    return held


def _replicas(model, kind, level, held):
    """Replicas of one slice: a workload's processes together, in groups no larger than were measured.

    A replica without neighbours runs as the workload's best segment; where that does not carry the rate, every process
    is a replica. None when there is only one, and it does not carry the rate.
    """
    by_workload = {w: [part for one, part in held if one == w] for w in sorted({w for w, _ in held})}
    groups = [(w, group) for w, parts in by_workload.items() for group in _groups(model, kind, w, parts)]
    if len(groups) == 1:
        (w, group), segments = groups[0], model.segments
        if segments.batch[w, kind] and segments.throughput_rps[w, kind] >= sum(group) * model.rate_rps[w]:
            return (_replica(model, w, segments.batch[w, kind], segments.processes[w, kind], group),)
        groups = [(w, [part]) for part in group]
    if len(groups) == 1:
        return None
    return tuple(_replica(model, w, model.shared.batch[w, kind, level], len(group), group) for w, group in groups)


def _groups(model, kind, w, parts):
    """A workload's processes on a slice as replicas: one each where it asks for several replicas."""
    workload = model.instance.workloads[w]
    gpu = model.instance.fleet[model.segments.kinds[kind].entry].gpu
    network = model.instance.sharing_of(gpu, [workload.model]).models[workload.model].coefficients
    size = 1 if workload.min_replicas > 1 else network.max_processes
    return [parts[at : at + size] for at in range(0, len(parts), size)]


def _replica(model, w, batch, processes, group):
    rate_rps = float(sum(group) * model.rate_rps[w])
    return Replica(workload=model.instance.workloads[w].name, batch=int(batch), processes=int(processes),
                   rate_rps=rate_rps)
