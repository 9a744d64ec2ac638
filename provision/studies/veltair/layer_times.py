"""Reads measured layer times, by shipped name or by path.

Describes the CPU of this machine, as Linux tells it.
"""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from provision.instances.files.files import FilePath, load, validate
from provision.models.base.errors import InputError
from provision.models.cpu.times import LayerTimes, MeasuredCpu

CPU_INFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS_KIB = {"K": 1, "M": 1024, "G": 1024**2}


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use. Raises InputError if the operating system cannot pin
    processes to cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise InputError(f"profile-layers: {platform.system()} cannot pin processes to cores; run it on Linux")
    return sorted(os.sched_getaffinity(0))


def measured_cpu() -> MeasuredCpu:
    """Describe the CPU of this machine. Raises InputError if PyTorch is not installed, or the operating system cannot
    pin processes to cores.
    """
    try:
        torch = version("torch")
    except PackageNotFoundError:
        raise InputError("profile-layers: PyTorch is not installed; pip install 'gpu-provision[profile]'") from None
    names = re.findall(r"model name\s*: (.+)", CPU_INFO.read_text()) if CPU_INFO.exists() else []
    return MeasuredCpu(
        cpu=(names or [platform.machine()])[0], cores=len(usable_cores()), l2_mib=_cache_mib(2), l3_mib=_cache_mib(3),
        torch=torch,
    )


def _cache_mib(level: int) -> float | None:
    """The size in MiB of the first core's cache of a level; None if Linux does not tell it."""
    for cache in sorted(CACHES.glob("index*")):
        if (cache / "level").read_text().strip() == str(level):
            size = (cache / "size").read_text().strip()
            return int(size[:-1]) * UNITS_KIB[size[-1]] / 1024
    return None


def read_layer_times(name_or_path: FilePath) -> LayerTimes:
    """Read LayerTimes from the file of this name if it exists, else the shipped layer times of this name. Raises
    InputError if there is neither, or the file cannot be used.
    """
    name = os.fspath(name_or_path)
    if os.path.exists(name):
        return validate(LayerTimes, load(name), name)
    if name not in shipped_layer_times():
        raise InputError(f"{name}: no such file, and no shipped layer times; there are "
                         f"{', '.join(shipped_layer_times())}")
    with as_file(_folder() / f"{name}.yaml") as path:
        return validate(LayerTimes, load(path), path)


def shipped_layer_times() -> list[str]:
    """Names of the shipped layer times, sorted."""
    return sorted(path.name.removesuffix(".yaml") for path in _folder().iterdir())


def _folder() -> Traversable:
    return files("provision.models.cpu") / "data"
