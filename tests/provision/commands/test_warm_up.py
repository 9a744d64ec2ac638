"""Compilation is announced once; isolated slices need none; warm-up calls the kernels of the common methods."""

import os
import subprocess
import sys

import provision
from provision.cli import main
from provision.models.base.compiled import ANNOUNCEMENT
from provision.starting import warm_up

TWO_KERNELS = """
from provision.models.base.compiled import compiled

@compiled
def one():
    return 1

@compiled
def two():
    return one() + 1

one(), two()
"""


def started(folder, line):
    """A new process whose cache of kernels is in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )


def test_compilation_is_announced_once_and_not_again(tmp_path):
    (tmp_path / "kernels.py").write_text(TWO_KERNELS)
    assert started(tmp_path, ["kernels.py"]).stderr == f"{ANNOUNCEMENT}\n"
    assert started(tmp_path, ["kernels.py"]).stderr == ""


def test_isolated_slices_need_no_kernel(tmp_path):
    """Nothing is announced and nothing is kept: not one kernel was called."""
    ran = started(tmp_path, ["-m", "provision", "solve", "parvagpu-s5"])
    assert ran.stderr == "" and "Proven" in ran.stdout
    assert not list(tmp_path.glob("cache/**/*.nbi"))


def test_warm_up_leaves_nothing_to_compile(monkeypatch, capsys):
    monkeypatch.setattr(warm_up, "REHEARSALS", [warm_up.Rehearsal("igniter-motivation", "greedy", replay=True)])
    assert main(["warm-up", "--json"]) == 0
    assert main(["warm-up"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 kernels compiled")


def test_warm_up_knows_language_models():
    """Their kernels are those of plans with a language model, of which no instance ships."""
    assert any(one.instance == warm_up.LANGUAGE_MODEL for one in warm_up.REHEARSALS)
    result = provision.solve(warm_up._language_model(), "greedy", time_limit_s=5)
    assert provision.verify(warm_up._language_model(), result.plan).ok
