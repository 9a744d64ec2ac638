"""Finds what may hold a GPU without being a process on it: open device files, the display module, monitoring agents."""

import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
DEVICES = "/dev/nvidia"
MODULE = "nvidia_drm"
MOST_NAMED = 5


def holders() -> str:
    """A sentence: what may hold a GPU that is in use although no process is listed on it, and what to do."""
    own = os.getpid()
    named = [f"{pid} {name}" for pid, name in _with_open_devices() if pid != own]
    shown = ", ".join(named[:MOST_NAMED]) + (" and more" if len(named) > MOST_NAMED else "")
    what = f"{DEVICES}* is open in process {shown}: end or stop it" if named else f"none has {DEVICES}* open here"
    module = f"; the module {MODULE} is loaded: modprobe -r {MODULE}" if _loaded() else ""
    return (
        f"in use although no process is listed; {what}{module}; then stop monitors (systemctl stop nvidia-dcgm "
        "nvidia-persistenced), or reset the GPU (nvidia-smi --gpu-reset), and apply again"
    )


def _with_open_devices() -> Iterator[tuple[int, str]]:
    """Yield (pid, name) of every process with an open device file of NVIDIA's driver, if this user may see it."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            opened = any(os.readlink(link).startswith(DEVICES) for link in (entry / "fd").iterdir())
            name = (entry / "comm").read_text().strip() if opened else ""
        except OSError:
            continue
        if opened:
            yield int(entry.name), name


def _loaded() -> bool:
    try:
        return any(line.startswith(f"{MODULE} ") for line in (PROC / "modules").read_text().splitlines())
    except OSError:
        return False
