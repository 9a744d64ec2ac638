"""Exact pricing of patterns that carry rates on slices that closed networks share.

For each number P of processes on the slice, a depth-first search adds replicas in order of rising slice time. So no
later replica delays the others less than the shortest of those that may still be added. With this, the hold times of
all replicas are bounded from below, and a knapsack over processes bounds the value of the pattern.

Besides, n busy processes whose batches never take longer than a hold time take at least n S / hold of the slice's time,
and all together no more than all of it. This limit is priced (Lagrangian relaxation): at every price, the value less
the price of the time that is taken, plus the price of all time, bounds the value of the pattern. Without it, hold times
that are too short make the knapsack loose.
"""

import numpy as np

from provision.formulations.pricing.rates import GroupPrices
from provision.formulations.pricing.schedule import NETWORKS
from provision.formulations.pricing.shared_mig.rate_options import ASIDE, RateOptions
from provision.models.base.arrays import Floats, Ints
from provision.models.base.compiled import compiled, inner

MOST_STEPS, PARTS = NETWORKS.steps, NETWORKS.parts
"""Numbers that kernels read as constants."""


@compiled
def search(options: RateOptions, prices: GroupPrices, floor: float, nodes: int) -> tuple[Ints, float]:
    """Find the best pattern of at least two replicas if its value is above ``floor``, and bound the value of all.

    Parameters
    ----------
    options, prices
        The operating points, and the values of rates and replicas. The limits of rates are those of the points.
    floor
        The value that the pattern must exceed.
    nodes
        The most nodes to open. With 0, there is only the first bound.

    Returns
    -------
    tuple
        The points of the pattern, empty if none is found; and a number that no pattern's value exceeds.
    """
    most_processes = options.think_ms.shape[1]
    members = np.zeros(0, np.int64)
    roots, time_of, near = np.zeros(most_processes + 1), np.zeros(most_processes + 1), 0
    useful = np.flatnonzero((prices.per_rps[options.group] > 0) | (prices.bonus[options.group] > 0))
    least_ms = _least_slices(options, useful)
    none, offers = np.zeros(most_processes, np.int64), np.empty(len(useful))
    value, busy = _by_cell(options, prices, useful)
    for total in range(2, most_processes + 1):
        roots[total] = np.inf
        for turn in range(len(PARTS)):
            at = (near + turn) % len(PARTS)
            time = PARTS[at] * floor
            worth = _worth(options, useful, value, busy, total, time)
            bound = _bound(options, prices, useful, worth, least_ms, none, 0, 0, total, total, time, offers)
            if bound < roots[total]:
                roots[total], time_of[total], near = bound, time, at
            if bound <= floor:
                break
    target = floor
    for total in np.argsort(-roots):
        if roots[total] <= target:
            break
        if nodes <= 0:
            return members, max(target, roots[total])
        opened, best, found = _descend(options, prices, useful, value, busy, least_ms, total, time_of[total], target,
                                       nodes)
        members = found if len(found) else members
        if opened > nodes:
            return members, max(best, roots[total])
        nodes -= opened
        target = max(target, best)
    return members, target


@inner
def _descend(options: RateOptions, prices: GroupPrices, useful: Ints, value: Floats, busy: Floats, least_ms: Floats,
             total: int, time: float, floor: float, nodes: int) -> tuple[int, float, Ints]:
    """Search the patterns with ``total`` processes. Returns the nodes opened, more than ``nodes`` if the search did not
    come to its end; the highest value; and the points of the best pattern, none if its value is not above ``floor``.
    """
    worth = _worth(options, useful, value, busy, total, time)
    many, opened, best, members = len(useful), 0, floor, useful[:0].copy()
    chosen, left = np.zeros(total + 1, np.int64), np.zeros(total + 2, np.int64)
    place, scratch = np.zeros(total + 2, np.int64), np.empty((2, len(prices.per_rps)))
    most_with = np.zeros((total + 1, many))
    depth = 0
    left[0] = total
    _bound(options, prices, useful, worth, least_ms, chosen, 0, 0, total, total, time, most_with[0])
    while depth >= 0:
        if place[depth] >= many:
            depth -= 1
            if depth >= 0:
                place[depth] += 1
            continue
        at = place[depth]
        one = useful[at]
        if most_with[depth, at] <= best or options.processes[one] > left[depth]:
            place[depth] += 1
            continue
        opened += 1
        if opened > nodes:
            return opened, best, members
        chosen[depth] = one
        rest = left[depth] - options.processes[one]
        if rest == 0:
            reached = _value(options, prices, chosen, depth + 1, total, scratch) if depth else 0.0
            if reached > best:
                best, members = reached, chosen[: depth + 1].copy()
            place[depth] += 1
            continue
        bound = _bound(options, prices, useful, worth, least_ms, chosen, depth + 1, at, rest, total, time,
                       most_with[depth + 1])
        if bound <= best:
            place[depth] += 1
            continue
        left[depth + 1], place[depth + 1] = rest, at
        depth += 1
    return opened, best, members


@inner
def _by_cell(options: RateOptions, prices: GroupPrices, useful: Ints) -> tuple[Floats, Floats]:
    """The values of a replica by its hold time, and (useful points, cells) the least part of the slice's time that it
    takes.

    The values are (2, useful points, cells): that of a replica by itself, and that of one beside replicas of its group
    that carry all requests/s that count. They are minus infinity where the replica carries nothing.
    """
    cells = options.rps.shape[1]
    value, busy = np.full((2, len(useful), cells), -np.inf), np.zeros((len(useful), cells))
    for row in range(len(useful)):
        one = useful[row]
        group = options.group[one]
        for cell in range(cells):
            rps = options.rps[one, cell]
            if rps > 0:
                counts = min(rps, options.most_rps[group])
                value[1, row, cell] = options.beyond * rps + prices.bonus[group]
                value[0, row, cell] = value[1, row, cell] + (prices.per_rps[group] - options.beyond) * counts
                busy[row, cell] = options.processes[one] * options.slice_ms[one] / options.cell_ms[one, cell + 1]
    return value, busy


@inner
def _worth(options: RateOptions, useful: Ints, value: Floats, busy: Floats, total: int, time: float) -> Floats:
    """(2, useful points, cells) the highest value of a replica on a slice with ``total`` processes, less the price of
    its time, if its batches hold at least as long as the beginning of a cell; minus infinity where that is not allowed.
    """
    cells = options.rps.shape[1]
    worth = np.full((2, len(useful), cells + 1), -np.inf)
    for row in range(len(useful)):
        one = useful[row]
        last = _cell(options, one, options.think_ms[one, total - 1] + total * options.slice_ms[one])
        for cell in range(min(last, cells - 1), -1, -1):
            price = time * busy[row, cell]
            for which in range(2):
                worth[which, row, cell] = max(worth[which, row, cell + 1], value[which, row, cell] - price)
    return worth


@inner
def _cell(options: RateOptions, one: int, hold_ms: float) -> int:
    """The cell of a hold time, or the one before it if the hold time is at its beginning."""
    return max(int(np.searchsorted(options.cell_ms[one], hold_ms * (1 - ASIDE), side="right")) - 1, 0)


@inner
def _least_slices(options: RateOptions, useful: Ints) -> Floats:
    """(useful points, models) the shortest slice time of a point of each model from this point on."""
    least_ms = np.full((len(useful) + 1, len(options.longest_cycle_ms)), np.inf)
    for row in range(len(useful) - 1, -1, -1):
        least_ms[row] = least_ms[row + 1]
        least_ms[row, options.name[useful[row]]] = options.slice_ms[useful[row]]
    return least_ms


@inner
def _hold_ms(options: RateOptions, one: int, without: int, chosen: Ints, many: int, others: int, least_ms: Floats,
             total: int, most_ms: float) -> float:
    """A lower bound on the hold time of a point beside the first ``many`` of ``chosen`` and ``others`` further
    processes. Each of these is taken for the model that delays least; ``least_ms`` are the models' least slice times.

    ``without`` is the position of the point itself in ``chosen``, or negative. The iteration ends beyond ``most_ms``.
    """
    slice_ms = options.slice_ms[one]
    own_ms = options.think_ms[one, total - 1] + options.processes[one] * slice_ms
    hold_ms = own_ms
    for _ in range(MOST_STEPS):
        longer_ms = own_ms
        for place in range(many):
            if place != without:
                other = chosen[place]
                visits = 1 + np.floor(hold_ms / options.cycle_ms[other] * (1 - ASIDE))
                longer_ms += options.processes[other] * min(slice_ms, options.slice_ms[other] * visits)
        if others > 0:
            delay_ms = slice_ms
            for name in range(len(least_ms)):
                if least_ms[name] < delay_ms:
                    visits = 1 + np.floor(hold_ms / options.longest_cycle_ms[name] * (1 - ASIDE))
                    delay_ms = min(delay_ms, least_ms[name] * visits)
            longer_ms += others * delay_ms
        if longer_ms <= hold_ms:
            break
        hold_ms = longer_ms
        if hold_ms > most_ms:
            break
    return hold_ms


@inner
def _bound(options: RateOptions, prices: GroupPrices, useful: Ints, worth: Floats, least_ms: Floats, chosen: Ints,
           many: int, first: int, rest: int, total: int, time: float, offers: Floats) -> float:
    """An upper bound on the value of a pattern that has the first ``many`` of ``chosen``, and ``rest`` further
    processes of the useful points from ``first`` on. Such a bound for each point that comes next is written to
    ``offers`` (useful points,).
    """
    groups, cells = len(prices.per_rps), options.rps.shape[1]
    had, counted, most = np.zeros((2, groups)), np.empty(groups), 0
    for group in range(groups):
        counted[group] = total if prices.bonus[group] <= 0 else min(prices.counted[group], total)
        had[1, group] = (prices.per_rps[group] - options.beyond) * options.total_rps[group]
    offers[:] = -np.inf
    for place in range(many):
        one = chosen[place]
        row = np.searchsorted(useful, one)
        end_ms = options.cell_ms[one, cells]
        hold_ms = _hold_ms(options, one, place, chosen, many, rest, least_ms[first], total, end_ms)
        cell = _cell(options, one, hold_ms)
        if cell >= cells or worth[0, row, cell] == -np.inf:
            return -np.inf
        group = options.group[one]
        for which in range(2):
            had[which, group] += worth[which, row, cell] - (0.0 if counted[group] >= 1 else prices.bonus[group])
        counted[group] -= 1
    own, values = np.full((2, groups, rest + 1), -np.inf), np.full(len(useful), -np.inf)
    for row in range(first, len(useful)):
        one = useful[row]
        processes = options.processes[one]
        if processes > rest:
            continue
        end_ms = options.cell_ms[one, cells]
        hold_ms = _hold_ms(options, one, -1, chosen, many, rest - processes, least_ms[first], total, end_ms)
        cell = _cell(options, one, hold_ms)
        if cell >= cells or worth[0, row, cell] == -np.inf:
            continue
        group = options.group[one]
        values[row] = worth[0, row, cell] - (0.0 if counted[group] >= 1 else prices.bonus[group])
        for which in range(2):
            own[which, group, processes] = max(own[which, group, processes], worth[which, row, cell])
        most = max(most, processes)
    table, several, limited = np.zeros((3, rest + 1))
    for group in range(groups):
        _several(own[0, group, : most + 1], counted[group], prices.bonus[group], several)
        if several[rest] + had[0, group] > had[1, group]:
            _several(own[1, group, : most + 1], counted[group], prices.bonus[group], limited)
            for units in range(rest + 1):
                several[units] = min(several[units], limited[units] + had[1, group] - had[0, group])
        for units in range(rest, -1, -1):
            best = -np.inf
            for used in range(units + 1):
                best = max(best, table[units - used] + several[used])
            table[units] = best + had[0, group]
    for row in range(first, len(useful)):
        if values[row] > -np.inf:
            offers[row] = max(values[row], 0.0) + table[rest - options.processes[useful[row]]] + time
    return table[rest] + time


@inner
def _several(own: Floats, counted: float, bonus: float, values: Floats) -> None:
    """Write to ``values`` (processes + 1,) an upper bound on the value of replicas of one group that have so many
    processes together.

    ``own`` is the value of a replica by its number of processes. It includes the ``bonus``, which only ``counted``
    replicas have.
    """
    rest = len(values) - 1
    less = 0.0 if counted >= rest else bonus
    values[0] = 0.0
    for units in range(1, rest + 1):
        values[units] = values[units - 1]
        for processes in range(1, min(units, len(own) - 1) + 1):
            values[units] = max(values[units], values[units - processes] + own[processes] - less)
    for _ in range(int(counted) if counted < rest else 0):
        for units in range(rest, 0, -1):
            for processes in range(1, min(units, len(own) - 1) + 1):
                values[units] = max(values[units], values[units - processes] + own[processes])


@inner
def _value(options: RateOptions, prices: GroupPrices, chosen: Ints, many: int, total: int, scratch: Floats) -> float:
    """The value of a pattern at the highest rates of the cells of its hold times; minus infinity if a replica may carry
    nothing, or if the pattern does not fit the memory. ``scratch`` (2, groups) is overwritten.
    """
    counted_rps, number, value, memory_gib = scratch[0], scratch[1], 0.0, 0.0
    none, cells = options.slice_ms[:0], options.rps.shape[1]
    for group in range(len(counted_rps)):
        counted_rps[group] = number[group] = 0.0
    for place in range(many):
        one = chosen[place]
        memory_gib += options.memory_gib[one]
        end_ms = options.cell_ms[one, cells]
        hold_ms = _hold_ms(options, one, place, chosen, many, 0, none, total, end_ms)
        cell = _cell(options, one, hold_ms)
        rps = options.rps[one, cell] if cell < cells else 0.0
        if rps <= 0:
            return -np.inf
        group = options.group[one]
        counted_rps[group] += min(rps, options.most_rps[group])
        number[group] += 1
        value += options.beyond * rps
        if prices.bonus[group] < 0 or number[group] <= prices.counted[group]:
            value += prices.bonus[group]
    if memory_gib > options.room_gib:
        return -np.inf
    for group in range(len(counted_rps)):
        value += (prices.per_rps[group] - options.beyond) * min(counted_rps[group], options.total_rps[group])
    return value
