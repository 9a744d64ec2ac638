"""Appliers that hang, are killed, come in twos or find nothing to work with; and samples of both sweeps."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from applier_scenario import KIND, PLANNED, TARGET, places, plan
from driver import Node

from provision.applier import apply, rollback, servers
from provision.applier.journal import Journal, locked
from provision.instances.read import write
from provision.models.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import faults
import transitions

pytest_plugins = ["applier_fixtures"]


def test_a_driver_that_hangs_is_told_and_the_run_can_be_finished(scenario):
    code = (
        "import sys; from applier_scenario import *; from provision.applier import calls; calls.LIMIT_S = 1\n"
        "from pathlib import Path; sys.exit(str(apply(TARGET, Path(sys.argv[1]), gpus=PLANNED).failure))"
    )
    scenario.node.fault("nvmlGpuInstanceDestroy", 1, "hang")
    done = _python("-c", code, str(scenario.state), node=scenario.node)
    assert "NVML has not answered for 1 s" in done.stderr
    assert Journal(scenario.state).last().outcome == "unrestored"
    assert rollback(scenario.state).outcome == "restored" and scenario.standing() == scenario.former


def _python(*arguments, node, **options):
    environment = node.environment(PYTHONPATH=str(Path(__file__).parent))
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("way_out", ["apply", "rollback"])
def test_a_killed_apply_is_resumed_or_rolled_back(scenario, tmp_path, way_out):
    write(TARGET, tmp_path / "plan.json")
    command = ["-m", "provision", "apply", str(tmp_path / "plan.json"), "--gpus", ",".join(PLANNED), "--yes"]
    command += ["--state", str(scenario.state)]
    scenario.node.fault("nvmlGpuInstanceDestroy", 1, "kill_after")
    assert _python(*command, node=scenario.node).returncode == -signal.SIGKILL
    assert Journal(scenario.state).last().outcome is None
    with pytest.raises(InputError, match="another plan or other options was not finished"):
        apply(plan([]), scenario.state)
    with open(Journal(scenario.state).path, "a") as journal:
        journal.write('{"event": "st')
    if way_out == "rollback":
        assert rollback(scenario.state).outcome == "restored" and scenario.standing() == scenario.former
    else:
        assert scenario.apply().outcome == "applied" and scenario.apply().steps == ()
        assert Journal(scenario.state).last().outcome == "applied"
        assert rollback(scenario.state).outcome == "restored" and scenario.standing() == scenario.former


def test_servers_of_a_killed_apply_are_found_again(node, tmp_path, state):
    write(plan([("3g.40gb", 0, {"a": 1}), ("3g.40gb", 4, {"a": 1})]), tmp_path / "plan.json")
    command = ["-m", "provision", "apply", str(tmp_path / "plan.json"), "--server", "sleep 600", "--yes"]
    node.fault("nvmlGpuInstanceCreateComputeInstance", 2, "kill_after")
    assert _python(*command, "--state", str(state), node=node).returncode == -signal.SIGKILL
    assert len(servers.running(state.resolve())) == 1
    assert rollback(state).outcome == "restored"
    assert not servers.running(state.resolve()) and not places(node)


def test_a_second_applier_is_refused_or_waits(node, tmp_path, state):
    write(plan([("3g.40gb", 4, {"a": 2})]), tmp_path / "plan.json")
    command = ["-m", "provision", "apply", str(tmp_path / "plan.json"), "--yes", "--state", str(state)]
    with locked(state):
        refused = _python(*command, node=node)
        assert refused.returncode == 2 and "another applier is at work; wait for it with --wait" in refused.stderr
        waiting = [
            subprocess.Popen([sys.executable, *command, "--wait"], env=node.environment(), stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        assert not places(node)
    said = [process.communicate()[0].decode() for process in waiting]
    assert [process.returncode for process in waiting] == [0, 0]
    assert sorted(said) == ["4 steps\napplied: the plan stands\n", "applied: the plan stands\n"]
    assert places(node) == [(9, 4)]


def test_what_is_missing_is_one_line(folder, monkeypatch):
    node = Node(folder / "node", [KIND], mig=True)
    command = ["-m", "provision", "status", "--state", str(folder / "s")]
    environment = {name: value for name, value in node.environment().items() if name != "LD_LIBRARY_PATH"}
    for broken, words in (
        (environment, "library not found (NVML error 12): install NVIDIA's driver"),
        (node.environment(), "no permission (NVML error 4): run as root"),
    ):
        node.unprivileged()
        done = subprocess.run([sys.executable, *command], env=broken, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    with Node(folder / "other", [KIND], mig=True).loaded():
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(InputError, match="nvidia-cuda-mps-control: not found"):
            apply(plan([("3g.40gb", 4, {"a": 2})]), folder / "s")


def test_a_sample_of_the_faults():
    sweep = faults.Sweep()
    every = list(faults.cases_of(sweep.record))
    draw = random.Random(1)
    sample = [case for kind in ("error", "error_after", "hang", "kill_before", "kill_after")
              for case in draw.sample([one for one in every if one.kind == kind], 2)]
    assert [line for case in sample for line in sweep.faults(case)] == []


def test_a_sample_of_the_transitions():
    draw, every = random.Random(1), transitions.states()
    assert len(every) == 298
    assert [line for state in draw.sample(every, 3) for line in transitions.check((state, draw.sample(every, 5)))] == []
