"""Appliers keep out of each other's way on a GPU, whatever their state directories, and no ending lies."""

import os
import signal
import subprocess
import sys
import time

import pytest
from applier_scenario import instance_of, places, plan

from provision.applier import Permissions, apply, locks, rollback
from provision.applier.journal import Journal
from provision.applier.locks import locked_gpus
from provision.instances.read import write
from provision.models.base.errors import InputError

pytest_plugins = ["applier_fixtures"]


def test_a_gpu_is_held_against_other_state_directories(node, state, folder):
    other = folder / "t"
    with locked_gpus([node.gpus[0].uuid], other):
        said = rf"GPU {node.gpus[0].uuid}: another applier is at work \(process {os.getpid()}, --state {other}\)"
        with pytest.raises(InputError, match=said):
            apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
        assert apply(plan([("3g.40gb", 4)]), state, gpus=["1"]).outcome == "applied"
    assert apply(plan([("3g.40gb", 4)]), folder / "u", gpus=["0"]).outcome == "applied"


def test_a_second_applier_begins_with_what_the_first_one_left(node, state, folder):
    """In the middle of one apply another one, with a state directory of its own, is refused and changes nothing."""
    refused = []

    def meddle(step):
        with pytest.raises(InputError, match="another applier is at work") as refusal:
            apply(plan([("7g.80gb", 0)]), folder / "t", gpus=["0"])
        refused.append(refusal)

    assert apply(plan([("3g.40gb", 4)]), state, gpus=["0"], report=meddle).outcome == "applied"
    assert len(refused) == 2 and places(node) == [(9, 4)]


def test_what_another_process_changed_has_time_to_be_told(folder, node, monkeypatch):
    pauses = []
    monkeypatch.setattr(locks, "SETTLE_S", 1.0)
    monkeypatch.setattr(locks, "pause", pauses.append)
    uuid = node.gpus[0].uuid
    for pid in (os.getpid() + 1, os.getpid() + 1, os.getpid()):
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda pid=pid: pid)
            with locked_gpus([uuid], folder):
                pass
    assert len(pauses) == 1 and 0.5 < pauses[0] <= 1.0


def test_a_folder_of_locks_that_cannot_be_used_is_one_line(node, state, folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("PROVISION_LOCKS", str(folder / "file"))
    with pytest.raises(InputError, match=r"GPU .* cannot be locked: .*install -d -m 700"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    assert node.counts[1] == 0


def started(node, folder, *options, **streams):
    """``provision apply`` as a process of its own, on a plan of two slices."""
    planned = plan([("3g.40gb", 4, {"a": 1}), ("3g.40gb", 0)])
    write(planned, folder / "plan.json", force=True)
    write(instance_of(planned), folder / "instance.json", force=True)
    command = [sys.executable, "-m", "provision", "apply", str(folder / "plan.json"), "--state", str(folder / "s")]
    command += ["--gpus", "0", "--yes", "--instance", str(folder / "instance.json"), *options]
    return subprocess.Popen(command, env=node.environment(), **streams)


def test_a_broken_pipe_ends_no_apply(node, folder):
    """``provision apply ... 2>&1 | head -1``: the reader goes, the run goes on to its end."""
    reading, writing = os.pipe()
    os.close(reading)
    process = started(node, folder, stdout=writing, stderr=writing)
    os.close(writing)
    assert process.wait(120) == 0
    assert places(node) == [(9, 0), (9, 4)] and Journal(folder / "s").last().outcome == "applied"


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_says_what_it_left(node, folder, which):
    node.fault("nvmlGpuInstanceCreateComputeInstance", 1, "hang")
    process = started(node, folder, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not any(call.result == "hang" for call in node.calls()):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(which)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + which
    assert said.splitlines()[-1] == "stopped on the way: provision apply goes on, provision rollback goes back"
    assert rollback(folder / "s", Permissions(adopt=True)).outcome == "restored" and not places(node)
