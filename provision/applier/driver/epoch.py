"""What tells a MIG instance from a later one: the start of the driver, which none outlives, and its entry in /proc."""

from pathlib import Path
from typing import Any

from provision.applier.driver.calls import Calls, DriverError

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""The file with the id of this boot of the machine."""
MODULE = Path("/sys/module/nvidia")
"""The folder of the kernel's module. Linux gives it a new inode number, never used before, when the module is loaded.
"""
CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
"""The folder in which the driver's kernel module has a folder for every MIG instance."""


def epoch() -> str:
    """A text that is the same as long as the driver was not started anew."""
    module = MODULE.stat().st_ino if MODULE.exists() else 0
    return f"{BOOT.read_text().strip()} {module}"


def mark(call: Calls, gpu: Any, instance: int | None) -> str:
    """A text that changes when a GPU instance of a GPU, or a compute instance in it, is made again; empty if unknown.

    Linux dates the entries of /proc when it first looks them up. It may forget them when memory is short, and date them
    again. So a text that is the same proves that the instance is, and one that differs proves nothing.
    """
    if instance is None or not CAPABILITIES.is_dir():
        return ""
    try:
        minor = call("nvmlDeviceGetMinorNumber", gpu)
        folder = CAPABILITIES / f"gpu{minor}/mig/gi{instance}"
        dated = [(path.name, path.stat()) for path in (folder, *sorted(folder.glob("ci*")))]
    except (DriverError, OSError):
        return ""
    return " ".join(f"{name}:{about.st_ino}:{about.st_ctime_ns}" for name, about in dated)
