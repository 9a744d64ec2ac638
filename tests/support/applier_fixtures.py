"""Fixtures of the applier's tests."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from applier_scenario import KIND, Scenario
from driver import Node

from provision.applier import locks


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The stand-in shows at once what another process changed, unless a test says otherwise."""
    monkeypatch.setattr(locks, "SETTLE_S", 0.0)


@pytest.fixture
def typed(monkeypatch):
    """A function that gives this process a terminal on which a text was typed."""
    ends = os.openpty()
    with open(ends[1]) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        yield lambda text: os.write(ends[0], text.encode())
    os.close(ends[0])


@pytest.fixture
def folder():
    """A folder whose path is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="a") as path:
        yield Path(path)


@pytest.fixture
def state(folder):
    """A state directory."""
    return folder / "s"


@pytest.fixture
def node(folder):
    """Two A100s in MIG mode, met by this process."""
    made = Node(folder / "node", [KIND] * 2, mig=True)
    with made.loaded():
        yield made


@pytest.fixture
def bystander():
    """A process that is somebody else's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def scenario(folder):
    """Five A100s with a former layout, met by this process."""
    made = Scenario(folder)
    with made.node.loaded():
        yield made
