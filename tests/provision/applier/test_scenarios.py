"""What goes wrong on real nodes, scenario by scenario, and what the applier makes of it."""

import pytest
from driver import Node
from driver.scenes import SCENES, play

pytest_plugins = ["applier_fixtures"]


@pytest.mark.parametrize("name", SCENES)
def test_scenario(name, folder, state):
    scene = SCENES[name]
    told = scene.get("standin", {})
    types = told.get("types", ["a100-80gb"])
    node = Node(folder / "node", types, mig=told.get("mig", True))

    def tell(scene):
        for gpu in range(len(types)):
            if "settles" in told:
                node.settle(gpu, told["settles"])
            if "answers" in told:
                node.answer(gpu, told["answers"])

    with node.loaded(inside=True):
        assert play(scene, state, tell, lambda: [node.reset(gpu) for gpu in range(len(types))]) == []
