"""The start of the driver: MIG instances exist from one start of the driver to the next and never longer."""

from __future__ import annotations

from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file with the id of this boot of the machine."""
MODULE = Path("/sys/module/nvidia")
"""The folder of the kernel's module. Linux gives it a new inode number, never used before, when the module is loaded.
"""


def epoch() -> str:
    """A text that is the same as long as the driver was not started anew."""
    module = MODULE.stat().st_ino if MODULE.exists() else 0
    return f"{BOOT.read_text().strip()} {module}"
