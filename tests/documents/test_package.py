"""The sdist holds what the wheel needs, the wheel holds every module and data file, and plans where it is unpacked."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaged import ROOT, SETUP, wheel_from_sdist

pytest.importorskip("setuptools", minversion="77", reason="packages are built by setuptools 77 or later")
PLANS = "import provision as p; r = p.solve('parvagpu-s1', 'greedy'); print(p.__file__, r.verified, len(r.plan.gpus))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, unpacked, built from an unpacked sdist of this folder."""
    folder = tmp_path_factory.mktemp("package")
    with zipfile.ZipFile(wheel_from_sdist(folder)) as built:
        built.extractall(folder / "installed")
    return folder / "installed"


def test_it_has_every_module_and_data_file(wheel):
    homes = SETUP["package-dir"]
    expected = set()
    for name, home in homes.items():
        for path in (ROOT / home).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(Path(*name.split("."), path.relative_to(ROOT / home)))
    found = {path.relative_to(wheel) for path in wheel.rglob("*") if path.is_file()}
    information = {path for path in found if path.parts[0].endswith(".dist-info")}
    assert found - information == expected
    assert any(path.name == "LICENSE" for path in information)


def test_it_plans_elsewhere(wheel, tmp_path):
    ran = subprocess.run([sys.executable, "-c", PLANS], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(wheel)},
                         capture_output=True, text=True)
    assert ran.stdout.split() == [str(wheel / "provision/__init__.py"), "True", "2"], ran.stderr
