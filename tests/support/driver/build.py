"""Compiling the C library, once for each version of its source."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).parent / "nvml"
FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-Bsymbolic"]


def library():
    """The folder of libnvidia-ml.so.1, compiled when the sources have changed; without a compiler the test skips."""
    if shutil.which("cc") is None:
        raise unittest.SkipTest("the stand-in for NVML needs a C compiler: cc")
    sources = sorted(SOURCE.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"nvml-standin-{os.getuid()}-{digest}"
    target = folder / "libnvidia-ml.so.1"
    if not target.exists():
        folder.mkdir(exist_ok=True)
        fresh = folder / f"{os.getpid()}.so"
        units = [path for path in sources if path.suffix == ".c"]
        subprocess.run(["cc", *FLAGS, "-o", fresh, *units], check=True)
        fresh.replace(target)
    return folder
