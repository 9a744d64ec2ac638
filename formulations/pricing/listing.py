"""Finds the rows of a table that no other row dominates."""

import numpy as np

from provision.models.base.arrays import Floats, Ints

MOST_KEPT = 2000
"""The most undominated rows of a list."""
DIGITS = 12
"""Rows are compared after rounding to this number of decimal places."""


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
    chosen: list[np.int64] = []
    while len(left):
        if len(chosen) == most:
            raise TooManyError
        chosen.append(left[0])
        left = left[(rounded[left] > rounded[left[0]]).any(axis=1)]
    return np.array(chosen, int)


