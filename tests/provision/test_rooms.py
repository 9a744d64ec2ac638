"""What is built has every room, and the house keeps its rules: rooms of few files, no room that imports in a circle."""

import ast
import tomllib
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]
LAID = {"models": "provision.models", "formulations": "provision.formulations", "heuristics": "provision.heuristics",
        "instances": "provision.instances", "provision": "provision"}
MOST_FILES = 20


def _room(folder):
    """The package that a folder of the repository is."""
    top, *rest = folder.relative_to(ROOT).parts
    return ".".join((LAID[top], *rest))


MODULES = {path: _room(path.parent) for top in LAID for path in (ROOT / top).rglob("*.py")}
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_room_is_built():
    assert set(SETTINGS["packages"]) == set(MODULES.values())
    assert len(SETTINGS["packages"]) == len(set(SETTINGS["packages"]))


def test_every_file_that_is_not_code_is_built():
    globs = [ROOT / _folder(room) / glob for room, globs in SETTINGS["package-data"].items() for glob in globs]
    built = {path for glob in globs for path in glob.parent.glob(glob.name)}
    kept = {path for top in LAID for path in (ROOT / top).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc", ".nbi", ".nbc")}
    assert kept <= built


def _folder(room):
    """The folder of a package."""
    for top, name in LAID.items():
        if room == name or room.startswith(name + "."):
            return Path(top, *room.removeprefix(name).split(".")[1:])
    raise AssertionError(room)


@pytest.mark.parametrize("folder", ["benchmarks", "tests", *LAID])
def test_no_room_is_a_hall(folder):
    folders = {path.parent for path in (ROOT / folder).rglob("*.py")}
    halls = {str(one.relative_to(ROOT)): len(list(one.glob("*.py"))) for one in folders}
    assert {name: many for name, many in halls.items() if many > MOST_FILES} == {}


def test_rooms_do_not_import_in_circles():
    """Imports inside functions count as well; a room and the rooms within it are one house."""
    arrows = nx.DiGraph()
    for path, room in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("provision."):
                target = node.module if node.module in MODULES.values() else node.module.rpartition(".")[0]
                if not (f"{target}.".startswith(f"{room}.") or f"{room}.".startswith(f"{target}.")):
                    arrows.add_edge(room, target)
    assert [circle for circle in nx.strongly_connected_components(arrows) if len(circle) > 1] == []
