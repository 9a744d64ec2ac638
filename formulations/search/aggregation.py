"""Aggregation for large instances: similar demands are made equal, which makes them easier for bounds or harder for
plans.

Workloads with the same models and replica limits are sorted by SLO and rate and cut into chunks. If all workloads of a
chunk get its longest SLO and least rate, the result is a relaxation. If they get its shortest SLO and highest rate, it
is a restriction.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from provision.formulations.search.problem import Group


def rounded(groups: Sequence[Group], target: int, up: bool) -> list[Group]:
    """Merge groups until about ``target`` groups are left. Groups with a limit per GPU are not merged.

    Parameters
    ----------
    groups
        The groups of an instance.
    target
        The number of groups to aim at.
    up
        Whether demands become harder (for plans) rather than easier (for bounds).
    """
    share = target / max(len(groups), 1)
    if share >= 1:
        return list(groups)
    alike: dict[object, list[Group]] = {}
    for group in groups:
        limited = group.cap_rps if np.isfinite(group.cap_rps) else None
        alike.setdefault((group.models, group.least, group.most, limited), []).append(group)
    found = []
    for (_, _, _, limited), near in alike.items():  # type: ignore[misc]
        found += near if limited is not None else [_merged(chunk, up) for chunk in _chunks(near, share)]
    return found


def _chunks(groups: Sequence[Group], share: float) -> list[list[Group]]:
    """Cut groups into chunks of similar SLO and rate, with about as many cuts along SLOs as along rates."""
    slos = sorted({group.slo_ms for group in groups})
    bins = np.array_split(np.array(slos), min(len(slos), int(np.sqrt(len(groups) * share)) + 1))
    chunks = []
    for chosen in bins:
        near = sorted((group for group in groups if chosen[0] <= group.slo_ms <= chosen[-1]),
                      key=lambda group: group.rate_rps)
        ends = np.linspace(0, len(near), max(round(len(near) * share), 1) + 1).astype(int)
        chunks += [near[start:end] for start, end in pairwise(ends) if end > start]
    return chunks


def _merged(chunk: Sequence[Group], up: bool) -> Group:
    """One group of all workloads of a chunk: as hard as the hardest of them if ``up``, else as easy as the easiest."""
    slos, rates = [group.slo_ms for group in chunk], [group.rate_rps for group in chunk]
    members = tuple(member for group in chunk for member in group.members)
    slo_ms, rate_rps = (min(slos), max(rates)) if up else (max(slos), min(rates))
    return chunk[0]._replace(slo_ms=slo_ms, rate_rps=rate_rps, members=members)
