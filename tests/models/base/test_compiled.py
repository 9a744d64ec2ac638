"""The cache of compiled kernels: used again, not after a callee in another file changes, and not insisted on."""

import os
import pickle
import subprocess
import sys

from provision.models.base import kernel_cache
from provision.models.base.compiled import SLOWLY, compiled

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


def run(folder, number):
    """What a new process prints with this callee: the result and the hits of the cache."""
    (folder / "callee.py").write_text(CALLEE.format(number))
    (folder / "caller.py").write_text(CALLER)
    os.utime(folder / "caller.py", (0, 0))
    answer = subprocess.run([sys.executable, "caller.py"], cwd=folder, capture_output=True, text=True, check=True)
    return answer.stdout.split()


def test_a_changed_callee_is_noticed(tmp_path):
    assert [run(tmp_path, number) for number in (1, 1, 3)] == [["2", "0"], ["2", "1"], ["6", "0"]]


def test_without_a_folder_for_the_cache_kernels_still_work(monkeypatch):
    def nowhere(*_):
        raise RuntimeError("no locator available")

    monkeypatch.setattr(kernel_cache, "_Cache", nowhere)
    assert compiled(lambda: 5)() == 5


def test_without_numba_kernels_are_plain_python(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "numba", None)
    one = compiled(lambda number: number + 1)
    assert [one(1), one(2)] == [2, 3]
    assert [record.getMessage() for record in caplog.records] == [SLOWLY]


def test_entries_of_a_type_that_is_gone_are_compiled_anew(tmp_path):
    """A kernel's index names the classes of its arguments; one of these has another name now."""
    assert run(tmp_path, 1) == ["2", "0"]
    for index in (tmp_path / "__pycache__").glob("*twice*.nbi"):
        with open(index, "rb") as file:
            version = pickle.load(file)
        index.write_bytes(pickle.dumps(version) + b"cfractions\nNoSuchClass\n.")
    assert [run(tmp_path, 1), run(tmp_path, 1)] == [["2", "0"], ["2", "1"]]
