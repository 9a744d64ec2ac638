"""Tells the results of sweeps in words: what changes, the next GPU, breakpoints, and what a budget allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from provision.models.problem.objective import PER_HOUR, REQUESTS, unit_in_words
from provision.sweeps.breakpoints import Answer, Breakpoint
from provision.sweeps.table import TableRow

FACTORS = {"rate": ("more traffic", "less traffic"), "slo": ("longer SLOs", "shorter SLOs")}
"""The words for factors above and below 1, by parameter."""
MOST_BREAKPOINTS = 12
FINE = 1e-5
"""The relative difference below which two factors are written as one factor, and a cost counts as within a budget."""


def answers(base: TableRow, values: Mapping[str, Sequence[float | str]], rows: Sequence[TableRow],
            breakpoints: Mapping[str, Sequence[Breakpoint]], unit: str = "GPUs") -> list[str]:
    """Sentences on the results of a sweep.

    Parameters
    ----------
    base
        The row of the unchanged instance.
    values
        The values of every parameter by name.
    rows
        The rows of the sweep.
    breakpoints
        The breakpoints by parameter, for the parameters along which they were sought.
    unit
        The unit of the objective.
    """
    now = f"As it is: {_what(base, unit)}."
    if len(values) > 1 and all(len(values) == len(set(values) & set(row)) for row in rows):
        return [now, _range(rows, unit)]
    lines = [now]
    for name in values:
        along = [row for row in rows if name in row]
        lines += _ends(name, base, along, unit)
        lines += _next_gpu(name, base, along, breakpoints.get(name)) if unit != REQUESTS else []
    return lines


def within(budget: float, names: Sequence[str], rows: Sequence[TableRow], unit: str) -> list[str]:
    """Sentences that tell, for each parameter, the values whose plans cost no more than a budget.

    Parameters
    ----------
    budget
        The highest cost that a plan may have, in ``unit``.
    names, rows
        The names of the parameters and the rows of a sweep.
    unit
        The unit of the objective.
    """
    # Committed GPUs are part of the cost but not of the objective.
    lines, column, unit = [], "cost_per_hour" if unit == PER_HOUR else "objective", unit_in_words(unit)
    for name in names:
        kept = [row[name] for row in rows
                if name in row and row[column] is not None and row[column] <= budget * (1 + FINE)]
        if not kept:
            lines.append(f"Within {budget:g} {unit}: no value of {name} that was tried.")
        elif all(isinstance(value, (int, float)) for value in kept):
            lines.append(f"Within {budget:g} {unit}: {name} from {min(kept):g} to {max(kept):g} of those tried.")
        else:
            lines.append(f"Within {budget:g} {unit}: {name} {', '.join(map(str, dict.fromkeys(kept)))}.")
    return lines


def _ends(name: str, base: TableRow, rows: Sequence[TableRow], unit: str) -> list[str]:
    """A sentence for the first value of a parameter and a sentence for the last; a sentence for every value if values
    are not numbers.
    """
    named = any(isinstance(row[name], str) for row in rows)
    ends = rows if named or len(rows) < 2 else [rows[0], rows[-1]]
    return [f"{call(name, row[name])}: {_what(row, unit)}{_instead(base, row, unit)}." for row in ends]


def _next_gpu(name: str, base: TableRow, rows: Sequence[TableRow], found: Sequence[Breakpoint] | None) -> list[str]:
    """A list with a sentence on the smallest growth of the present rates that needs another GPU of some type; empty if
    no such growth is known. A plan with fewer GPUs may need one that it does not have yet.
    """
    kind, _, target = name.partition(".")
    if kind != "rate" or None in [row["gpus"] for row in (base, *rows)]:
        return []
    points = sorted([{name: 1.0} | base, *rows], key=itemgetter(name))
    steps = [(low[name], high[name], more) for low, high in pairwise(points)
             if low[name] >= 1 and (more := _types(high) - _types(low))]
    if not steps:
        return []
    low, high, more = steps[0]
    for one in found or ():  # a breakpoint within this step is more precise
        if low <= one.above <= high and not isinstance(one.before, str) and not isinstance(one.after, str) \
                and (grown := Counter(one.after) - Counter(one.before)):
            low, high, more = one.below, one.above, grown
            break
    several = len({gpu for row in points for gpu in _types(row)}.union(more)) > 1
    which = f", {' and '.join(sorted(more))}," if several else ""
    low, high = (f"{(factor - 1) * 100:+.4g} %" for factor in (high if high - low < FINE else low, high))
    of = f" of {target}" if target else ""
    return [f"The next GPU{which} is due at {high} traffic{of}." if low == high
            else f"The next GPU{which} is due between {low} and {high} traffic{of}."]


def _types(row: TableRow) -> Counter[str]:
    """The number of GPUs of each type in the plan of a row; of no type if the row does not tell them apart."""
    pairs = (one.rpartition(":") for one in str(row.get("plan_gpus") or f":{row['gpus']}").split())
    return Counter({gpu: int(number) for gpu, _, number in pairs})


def _range(rows: Sequence[TableRow], unit: str) -> str:
    """A sentence on the points of a grid over several parameters: how many are served, at which costs, how many proven.
    """
    planned = [row for row in rows if row["objective"] is not None]
    text = f"Of {len(rows)} points, {len(planned)} can be served"
    if planned:
        least, most = (pick(planned, key=lambda row: row["objective"]) for pick in (min, max))
        text += f", with {_what(least, unit)} to {_what(most, unit)}"
    return f"{text}; {sum(row['status'] == 'optimal' for row in rows)} proven optimal."


def changes(name: str, found: Sequence[Breakpoint], values: Sequence[float]) -> list[str]:
    """Sentences on the breakpoints found for one parameter; ``values`` are those that were tried."""
    if not found:
        return [f"At every {name} that was tried, from {min(values):g} to {max(values):g}, the best plan has the same "
                "GPUs; a wider range may have changes."]
    lines = [
        f"From {_place(name, one.above)} up{_wide(one)}: {counts(one.after)} instead of {counts(one.before)}."
        for one in found[:MOST_BREAKPOINTS]
    ]
    more = len(found) - MOST_BREAKPOINTS
    return [*lines, f"And {more} more changes."] if more > 0 else lines


def _wide(one: Breakpoint) -> str:
    """Where a change may come earlier, if what is known of it is wide."""
    return "" if one.above - one.below < FINE else f", or from somewhere above {one.below:.7g}"


def _place(name: str, value: float) -> str:
    """A place on the axis of a parameter: ``rate 0.94 (6 % less traffic)``, ``price.t4 = 0.5``."""
    told = call(name, value)
    return told if "=" in told else f"{name} {value:.4g} ({told})"


def call(name: str, value: float | str) -> str:
    """A value of a parameter in words: ``40 % more traffic``, ``price.t4 = 0.5``."""
    kind, _, target = name.partition(".")
    if kind not in FACTORS or isinstance(value, str):
        return f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
    if value == 1:
        return f"{name} as it is"
    more, less = FACTORS[kind]
    of = f" of {target}" if target else ""
    return f"{abs(value - 1) * 100:.4g} % {more if value > 1 else less}{of}"


def counts(gpus: Answer) -> str:
    """GPUs by type in words."""
    if isinstance(gpus, str):
        return gpus
    return " and ".join(f"{number} {name}" for name, number in gpus.items()) or "no GPU"


def _what(row: TableRow, unit: str) -> str:
    if row["objective"] is None:
        return f"{row['status']} ({row['reason']})" if row["reason"] else row["status"]
    number = "1 GPU" if row["gpus"] == 1 else f"{row['gpus']} GPUs"
    types = _types(row)
    told = [", ".join(f"{many} {gpu}" for gpu, many in types.items())] if len(types) > 1 else []
    if row["cost_per_hour"] is not None:
        told.append(f"{row['cost_per_hour']:,.2f} $ per hour")
    cost = f" ({'; '.join(told)})" if told else ""
    proof = "" if row["status"] == "optimal" else ", not proven"
    carried = f"{row['objective']:.6g} {unit} on " if unit == REQUESTS else ""
    return carried + number + cost + proof


def _instead(base: TableRow, row: TableRow, unit: str) -> str:
    """How a row differs from that of the unchanged instance: in GPUs, or requests, and in what they cost."""
    told = "objective" if unit == REQUESTS else "gpus"
    if None in (base[told], row[told]):
        return ""
    if base["objective"] == row["objective"] and _types(base) == _types(row):
        return ", as now"
    costs = base["cost_per_hour"], row["cost_per_hour"]
    more = f", {costs[1] / costs[0] - 1:+.1%} cost" if all(costs) and costs[0] != costs[1] else ""
    return (f" instead of {base[told]:.6g}" if base[told] != row[told] else "") + more
