"""The patterns that a plan at the bound may use.

Every pattern of a plan adds its reduced cost to the linear program's value. So a plan at the bound uses no pattern
whose reduced cost exceeds the gap between the bound and this value. If the gap is small, all patterns within it can be
listed, and an integer program over them tells whether there is such a plan.
"""

from collections.abc import Sequence

import numpy as np

from provision.formulations.master.rates.columns import RateColumns, Relaxed
from provision.formulations.master.schedule import SCHEDULE
from provision.formulations.pricing.listing import undominated
from provision.formulations.pricing.rates import NEAR, GroupPrices, RateOracle
from provision.models.base.arrays import Ints
from provision.models.base.clock import NEVER, Deadline
from provision.models.base.tolerances import SOLVER


def completed(columns: RateColumns, oracles: Sequence[tuple[int, RateOracle]], most: float, begin: Ints,
              effort: int = 0, until: Deadline = NEVER) -> Relaxed | None:
    """Add all patterns that a plan of cost at most ``most`` may use; return the solution of the linear program over all
    patterns.

    Parameters
    ----------
    columns, oracles
        The known patterns, and pairs (slice type, oracle) for all slice types.
    most
        A price in multiples of the dearest GPU's price.
    begin
        The indices of patterns to begin the linear program with.
    effort
        The effort with which oracles list patterns.
    until
        The deadline after which no oracle is asked.

    Returns
    -------
    Relaxed | None
        None if there are too many such patterns, if the linear program has no solution, or after the deadline.
    """
    while not until.over and (found := columns.relaxed(columns.all, begin=begin)) is not None:
        floor = (found.slices + columns.of_gpus(found) - _gap(columns, found, most)) * (1 - 2 * NEAR)
        prices, listed = GroupPrices(found.per_rps, found.bonus, np.full(len(found.per_rps), np.inf)), []
        for slice_type, oracle in oracles:
            if oracle.complete or columns.left_out[slice_type]:
                continue
            few = floor[slice_type] > 0 and not until.over
            patterns = oracle.above(prices, floor[slice_type], effort) if few else None
            if patterns is None:
                return None
            listed.append((slice_type, patterns))
        dear = [np.flatnonzero(columns.worth(found, patterns) > found.slices[slice_type] + SOLVER)
                for slice_type, patterns in listed]
        improves = any(len(one) for one in dear)
        for (slice_type, patterns), missing in zip(listed, dear, strict=True):
            columns.add(slice_type, patterns.only(missing) if improves else patterns)
        begin = found.patterns
        if not improves:
            return columns.relaxed(columns.all, begin=begin)
    return None


def useful_at(columns: RateColumns, found: Relaxed, most: float) -> Ints:
    """The patterns that a plan of cost at most ``most`` may use, by rising reduced cost."""
    over = found.reduced + columns.of_gpus(found)[columns.slice_type]
    useful = np.flatnonzero(over <= _gap(columns, found, most))
    return useful[np.argsort(over[useful], kind="stable")]


def _gap(columns: RateColumns, found: Relaxed, most: float) -> float:
    """The highest reduced cost of a pattern in a plan of cost at most ``most``, with the solver's tolerance for each
    replica.
    """
    return most - found.value + SOLVER * (found.value + columns.problem.most_gpus)


def undominated_of(columns: RateColumns, patterns: Ints) -> Ints:
    """The patterns that no other pattern on the same slice type dominates."""
    part, found = columns.part(columns.all), []
    for slice_type in np.unique(columns.slice_type[patterns]):
        here = patterns[columns.slice_type[patterns] == slice_type]
        features = np.column_stack([part[here], -columns.number[here][:, columns.counted],
                                    columns.number[here][:, columns.asked_for]])
        found.append(here[undominated(features, SCHEDULE.most)])
    return np.concatenate(found)
