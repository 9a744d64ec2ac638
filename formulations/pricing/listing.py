"""Finds the rows of a table that no other row dominates."""

import numpy as np

from provision.models.base.arrays import Floats, Ints

MOST_KEPT = 2000
"""The most undominated rows of a list."""
DIGITS = 12
"""Rows are compared after rounding to this number of decimal places."""
SPARSE = 0.7
"""Dominated rows are dropped from the table when less than this part of its rows is left; dropping copies the table."""


class TooManyError(Exception):
    """Raised when there are more undominated rows than a list may have."""


def undominated(features: Floats, most: int = MOST_KEPT) -> Ints:
    """The indices of the rows that no other row equals or exceeds in every column. Of equal rows one is returned.

    Raises
    ------
    TooManyError
        When there are more than ``most`` such rows.
    """
    rounded = np.round(features, DIGITS)
    left = np.argsort(-rounded.sum(axis=1), kind="stable")
    columns, open_ = np.ascontiguousarray(rounded[left].T), np.ones(len(left), bool)
    chosen: list[np.int64] = []
    while open_.any():
        if len(chosen) == most:
            raise TooManyError
        first = int(open_.argmax())
        chosen.append(left[first])
        open_ &= (columns > columns[:, first : first + 1]).any(axis=0)
        if open_.sum() < SPARSE * len(open_):
            left, columns = left[open_], columns[:, open_]
            open_ = np.ones(len(left), bool)
    return np.array(chosen, int)


