"""Turns content into content that JSON can express."""

import math
from typing import Any


def finite(content: object) -> Any:
    """Copy nested lists and dicts with None in place of every infinite number and NaN, which JSON lacks."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
