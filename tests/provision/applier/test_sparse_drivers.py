"""Drivers that tell less than others: what they leave out is unknown, and refused only where a step needs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from applier_scenario import plan
from driver import Node

from provision.applier import Permissions, apply, rollback, status
from provision.cli import main
from provision.models.base.errors import InputError

pytest_plugins = ["applier_fixtures"]
MOCK, PROFILES = "PROVISION_NVML_MOCK", "PROVISION_NVML_PROFILES"


@pytest.fixture
def sparse(folder):
    """A T4 and an A100 with MIG off whose drivers answer sparsely, met by this process."""
    node = Node(folder / "node", ["t4", "a100-80gb"])
    for index in range(2):
        node.answer(index, "sparse")
    with node.loaded():
        yield node


def shared_t4():
    """Two processes under MPS on a whole T4."""
    made = plan([("whole", 0, {"a": 2})], kind="t4")
    return made.model_copy(update={"gpus": (made.gpus[0].model_copy(update={"mig": False}),)})


def test_status_tells_what_is_unknown(sparse, state, capsys):
    present, _ = status(state)
    assert [gpu.unknown for gpu in present.gpus] == [("MPS clients",)] * 2
    assert [gpu.slices[0].profile for gpu in present.gpus] == ["whole"] * 2
    assert main(["status", "--state", str(state)]) == 0
    assert "GPU 1: its driver does not tell MPS clients; they are unknown" in capsys.readouterr().out
    assert main(["status", "--state", str(state), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"][0]["unknown"] == ["MPS clients"]


def test_drivers_that_tell_everything_leave_nothing_unknown(node, state):
    assert [gpu.unknown for gpu in status(state)[0].gpus] == [(), ()]


def test_what_needs_nothing_unknown_is_applied_and_rolled_back(sparse, state):
    assert apply(shared_t4(), state).outcome == "applied"
    assert apply(shared_t4(), state).steps == ()
    assert rollback(state).outcome == "restored" and not sparse.daemons()


def test_a_mig_switch_is_refused_while_clients_are_unknown_and_by_the_driver(sparse, state):
    before, wanted = sparse.gpus, plan([("3g.40gb", 4)])
    with pytest.raises(InputError, match="does not tell which MPS clients there are") as refused:
        apply(wanted, state, permissions=Permissions(allow_mig_mode_change=True))
    assert "\n" not in str(refused.value) and sparse.counts[1] == 0
    outcome = apply(wanted, state, permissions=Permissions(allow_mig_mode_change=True, evict=True))
    assert outcome.outcome == "restored" and "nvmlDeviceSetMigMode: not supported" in outcome.failure
    assert "leave the GPU out" in outcome.failure
    assert sparse.gpus == before and not sparse.daemons()


def test_instances_that_are_not_told_are_not_touched(node, state):
    apply(plan([("3g.40gb", 4)], []), state)
    node.answer(0, "sparse")
    assert "MIG instances" in status(state)[0].gpus[0].unknown
    begun = node.counts[1]
    with pytest.raises(InputError, match="does not tell which MIG instances there are"):
        apply(plan([("1g.10gb", 0)]), state, gpus=["0"], permissions=Permissions(evict=True))
    assert node.counts[1] == begun and len(node.instances(0)) == 1


@pytest.mark.skipif(MOCK not in os.environ, reason=f"no {MOCK}: the folder of NVIDIA's own mock of libnvidia-ml.so.1")
def test_nvidias_mock_is_told(tmp_path):
    """Every profile of the mock has a status: nothing contradicts itself, what is not told is unknown."""
    profiles = sorted(Path(os.environ[PROFILES]).glob("*.yaml"))
    assert profiles
    for profile in profiles:
        environment = os.environ | {"LD_LIBRARY_PATH": os.environ[MOCK], "MOCK_NVML_CONFIG": str(profile)}
        command = [sys.executable, "-m", "provision", "status", "--json", "--state", str(tmp_path)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (profile, ran.stderr)
        assert json.loads(ran.stdout)["gpus"]
