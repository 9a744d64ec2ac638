"""The list of packages in pyproject.toml: every room is installed, each once."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_room_is_listed_as_a_package():
    """A room that is not listed is missing from the wheel, and from editable installations made since."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {
        ".".join([package, *init.parent.relative_to(ROOT / folder).parts])
        for package, folder in setuptools["package-dir"].items() for init in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(setuptools["packages"]) == sorted(rooms)
