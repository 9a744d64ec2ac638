"""What someone may have meant by a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches

LEAST_LIKENESS = 0.6
"""Of two words, as difflib measures it: twice the characters in common over all characters."""


LEAST_START, MOST_NAMED = 3, 2
"""Characters of a word from which on it may be the start of a name, and of how many names at most."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``; did you mean 'NAME'?`` for the known names that begin with the word, else for the most similar one.

    Empty when none is similar.
    """
    there, plain = {name.lower(): name for name in known}, str(word).lower()
    begun = [name for lower, name in there.items() if lower.startswith(plain)] if len(plain) >= LEAST_START else []
    if not 0 < len(begun) <= MOST_NAMED:
        begun = [there[close] for close in get_close_matches(plain, there, 1, LEAST_LIKENESS)]
    return f"; did you mean {' or '.join(map(repr, begun))}?" if begun else ""
