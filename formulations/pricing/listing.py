"""Finds the rows of a table that no other row dominates."""

import numpy as np

from provision.formulations.pricing.schedule import SCHEDULE
from provision.models.base.arrays import Floats, Ints
from provision.models.base.clock import NEVER, Deadline

DIGITS = 12
"""Rows are compared after rounding to this number of decimal places."""


class TooManyError(Exception):
    """Raised when there are more undominated rows than a list may have, or no time is left to find them."""


def undominated(features: Floats, most: int = SCHEDULE.kept, until: Deadline = NEVER) -> Ints:
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
    begin, size = 0, SCHEDULE.block
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
            if open_.sum() < SCHEDULE.sparse * len(open_):
                left, columns = left[open_], columns[:, open_]
                open_ = np.ones(len(left), bool)
        begin, size = begin + size, 2 * size
    return np.array(chosen, int)
