"""Lists of undominated rows."""

import numpy as np

from provision.models.base.arrays import Floats, Ints

MOST_KEPT = 2000
"""Most undominated rows that are listed."""
DIGITS = 12
"""Decimal places to which rows are compared."""


class TooManyError(Exception):
    """Raised when there are more patterns than can be listed."""


def undominated(features: Floats, most: int = MOST_KEPT) -> Ints:
    """Indices of the rows that no other row equals or exceeds everywhere; one of each set of equal rows.

    Raises
    ------
    TooManyError
        When there are more than ``most``.
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


