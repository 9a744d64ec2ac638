"""The cache of compiled kernels: used again, also from a wheel, not after a callee changes, and not insisted on."""

import os
import pickle
import subprocess
import sys

import pytest

from provision.models.base import kernel_cache
from provision.models.base.compiled import compiled

CALLER = """
from callee import number
from provision.models.base.compiled import compiled

@compiled
def twice():
    return 2 * number()

print(twice(), sum(twice.stats.cache_hits.values()))
"""
CALLEE = """
from provision.models.base.compiled import compiled

@compiled
def number():
    return {}
"""


def run(folder, number, **changed):
    """What a new process prints with this callee: the result and the hits of the cache.

    Python keeps no bytecode: it would take the old callee's for the new one, of the same size and the same second.
    """
    (folder / "callee.py").write_text(CALLEE.format(number))
    (folder / "caller.py").write_text(CALLER)
    os.utime(folder / "caller.py", (0, 0))
    command = [sys.executable, "caller.py"]
    known = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = known | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= changed
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.split()


@pytest.mark.skipif(not kernel_cache.runs_portable(), reason="no x86-64 processor with AVX2")
def test_kernels_of_a_wheel_are_found_wherever_it_is_unpacked(tmp_path):
    """Those beside the source, compiled for a plain processor; not after a callee in another file changes."""
    built, installed, kept = (tmp_path / name for name in ("built", "installed", "kept"))
    built.mkdir()
    assert run(built, 1, **kernel_cache.PORTABLE) == ["2", "0"]
    built.rename(installed)
    assert run(installed, 1, NUMBA_CACHE_DIR=str(kept)) == ["2", "1"] and not list(kept.glob("**/*.nbi"))
    assert run(installed, 3, NUMBA_CACHE_DIR=str(kept)) == ["6", "0"]


def test_nothing_is_kept_beside_the_source(tmp_path):
    """Whoever uninstalls the package leaves nothing of it behind."""
    assert [run(tmp_path, 1), run(tmp_path, 1)] == [["2", "0"], ["2", "1"]]
    assert list((tmp_path / "cache/provision").glob("**/*.nbi"))
    assert not [path for path in tmp_path.glob("**/__pycache__/*") if path.suffix != ".pyc"]


def test_kernels_of_a_wheel_are_left_where_the_processor_lacks_something(monkeypatch):
    monkeypatch.setattr(kernel_cache, "get_host_cpu_features", lambda: {"avx": True, "avx2": False})
    assert not kernel_cache.runs_portable.__wrapped__()


def test_without_a_folder_for_the_cache_kernels_still_work(monkeypatch):
    def nowhere(*_):
        raise RuntimeError("no locator available")

    monkeypatch.setattr(kernel_cache, "_Cache", nowhere)
    assert compiled(lambda: 5)() == 5


def test_entries_of_a_type_that_is_gone_are_compiled_anew(tmp_path):
    """A kernel's index names the classes of its arguments; one of these has another name now."""
    assert run(tmp_path, 1) == ["2", "0"]
    for index in (tmp_path / "cache/provision").glob("**/*twice*.nbi"):
        with open(index, "rb") as file:
            version = pickle.load(file)
        index.write_bytes(pickle.dumps(version) + b"cfractions\nNoSuchClass\n.")
    assert [run(tmp_path, 1), run(tmp_path, 1)] == [["2", "0"], ["2", "1"]]
