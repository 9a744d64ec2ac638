"""The package as users get it: sdists and wheels built from this tree, and an environment with the wheel alone."""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from numba.core.caching import InTreeCacheLocator

from provision.models.base.kept import user_folder

ROOT = Path(__file__).parents[2]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
NEEDED = ("pyproject.toml", "README.md", "LICENSE")
HOME = Path(sys.prefix) / "bare"
"""Where the bare environment is kept: its dependencies are installed once for every version of pyproject.toml."""


def build(what, folder, into):
    """Build an sdist or a wheel of a source folder; returns its path."""
    into.mkdir()
    command = f"import sys; from setuptools import build_meta as b; b.build_{what}(sys.argv[1])"
    built = subprocess.run([sys.executable, "-W", "ignore", "-c", command, str(into)], cwd=folder, capture_output=True,
                           text=True)
    assert built.returncode == 0, built.stderr
    return next(into.iterdir())


def wheel_from_sdist(folder):
    """A wheel built from an unpacked sdist of this tree, as a path."""
    source = folder / "source"
    for name in SETUP["package-dir"].values():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        shutil.copy(ROOT / name, source / name)
    with tarfile.open(build("sdist", source, folder / "sdist")) as sdist:
        sdist.extractall(folder / "unpacked", filter="data")
    return build("wheel", next((folder / "unpacked").iterdir()), folder / "wheel")


def bare_environment():
    """The folder of a virtual environment into which `pip install` has put the wheel of this tree, without extras.

    It is kept between runs; the wheel is installed again when a file of the package has changed.
    """
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = HOME / sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()[:12]
        digest, installed = _digest(), home / "installed.txt"
        if not installed.exists():
            for old in HOME.glob("*/"):
                shutil.rmtree(old)
            venv.create(home, symlinks=True)
        if not installed.exists() or installed.read_text() != digest:
            with TemporaryDirectory() as folder:
                _install(home, wheel_from_sdist(Path(folder)), anew=installed.exists())
            installed.write_text(digest)
    return home


def _install(home, wheel, anew):
    """Install a wheel with all that it depends on, or itself alone in place of an older one."""
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "--no-compile", "--quiet",
           "--disable-pip-version-check", *["--no-deps", "--force-reinstall"] * anew, str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        if "No matching distribution" in done.stderr or "connection" in done.stderr.lower():
            pytest.skip("no package index can be reached")
        raise AssertionError(done.stderr)
    _give_kernels(next((home / "lib").glob("python*")) / "site-packages")


def _give_kernels(site):
    """Let the installed package find the kernels of this tree: Numba takes a file with the same content and the same
    time of change for the same, and keeps a folder's kernels under a name made from its path.
    """
    kernels, folders = user_folder() / "kernels", set()
    for package, name in SETUP["package-dir"].items():
        for path in (ROOT / name).rglob("*.py"):
            there = site / package.replace(".", "/") / path.relative_to(ROOT / name)
            os.utime(there, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
            folders.add(tuple(kernels / InTreeCacheLocator.get_suitable_cache_subpath(str(one))
                              for one in (path, there)))
    for mine, its in folders:
        if mine.exists():  # another process may be about to add to it
            shutil.copytree(mine, its, ignore=shutil.ignore_patterns("*.tmp.*"), dirs_exist_ok=True)


def _digest():
    """Changes when a file of the package does."""
    found = sha256((ROOT / "pyproject.toml").read_bytes())
    for name in SETUP["package-dir"].values():
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path}".encode() + path.read_bytes())
    return found.hexdigest()


class Bare:
    """The bare environment, in which commands run as a user's do.

    Parameters
    ----------
    home
        The folder of the environment.
    """

    def __init__(self, home):
        self.home = home
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}

    def run(self, *command, folder, answers="", **more):
        """The completed process of a command with the environment first on its path; ``answers`` are typed."""
        return subprocess.run(command, cwd=folder, env=self.variables | more, capture_output=True, text=True,
                              input=answers)

    @contextmanager
    def untouched(self):
        """Check that no file of the installed package is made, changed or removed meanwhile."""
        before = self._files()
        yield
        assert self._files() == before

    def _files(self):
        package = next((self.home / "lib").glob("python*")) / "site-packages/provision"
        return {path: path.read_bytes() for path in package.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts}
