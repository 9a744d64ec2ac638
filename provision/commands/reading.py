"""Reading an instance for a verb: on a terminal a line tells of a large file that it is being read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.commands.common import progress
from provision.instances.read import read

if TYPE_CHECKING:
    from provision.models.problem.instance import Instance

LARGE_BYTES = 100_000
"""Files from this size on take long enough to read that one wonders."""


def read_instance(name_or_path: str) -> Instance:
    """The instance that ``provision.read`` finds.

    Raises
    ------
    InputError
        When it does not exist or cannot be used.
    """
    size = os.path.getsize(name_or_path) if os.path.isfile(name_or_path) else 0
    if size < LARGE_BYTES:
        return read(name_or_path)
    with progress(f"reading {name_or_path} ({size / 1e6:.1f} MB)"):
        return read(name_or_path)
