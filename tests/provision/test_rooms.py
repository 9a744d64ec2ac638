"""What is built has every room, and the house keeps its rules: floors, rooms of few files, and no imports in circles.

Every import counts: those inside functions and for type checkers, and files that a text names in full, for
``import_module`` or an entry point.
"""

import ast
import tomllib
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]
LAID = {"models": "provision.models", "formulations": "provision.formulations", "heuristics": "provision.heuristics",
        "instances": "provision.instances", "provision": "provision"}
MOST_FILES = 20
ABOVE = {
    "models": {"formulations", "heuristics", "instances", "provision"},
    "instances": {"formulations", "heuristics", "provision"},
    "formulations": {"heuristics", "provision"},
    "heuristics": {"provision"},
    "provision": set(),
}
"""By floor: those that it does not import."""
SEARCH_MODEL = ("provision.formulations.search", "provision.formulations.pricing", "provision.formulations.linear")
"""All that heuristics import of the formulations."""


def _room(folder):
    """The package that a folder of the repository is."""
    top, *rest = folder.relative_to(ROOT).parts
    return ".".join((LAID[top], *rest))


def _module(path):
    """The name by which a file is imported."""
    room = _room(path.parent)
    return room if path.stem == "__init__" else f"{room}.{path.stem}"


MODULES = {path: _room(path.parent) for top in LAID for path in (ROOT / top).rglob("*.py")}
NAMES = {_module(path): path for path in MODULES}
FILES = {name for name, path in NAMES.items() if path.stem != "__init__"}
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


@cache
def arrows():
    """Modules, with an arrow from each to those that it imports."""
    found = nx.DiGraph()
    found.add_nodes_from(NAMES)
    for name, path in NAMES.items():
        found.add_edges_from((name, target) for target in _imported(name, path) if target != name)
    return found


def _imported(name, path):
    """The modules of this package that a file imports; a package only where something of its own is meant."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in NAMES)
        elif isinstance(node, ast.ImportFrom):
            base = _base(MODULES[path].split("."), node)
            inside = [f"{base}.{one.name}" for one in node.names]
            yield from (one for one in inside if one in NAMES)
            if base in NAMES and not all(one in NAMES for one in inside):
                yield base
        elif isinstance(node, ast.Constant) and node.value in FILES:
            yield node.value


def _base(room, node):
    """The package or module that something is imported from, with dots before it or not."""
    above = room[: len(room) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _floor(name):
    """The floor of a module."""
    return next(top for top, laid in LAID.items() if f"{name}.".startswith(f"{laid}."))


def test_floors_import_only_from_below():
    wrong = {(one, other) for one, other in arrows().edges if _floor(other) in ABOVE[_floor(one)]}
    beside = {(one, other) for one, other in arrows().edges
              if (_floor(one), _floor(other)) == ("heuristics", "formulations") and not other.startswith(SEARCH_MODEL)}
    assert wrong | beside == set()


def test_rooms_do_not_import_in_circles():
    """A room and the rooms within it are one house."""
    rooms = nx.DiGraph()
    for one, other in arrows().edges:
        here, there = MODULES[NAMES[one]], MODULES[NAMES[other]]
        if not (f"{there}.".startswith(f"{here}.") or f"{here}.".startswith(f"{there}.")):
            rooms.add_edge(here, there)
    assert [circle for circle in nx.strongly_connected_components(rooms) if len(circle) > 1] == []


def test_files_do_not_import_in_circles():
    circles = [one for one in nx.strongly_connected_components(arrows()) if len(one) > 1]
    assert [sorted(one) for one in circles] == []


READERS = {
    "provision.models.base.clock": "what plans or waits",
    "provision.solving.worker": "when a process that does not answer is left",
    "provision.profiling.measure": "measurements, compared between processes",
    "provision.applier.locks": "the time of day in files",
    "provision.applier.journal": "the time of day in files",
    "provision.service.store": "the time of day in files",
}
"""What reads the clock, and for what."""
CLOCKS = {"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"}


def _reads_the_clock(path):
    """Whether a file calls a clock of ``time``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and CLOCKS & {one.name for one in node.names}:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS \
                and isinstance(node.func.value, ast.Name) and node.func.value.id == "time":
            return True
    return False


def test_few_files_read_the_clock():
    assert {name for name, path in NAMES.items() if _reads_the_clock(path)} == set(READERS)


STEERING = {"provision.formulations.master.schedule"}
"""Where the numbers that steer the master stand."""
NOT_STEERING = {"MISSED": "a price of what is missing"}
"""Numbers of the master that steer nothing, and what they are."""


def test_numbers_that_steer_the_master_stand_in_its_schedule():
    numbers = set()
    for name, path in NAMES.items():
        if name.startswith("provision.formulations.master.") and name not in STEERING:
            assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
            for node in assigned:
                values = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                if values and all(isinstance(one, int | float) for one in values):
                    numbers |= {one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)}
    assert numbers - {"NOTHING", "UNKNOWN"} == set(NOT_STEERING)


def test_imports_of_every_form_are_seen():
    """Under an alias, for a type checker, within a function, and with dots."""
    seen = arrows().edges
    assert ("provision.models.traffic.rules", "provision.models.traffic.queueing") in seen
    assert ("provision.models.problem.instance", "provision.models.base.shown") in seen
    assert ("provision.provision", "provision.cli") not in seen and ("provision.cli", "provision.commands") in seen


TREE = {"data", "benchmarks", "documents", "support", *LAID}


def test_tests_stand_where_their_modules_stand():
    """A room of tests is a room of the source, or of what is beside it."""
    rooms = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    assert {str(one) for one in rooms if one.parts[0] not in TREE} == set()
    floors = [one for one in rooms if one.parts[0] in LAID]
    assert {str(one) for one in floors if not list((ROOT / one).glob("*.py"))} == set()
    assert {str(one) for one in floors if len(one.parts) == 1} <= {"provision"}


def test_names_of_tests_differ():
    """pytest imports them by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert [name for name in set(names) if names.count(name) > 1] == []
