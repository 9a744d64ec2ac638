"""The locks hold what pyproject.toml asks for, with hashes, and nothing that is not asked for."""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11.7", "3.12.1", "3.13.0", "3.14.0")
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
         "implementation_name": "cpython", "platform_python_implementation": "CPython"}
LOCKS = {"dev": "dev.lock", "image": "image.lock"}
"""Extras by the lock that is made for them."""


def entries(name):
    """The requirements of a lock and the hashes of each."""
    text = (ROOT / ".ci" / name).read_text().replace("\\\n", " ")
    lines = [line.split("--hash=") for line in text.splitlines() if line and not line.startswith("#")]
    return [(Requirement(first), hashes) for first, *hashes in lines]


def locked(name, python):
    """The locked version of each package, on Linux with a Python."""
    here = LINUX | {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    rows = [(canonicalize_name(one.name), one.specifier) for one, _ in entries(name)
            if one.marker is None or one.marker.evaluate(here)]
    assert len(rows) == len(dict(rows))
    return {name: str(specifier).removeprefix("==") for name, specifier in rows}


def asked(extra):
    """What pyproject.toml asks for, with an extra and the extras that this one names."""
    rows = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    for row in map(Requirement, rows):
        if row.name == PROJECT["name"]:
            for other in row.extras:
                yield from asked(other)
        else:
            yield row


@pytest.mark.parametrize("extra", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_it_holds_what_is_asked_for(extra, python):
    versions = locked(LOCKS[extra], python)
    for row in asked(extra):
        assert versions[canonicalize_name(row.name)] in row.specifier, row


@pytest.mark.parametrize("name", LOCKS.values())
def test_every_file_has_a_hash_and_comes_from_an_index(name):
    for row, hashes in entries(name):
        assert re.fullmatch(r"==[^,*]+", str(row.specifier)) and row.url is None, row
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", one) for one in hashes), row
    assert not re.search(r"^(-|\S+://)", (ROOT / ".ci" / name).read_text(), re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_image_has_versions_that_are_tested(python):
    assert locked("image.lock", python).items() <= locked("dev.lock", python).items()


@pytest.mark.parametrize("extra", LOCKS)
def test_it_holds_what_is_asked_for_in_turn_and_no_more(extra):
    """By what the packages that are installed here ask for."""
    here = ".".join(map(str, sys.version_info[:3]))
    versions = locked(LOCKS[extra], here)
    other = {name: found for name, wanted in versions.items() if (found := installed(name)) != wanted}
    if other:
        pytest.skip(f"this environment was not made from the lock: {other}")
    needed, waiting = set(), [(canonicalize_name(row.name), tuple(row.extras)) for row in asked(extra)]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) not in needed:
            needed.add((name, extras))
            rows = map(Requirement, requires(name) or ())
            waiting += [(canonicalize_name(row.name), tuple(row.extras)) for row in rows if row.marker is None
                        or any(row.marker.evaluate({"extra": one}) for one in ("", *extras))]
    assert {name for name, _ in needed} == set(versions)


def installed(name):
    """The installed version of a package; None if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
