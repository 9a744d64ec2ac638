"""The lean core: what needs no extra works without any, and what needs one says which in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from provision.models.base.errors import InputError
from provision.models.base.extras import EXTRAS, optional

WORKS = (
    "solve parvagpu-s1 --out plan.json", "verify parvagpu-s1 plan.json", "show plan.json --html plan.html",
    "export plan.json --to shell --out out",
)
REFUSED = {
    "show plan.json --png plan.png": "matplotlib is not installed; pip install 'provision[draw]'",
    "status": "pynvml is not installed; pip install 'provision[driver]'",
    "export plan.json --to mig-parted --out parted": "pynvml is not installed; pip install 'provision[driver]'",
    "warm-up": "numba is not installed; pip install 'provision[compiled]'",
}
BLOCKED = set(EXTRAS) - {"pandas", "torch"}
"""OR-Tools brings pandas, and SciPy looks whether torch has been imported."""
CORE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
given = json.load(sys.stdin)
sys.modules |= dict.fromkeys(given["blocked"])
from provision.cli import main
answers = {}
for line in given["lines"]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as told:
        answers[line] = main(line.split()), told.getvalue()
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Exit code and stderr of verbs, run in turn where no package of an extra can be imported."""
    given = json.dumps({"blocked": sorted(BLOCKED), "lines": [*WORKS, *REFUSED]})
    ran = subprocess.run([sys.executable, "-c", CORE], cwd=tmp_path_factory.mktemp("core"), input=given,
                         capture_output=True, text=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("line", WORKS)
def test_the_core_needs_no_extra(line, ended):
    assert ended[line][0] == 0


@pytest.mark.parametrize("line", REFUSED)
def test_what_needs_an_extra_names_it(line, ended):
    assert ended[line] == [2, f"error: {REFUSED[line]}\n"]


def test_a_package_that_no_extra_brings_is_no_mistake_of_the_user():
    with pytest.raises(ModuleNotFoundError), optional():
        import no_such_package  # noqa: F401
    with pytest.raises(InputError, match=r"pip install 'provision\[pandas\]'"), optional():
        raise ModuleNotFoundError(name="pandas.io")


def test_every_extra_is_declared():
    setup = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in setup for extra in EXTRAS.values())
