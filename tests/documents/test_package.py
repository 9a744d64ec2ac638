"""The sdist holds what the wheel needs, the wheel holds every module and data file, and plans where it is unpacked."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77", reason="packages are built by setuptools 77 or later")
ROOT = Path(__file__).parents[2]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
NEEDED = ("pyproject.toml", "README.md", "LICENSE")
PLANS = "import provision as p; r = p.solve('parvagpu-s1', 'greedy'); print(p.__file__, r.verified, len(r.plan.gpus))"


def _build(what, folder, into):
    """Build an sdist or a wheel of a source folder; returns its path."""
    into.mkdir()
    command = f"import sys; from setuptools import build_meta as b; b.build_{what}(sys.argv[1])"
    built = subprocess.run([sys.executable, "-W", "ignore", "-c", command, str(into)], cwd=folder, capture_output=True,
                           text=True)
    assert built.returncode == 0, built.stderr
    return next(into.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, unpacked, built from an unpacked sdist of this folder."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in SETUP["package-dir"].values():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        shutil.copy(ROOT / name, source / name)
    with tarfile.open(_build("sdist", source, folder / "sdist")) as sdist:
        sdist.extractall(folder / "unpacked", filter="data")
    with zipfile.ZipFile(_build("wheel", next((folder / "unpacked").iterdir()), folder / "wheel")) as built:
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
