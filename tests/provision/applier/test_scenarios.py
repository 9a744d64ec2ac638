"""What goes wrong on real nodes, scenario by scenario, and what the applier makes of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from driver import Node
from driver.scenes import SCENES, play_on

pytest_plugins = ["applier_fixtures"]


@pytest.mark.parametrize("name", SCENES)
def test_scenario(name, folder, state):
    scene = SCENES[name]
    told = scene.get("standin", {})
    node = Node(folder / "node", told.get("types", ["a100-80gb"]), mig=told.get("mig", True))
    with node.loaded(inside=True):
        assert play_on(node, scene, state) == []


@pytest.mark.parametrize(("name", "status"), [("a-foreign-partition", 0), ("other-names-and-ids", 77), ("A6", 0)])
def test_a_scenario_is_played_on_any_library(name, status, folder):
    """Here the stand-in is the library that the process loads; a GPU that lacks a profile is not played on."""
    node = Node(folder / "node", ["a100-80gb" if status == 0 else "a30"], mig=True)
    script = Path(__file__).parents[3] / "benchmarks/faults.py"
    done = subprocess.run([sys.executable, script, "--scene", name], env=node.environment(), capture_output=True)
    assert (done.returncode, done.stderr) == (status, b"") and not node.instances(0)
