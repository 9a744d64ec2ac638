"""The scenarios A1 to A25, each on the stand-in of NVIDIA's driver; those about owners also where UUIDs come again."""

import tempfile
from pathlib import Path

import pytest
from driver import Node
from driver.direct import DirectCalls
from reliability import SCENARIOS, Stage, played

from provision.applier.driver import nvml
from provision.applier.serving import processes

SERVED = ("A20", "A23")
"""The scenarios whose servers are found among all processes of the machine."""
MEMORY = Path("/dev/shm")
CASES = [*((name, "fully") for name in SCENARIOS), ("A7", "named"), ("A9", "named")]


@pytest.mark.parametrize(("name", "uuids"), CASES)
def test_reliability(name, uuids, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="r", dir=MEMORY if MEMORY.is_dir() else None) as held:
        folder = Path(held)
        if name not in SERVED:
            (folder / "proc").mkdir()
            monkeypatch.setattr(processes, "PROC", folder / "proc")
        if name != "A21":
            # Only there a call never returns, which takes a thread of its own to see.
            monkeypatch.setattr(nvml, "Calls", DirectCalls)
        node = Node(folder / "node", ["a100-80gb"] * 2, mig=True)
        for gpu in range(2):
            node.answer(gpu, uuids)
        with node.loaded(inside=True):
            stage = Stage(folder, node=node, draws=1)
            assert played(name, stage) == [] and stage.cases
