"""The lean core: what needs no extra works without any, and what needs one says which in a line."""

import subprocess
import sys
from pathlib import Path

import pytest

from provision.models.base.errors import InputError
from provision.models.base.extras import EXTRAS, optional

CORE = """
import sys
for name in {extras}:
    sys.modules[name] = None
from provision.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(line, folder):
    """A verb's end in a process in which no package of an extra can be imported."""
    code = CORE.format(extras=sorted(set(EXTRAS) - {"pandas"}))  # which OR-Tools brings
    return subprocess.run([sys.executable, "-c", code, *line.split()], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A folder with a plan that was made without extras."""
    folder = tmp_path_factory.mktemp("core")
    ran = run("solve parvagpu-s1 --out plan.json", folder)
    assert ran.returncode == 0 and "optimal" in ran.stdout and ran.stderr == "", ran.stderr
    return folder


@pytest.mark.parametrize("line", [
    "verify parvagpu-s1 plan.json", "show plan.json --html plan.html", "export plan.json --to shell --out out",
    "simulate parvagpu-s1 plan.json --seconds 0.2",
])
def test_the_core_needs_no_extra(line, planned):
    assert run(line, planned).returncode in (0, 1)


@pytest.mark.parametrize(("line", "told"), [
    ("show plan.json --png plan.png", "matplotlib is not installed; pip install 'provision[draw]'"),
    ("solve parvagpu-s1 --png plan.png", "matplotlib is not installed; pip install 'provision[draw]'"),
    ("status", "pynvml is not installed; pip install 'provision[driver]'"),
    ("export plan.json --to mig-parted --out parted", "pynvml is not installed; pip install 'provision[driver]'"),
    ("warm-up", "numba is not installed; pip install 'provision[compiled]'"),
])
def test_what_needs_an_extra_names_it(line, told, planned):
    ran = run(line, planned)
    assert (ran.returncode, ran.stderr) == (2, f"error: {told}\n")


def test_what_brings_no_extra_is_no_mistake_of_the_user():
    with pytest.raises(ModuleNotFoundError), optional():
        import no_such_package  # noqa: F401
    with pytest.raises(InputError, match=r"pip install 'provision\[pandas\]'"), optional():
        raise ModuleNotFoundError(name="pandas.io")


def test_every_extra_is_declared():
    setup = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in setup for extra in EXTRAS.values())
