"""What someone may have meant by a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches

LEAST_LIKENESS = 0.6
"""Of two words, as difflib measures it: twice the characters in common over all characters."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``; did you mean 'NAME'?`` for the most similar of the known names; empty when none is similar."""
    there = {name.lower(): name for name in known}
    close = get_close_matches(str(word).lower(), there, 1, LEAST_LIKENESS)
    return f"; did you mean {there[close[0]]!r}?" if close else ""
