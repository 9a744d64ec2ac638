"""Appliers that hang, are killed, come in twos or find nothing to work with; and samples of both sweeps."""

import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pynvml
import pytest
from applier_scenario import in_child, places, plan

from provision.applier import Commands, Permissions, apply, rollback
from provision.applier.driver import calls
from provision.applier.journal import Journal
from provision.applier.locks import locked_state
from provision.applier.serving import servers
from provision.cli import main
from provision.models.base.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import faults
import transitions

pytest_plugins = ["applier_fixtures"]


def test_a_driver_that_hangs_is_told_and_the_run_can_be_finished(scenario, monkeypatch):
    scenario.node.fault("nvmlGpuInstanceDestroy", 1, "hang")
    with monkeypatch.context() as patient:
        patient.setattr(calls, "LIMIT_S", 1)
        assert "NVML has not answered for 1 s" in scenario.apply().failure
    assert Journal(scenario.state).last().outcome == "unrestored"
    back = rollback(scenario.state, Permissions(adopt=True))
    assert back.outcome == "restored" and scenario.standing() == scenario.former


@pytest.mark.parametrize("way_out", ["apply", "rollback"])
def test_a_killed_apply_is_resumed_or_rolled_back(scenario, way_out):
    scenario.node.fault("nvmlGpuInstanceDestroy", 1, "kill_after")
    assert in_child(scenario.apply) == -signal.SIGKILL
    assert Journal(scenario.state).last().outcome is None
    with pytest.raises(InputError, match="another plan or other options was not finished"):
        apply(plan([]), scenario.state)
    with open(Journal(scenario.state).path, "a") as journal:
        journal.write('{"event": "st')
    if way_out == "apply":
        assert scenario.apply().outcome == "applied" and scenario.apply().steps == ()
        assert Journal(scenario.state).last().outcome == "applied"
    assert rollback(scenario.state).outcome == "restored" and scenario.standing() == scenario.former


def test_servers_of_a_killed_apply_are_found_again(node, state, monkeypatch):
    monkeypatch.setattr(servers, "SETTLE_S", 0.05)
    node.fault("nvmlGpuInstanceCreateComputeInstance", 2, "kill_after")
    wanted = plan([("3g.40gb", 0, {"a": 1}), ("3g.40gb", 4, {"a": 1})])
    assert in_child(lambda: apply(wanted, state, commands=Commands("sleep 600"))) == -signal.SIGKILL
    assert len(servers.running(state.resolve())) == 1
    assert rollback(state, Permissions(adopt=True)).outcome == "restored"
    assert not servers.running(state.resolve()) and not places(node)


def test_a_second_applier_is_refused_or_waits(node, state):
    wanted = plan([("3g.40gb", 4, {"a": 2})])
    with ThreadPoolExecutor() as pool:
        with locked_state(state):
            with pytest.raises(InputError, match="another applier is at work; wait for it with --wait"):
                apply(wanted, state)
            waiting = [pool.submit(apply, wanted, state, wait=True) for _ in range(2)]
            assert not places(node)
        outcomes = [one.result() for one in waiting]
    assert {one.outcome for one in outcomes} == {"applied"}
    assert sorted(len(one.steps) for one in outcomes) == [0, 4]
    assert places(node) == [(9, 4)]


def test_what_is_missing_is_one_line(node, state, capsys, monkeypatch):
    def complaint():
        assert main(["status", "--state", str(state)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        return err

    with monkeypatch.context() as without:
        without.delenv("NVML_STANDIN_FOLDER")
        assert "library not found (NVML error 12): install NVIDIA's driver" in complaint()
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        with pytest.raises(InputError, match="nvidia-cuda-mps-control: not found"):
            apply(plan([("3g.40gb", 4, {"a": 2})]), state)
    node.fault("nvmlDeviceGetHandleByIndex_v2", 2, "error", pynvml.NVML_ERROR_GPU_IS_LOST)
    assert "error: GPU 1: nvmlDeviceGetHandleByIndex: gpu is lost" in complaint()
    node.unprivileged()
    assert "no permission (NVML error 4): run as root" in complaint()


def test_a_sample_of_the_faults():
    sweep = faults.Sweep()
    every = list(faults.cases_of(sweep.record))
    draw = random.Random(1)
    sample = [case for kind in ("error", "error_after", "hang", "kill_before", "kill_after")
              for case in draw.sample([one for one in every if one.kind == kind], 1)]
    assert [line for case in sample for line in sweep.faults(case)] == []


def test_a_sample_of_the_transitions():
    draw, every = random.Random(1), transitions.states()
    assert len(every) == 298
    assert [line for state in draw.sample(every, 3) for line in transitions.check((state, draw.sample(every, 3)))] == []
