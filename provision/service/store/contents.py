"""Writes contents for the store as canonical JSON, and computes digests."""

import json
from hashlib import sha256
from typing import Any

from provision.models.base.plain import finite


def text_of(content: Any) -> str:
    """The canonical JSON of plain content: sorted keys, no spaces, and null for numbers that are not finite."""
    return json.dumps(finite(content), sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()
