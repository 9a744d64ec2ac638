"""Compiling kernels does not use up the time that a search was given."""

import os
import subprocess
import sys

SOLVE = """
import provision
result = provision.solve(provision.read("igniter-testbed-12"), "patterns", time_limit_s=5.0)
print(result.status, result.report.gpus)
"""


def test_a_first_run_with_nothing_compiled_has_all_its_time(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", SOLVE], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["optimal", "6"]
