"""Finds the rows of a table that no other row dominates."""

import numpy as np

from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import NEVER, Deadline

MOST_KEPT = 2000
"""The most undominated rows of a list."""
DIGITS = 12
"""Rows are compared after rounding to this number of decimal places."""
BLOCK = 4096
"""The rows of the first block that is searched. Each further block has twice as many."""
SPARSE = 0.7
"""Dominated rows are dropped from the table when less than this part of its rows is left; dropping copies the table."""


class TooManyError(Exception):
    """Raised when there are more undominated rows than a list may have, or no time is left to find them."""


def undominated(features: Floats, most: int = MOST_KEPT, until: Deadline = NEVER) -> Ints:
    """The indices of the rows that no other row equals or exceeds in every column. Of equal rows one is returned.

    Rows are rounded to DIGITS and compared in blocks, large sums first: these dominate most others, and soon show
    whether too many are undominated.

    Raises
    ------
    TooManyError
        When there are more than ``most`` such rows, or the deadline ``until`` comes first.
    """
    rounded = np.round(features, DIGITS)
    order = np.argsort(-rounded.sum(axis=1), kind="stable")
    chosen: list[np.int64] = []
    begin, size = 0, BLOCK
    while begin < len(order):
        left = order[begin : begin + size]
        columns, open_, at = np.ascontiguousarray(rounded[left].T), np.ones(len(left), bool), 0
        while open_.any():
            if at == len(chosen):
                if at == most or until.over:
                    raise TooManyError
                chosen.append(left[int(open_.argmax())])
            open_ &= (columns > rounded[chosen[at], :, None]).any(axis=0)
            at += 1
            if open_.sum() < SPARSE * len(open_):
                left, columns = left[open_], columns[:, open_]
                open_ = np.ones(len(left), bool)
        begin, size = begin + size, 2 * size
    return np.array(chosen, int)
