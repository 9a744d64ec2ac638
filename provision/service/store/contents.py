"""The form of stored contents: canonical JSON, and its digest."""

import json
from hashlib import sha256
from typing import Any

from provision.models.base.plain import finite


def text_of(content: Any) -> str:
    """Plain content as canonical JSON, with null for numbers that are not finite."""
    return json.dumps(finite(content), sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()
