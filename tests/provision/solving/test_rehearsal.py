"""Compiling kernels does not use up the time that a search was given."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

import provision
from provision.models.problem.search import Outcome
from provision.solving.methods import methods

SOLVE = """
import provision
result = provision.solve(provision.read("igniter-testbed-12"), "lns", time_limit_s=3.0)
print(result.status, result.report.gpus)
"""


def test_a_first_run_with_nothing_compiled_has_all_its_time(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", SOLVE], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["feasible", "6"]


def test_ctrl_c_in_the_rehearsal_ends_the_solve(monkeypatch):
    instance, told = provision.read("igniter-motivation"), []

    def stopped(few, control):
        told.append(few)
        return Outcome("unknown", "stopped")

    method = replace(methods()["master"], run=stopped)
    solving = import_module("provision.solving.solve")
    monkeypatch.setattr(solving, "find_method", lambda name: method)
    monkeypatch.setattr(solving, "_rehearsed", set())
    with pytest.raises(KeyboardInterrupt):
        provision.solve(instance, "master")
    assert len(told) == 1
