"""Contents as the store keeps them: canonical JSON, and the digest of it."""

import json
from hashlib import sha256
from typing import Any

from provision.models.base.plain import finite


def text_of(content: Any) -> str:
    """Plain content as canonical JSON; null stands for numbers that are not finite."""
    return json.dumps(finite(content), sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()
