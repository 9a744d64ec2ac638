"""Plain content: what JSON can say."""

import math
from typing import Any


def finite(content: object) -> Any:
    """JSON content with None for infinite numbers and those that are none (NaN)."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
