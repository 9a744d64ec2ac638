"""Describes what slices may hold as flat arrays for kernels: segments, and the settings at which replicas share slices.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from provision.formulations.pricing.mps.laws import GPU
from provision.formulations.pricing.mps.tables import POINT, PointTables
from provision.formulations.pricing.oracle import UNLIMITED, Running, Setting, Way, replica_of, settings_of
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import SliceType, partitions_of
from provision.heuristics.core.schedule import SCHEDULE, Schedule
from provision.models.base.arrays import Bools, Floats, Ints, Records
from provision.models.base.clock import Deadline
from provision.models.base.objects import uncollected
from provision.models.base.tolerances import LOOSE, TOLERANCE
from provision.models.plans.plan import Replica
from provision.models.problem.instance import Instance
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import LEAST_RPS

NONE = -1
"""Stands for no index in arrays of indices."""
MARGIN = 1 - TOLERANCE
"""The part of their capacity for which segments are planned; the rest leaves room for rounding."""
SETTING = np.dtype([
    ("slice_type", np.int64),
    ("use", np.float64),        # the utilisation that it allows
    ("processes", np.int64),    # the processes that it allows
    ("memory_gib", np.float64),
    ("workloads", np.int64),    # how many workloads must share it
    ("points", np.int64),       # index of its table among the joined tables of operating points; or NONE
    ("first", np.int64),        # index of its first way
    ("end", np.int64),          # index after its last way
    ("first_pattern", np.int64),
    ("end_pattern", np.int64),
])
"""A setting: the limits of one shared slice, and the ways in which replicas can run there
(`provision.formulations.pricing.oracle`).
"""
WAY = np.dtype([
    ("row", np.int64),
    ("role", np.int64),
    ("processes", np.int64),
    ("limit", np.int64),        # how often a slice may have it
    ("apart", np.int64),        # 1 if each is a separate replica, else 0
    ("most", np.float64),       # the most part of the row's planned rate that it carries
    ("least", np.float64),      # the least part that it carries
    ("busy", np.float64),       # the part of the slice that the whole rate would take
    ("memory_gib", np.float64),
])
"""One way to run a replica of a row (see ROW) on a slice with some setting (see SETTING): its role, what it takes of
the slice, and the rates that it can carry.
"""
ROW = np.dtype([
    ("cap", np.float64),        # the part of the rate that one GPU may carry
    ("least", np.int64),        # the fewest replicas
    ("most", np.int64),         # the most replicas
])
"""A row: one workload of a group, or one part of a workload."""
ROLE = np.dtype([
    ("order", np.int64),        # the roles in chains, each from its hardest to its easiest role
    ("rank", np.int64),         # the position of the role in this order
    ("easiest", np.int64),      # the position of the easiest role of its chain
])
"""A role among the others of its chain: if it finds no operating point on a slice, neither does a harder one."""


class SliceTables(NamedTuple):
    """The segments and the settings of a problem's rows, and the partitions of its fleet.

    Attributes
    ----------
    rows, settings, ways, roles
        Records of the types above.
    segment
        (rows, slice types), the part of the rate that a segment carries.
    price
        (rows, steps + 1), column k is the least price of replicas that carry k / steps of the rate, in GPUs of median
        price. Column 0 is about column 1: the smallest rest costs a replica, too.
    of_row
        (settings, rows + 1), the index of the first way of each row at each setting, and the end of the last row's.
    patterns
        (patterns, places), the roles of patterns, then NONE; the patterns of a setting are side by side.
    first, begin
        ``first`` has the arrays ``first`` of all tables of operating points, one below the other; narrower ones are
        padded with their last column. ``begin`` (tables + 1,) is the row at which the part of each table begins, and
        where the last part ends.
    points
        The operating points of all tables, one after the other, of which ``first`` has indices.
    gpu, limits
        The records of the tables' GPU types; and (tables, 2), ``limit`` and ``most`` of each table.
    partitions
        (partitions, 1 + places), the fleet entry of each partition, and the types of its slices, the largest first,
        then NONE.
    schedule
        The numbers that steer the search.
    """

    rows: Records
    settings: Records
    ways: Records
    roles: Records
    of_row: Ints
    segment: Floats
    price: Floats
    patterns: Ints
    first: Ints
    begin: Ints
    points: Records
    gpu: Records
    limits: Ints
    partitions: Ints
    schedule: Schedule


class SliceModel:
    """A problem as tables for kernels. It also turns entries of the tables into replicas of a plan.

    Parameters
    ----------
    problem
        The problem.
    until
        When the tables must be there. Raises TimeIsUpError if they are not.

    Attributes
    ----------
    rows
        (rows,), the workload of every row; ``groups`` has its group, and ``rate_rps`` its rate in requests/s.
    settings
        The settings of the tables, each with its slice type.
    way_of
        The way of each row of the tables' ``ways``.
    """

    @uncollected()
    def __init__(self, problem: Problem, until: Deadline) -> None:
        self.problem = problem
        self.rows = np.array([member for group in problem.groups for member in group.members], np.int64)
        sizes = [len(group.members) for group in problem.groups]
        self.groups = np.repeat(np.arange(len(sizes)), sizes)
        self.rate_rps = np.array([group.rate_rps for group in problem.groups], float)[self.groups]
        self.settings = list(_settings(problem, until))
        self.first_row = np.cumsum([0, *sizes])
        self.tables = self._tables(until)

    def _tables(self, until: Deadline) -> SliceTables:
        problem, instance = self.problem, self.problem.instance
        segments, groups = problem.segments, [problem.groups[at] for at in self.groups.tolist()]
        rate_rps = np.maximum(self.rate_rps, LEAST_RPS)
        segment = np.minimum(segments.throughput_rps[self.rows] / rate_rps[:, None] * MARGIN, 1)
        kinds, kind, row, at = self._each_row()
        self.way_of = [kinds[one] for one in kind.tolist()]
        until.check()
        ways, settings = _ways(kinds, kind, row, rate_rps), _settings_table(self.settings, at)
        until.check()
        each = at * len(groups) + row
        begins = np.arange(len(settings))[:, None] * len(groups) + np.arange(len(groups) + 1)
        price = _slice_prices(instance, segments.slice_types)
        taken = ways["busy"].copy()
        np.divide(ways["processes"] / settings["processes"][at], ways["most"], out=taken, where=taken <= 0)
        linear = np.array([way.run is not None and way.busy > 0 for way in kinds], bool)[kind]
        rows = np.zeros(len(groups), ROW)
        rows["cap"] = np.array([group.cap_rps for group in groups]) / rate_rps
        rows["least"] = [group.least for group in groups]
        rows["most"] = [min(group.most, UNLIMITED) for group in groups]
        partitions = partitions_of(instance, segments)
        points = [one.points for _, one in self.settings if one.points is not None]
        return SliceTables(
            rows=rows, settings=settings, ways=ways, roles=_chains(problem) if points else np.zeros(1, ROLE),
            of_row=np.searchsorted(each, begins),
            segment=np.ascontiguousarray(segment),
            price=_prices(segment, price, rows["cap"], ways, taken * price[settings["slice_type"][at]], linear),
            patterns=_padded([one for _, setting in self.settings for one in setting.patterns or ()]),
            **_joined(points),
            partitions=_padded([[int(entry), *np.repeat(np.arange(len(slots)), slots)[::-1].tolist()]
                                for entry, slots in zip(partitions.entry, partitions.slots, strict=True)]),
            schedule=SCHEDULE,
        )

    def _each_row(self) -> tuple[list[Way], Ints, Ints, Ints]:
        """All ways of the settings, which are for groups; and for every way of a row, by setting and row: the index of
        its way among these, its row, and its setting.
        """
        pairs = [(number, way) for number, (_, setting) in enumerate(self.settings) for way in setting.ways]
        kinds = [way for _, way in pairs]
        group = np.array([way.group for way in kinds], np.int64)
        many = np.diff(self.first_row)[group]
        kind = np.repeat(np.arange(len(kinds)), many)
        row = np.arange(len(kind)) + np.repeat(self.first_row[group] - np.cumsum(many) + many, many)
        at = np.array([number for number, _ in pairs], np.int64)[kind]
        order = np.lexsort((row, at))
        return kinds, kind[order], row[order], at[order]

    def running(self, setting: int, ways: Sequence[int]) -> Sequence[Running]:
        """The operating points of ways that are on a slice together, in the order in which they were added."""
        runs = [self.way_of[way].run for way in ways]
        known = [run for run in runs if run is not None]
        if len(known) == len(runs):
            return known
        held = self.settings[setting][1]
        left = [self.way_of[way].role for way in ways]
        pattern = tuple(left)
        if held.patterns is not None:  # one pattern has all their roles, and perhaps more
            asked = Counter(left)
            pattern = min((one for one in held.patterns if asked <= Counter(one)), key=len)
        found = None if held.running is None else held.running(pattern)
        assert found is not None, "a slice holds only what its way of sharing accepts"
        runs_of: dict[int, list[Running]] = {}
        for role, run in zip(pattern, found, strict=True):
            runs_of.setdefault(role, []).append(run)
        return [runs_of[role].pop() for role in left]

    def replica(self, way: int, run: Running, parts: Sequence[float]) -> Replica:
        """The replica of a way; ``parts`` are the parts of its row's rate, one for each time that the slice has the
        way.
        """
        row = int(self.tables.ways["row"][way])
        rate_rps = float(sum(parts) * self.rate_rps[row])
        run = run._replace(processes=run.processes * len(parts))
        return replica_of(self.problem.instance, int(self.rows[row]), run, rate_rps)


def _settings(problem: Problem, until: Deadline) -> list[tuple[int, Setting]]:
    """Every slice type with each of its settings that has ways.

    GPUs of another fleet entry of the same type have the same settings. Raises TimeIsUpError at the deadline.
    """
    entries = [problem.instance.fleet[one.entry] for one in problem.segments.slice_types]
    kinds = [(entry.gpu, entry.partitioned, one.profile)
             for entry, one in zip(entries, problem.segments.slice_types, strict=True)]
    found = [(other, setting) for at, setting in settings_of(problem, until) if setting.ways
             for other, kind in enumerate(kinds) if kind == kinds[at]]
    return sorted(found, key=lambda pair: pair[0])


def _ways(kinds: Sequence[Way], kind: Ints, row: Ints, rate_rps: Floats) -> Records:
    """Records of type WAY: for each of ``row``, the way ``kinds[kind]``, with rates as parts of the row's rate."""
    found = np.array([(0, one.role, 1 if one.run is None else one.run.processes, one.limit, one.apart, one.most_rps,
                       one.least_rps, one.busy, one.memory_gib) for one in kinds], WAY)[kind]
    found["row"] = row
    found["most"] /= rate_rps[row]
    found["least"] /= rate_rps[row]
    found["busy"] *= rate_rps[row]
    return found


def _settings_table(settings: Sequence[tuple[int, Setting]], of_ways: Ints) -> Records:
    """Records of type SETTING, from pairs (slice type, setting); ``of_ways`` are the settings of all ways, ascending.
    """
    ways = np.searchsorted(of_ways, np.arange(len(settings) + 1)).tolist()
    patterns = np.cumsum([0, *(len(one.patterns or ()) for _, one in settings)]).tolist()
    points = np.cumsum([0, *(one.points is not None for _, one in settings)]).tolist()
    return np.array([(slice_type, one.use, min(one.processes, UNLIMITED), one.memory_gib, one.workloads,
                      NONE if one.points is None else points[at], *ways[at: at + 2], *patterns[at: at + 2])
                     for at, (slice_type, one) in enumerate(settings)], SETTING)


def _padded(every: Sequence[Sequence[int]]) -> Ints:
    """(lists, the most numbers), lists of numbers, each filled up with NONE."""
    width = max(map(len, every), default=1)
    return np.array([[*one, *[NONE] * (width - len(one))] for one in every], np.int64).reshape(-1, width)


def _joined(tables: Sequence[PointTables]) -> dict[str, Any]:
    """The fields ``first``, ``begin``, ``points``, ``gpu`` and ``limits`` of SliceTables. One record has all tables, so
    that kernels are compiled once for any number of them.
    """
    offsets = np.cumsum([0, *(len(one.at) for one in tables)])
    width = max((one.first.shape[1] for one in tables), default=0)
    first = [np.pad(one.first + offset, ((0, 0), (0, width - one.first.shape[1])), "edge")
             for one, offset in zip(tables, offsets, strict=False)]
    return {
        "first": np.vstack([np.zeros((0, width), int), *first]), "begin": np.cumsum([0, *map(len, first)]),
        "points": np.concatenate([np.recarray(0, POINT), *(one.at for one in tables)]),
        "gpu": np.concatenate([np.recarray(0, GPU), *(one.gpu for one in tables)]),
        "limits": np.array([(one.limit, one.most) for one in tables], int).reshape(-1, 2)}


def _chains(problem: Problem) -> Records:
    """(roles,), records of type ROLE. The roles of a workload class are a chain, from the highest rate to the lowest.
    """
    found, numbers = np.zeros(len(problem.roles), ROLE), dict[object, int]()
    chain = np.array([numbers.setdefault(one.workload_class, len(numbers)) for one in problem.roles])
    found["order"] = np.argsort(chain, kind="stable")
    found["rank"] = np.argsort(found["order"])
    found["easiest"] = np.searchsorted(np.sort(chain), chain, "right") - 1
    return found


def _slice_prices(instance: Instance, slice_types: Sequence[SliceType]) -> Floats:
    """(slice types,), the price of a slice in GPUs of median price; a GPU costs at least ``SCHEDULE.least_price``."""
    weights = np.array([objective_of(instance).weight(entry) for entry in instance.fleet])
    least = SCHEDULE.least_price
    weights = np.maximum(weights / (np.median(weights) or 1.0), least) if weights.any() else np.ones(len(weights))
    part = [one.compute / gpu.type.compute_slices if (gpu := instance.fleet[one.entry]).partitioned else 1.0
            for one in slice_types]
    return np.array(part) * weights[[one.entry for one in slice_types]]


def _prices(segment: Floats, price: Floats, cap: Floats, ways: Records, cost: Floats, linear: Bools) -> Floats:
    """(rows, steps + 1), the ``price`` of SliceTables, by covering knapsacks.

    They assume slices of all types. Some may be used up, so prices always rise a little: every replica saves something.
    The rate of a row that nothing can carry costs about 1. ``segment`` is that of SliceTables, ``price`` (slice types,)
    is the price of a segment, and ``cap`` (rows,) the part that one GPU may carry. The whole rate costs ``cost``
    (ways,) if only this way carries it. A ``linear`` way costs as much as it carries, others as the most they can.
    """
    steps, (row, slice_type) = SCHEDULE.parts, np.nonzero(segment > 0)
    who = np.concatenate([row, ways["row"][~linear]])
    whole = np.concatenate([price[slice_type], (cost * ways["most"])[~linear]])
    carried = np.concatenate([segment[row, slice_type], ways["most"][~linear]])
    carried = np.minimum(carried, cap[who]) * steps * (1 + LOOSE)
    each, small = np.full(len(segment), np.inf), (carried > 0) & (carried < SCHEDULE.few)
    np.minimum.at(each, ways["row"][linear], cost[linear] / steps)
    np.minimum.at(each, who[small], whole[small] / carried[small])
    large = carried >= SCHEDULE.few
    who, whole, whole_steps = who[large], whole[large], np.minimum(carried[large], steps).astype(int)
    found = np.zeros((len(segment), steps + 1))
    for step in range(1, steps + 1):
        found[:, step] = each * step
        np.minimum.at(found[:, step], who, whole + found[who, np.maximum(step - whole_steps, 0)])
    found[:, 0] = found[:, 1]
    part = np.linspace(0, 1, steps + 1)
    found = np.where(np.isfinite(found), found, part)
    return found + SCHEDULE.rise * found[:, -1:] * part
