"""What a scenario of one call cannot show: reboots, consumers, daemons of MPS, drivers that answer late."""

import configparser
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from applier_scenario import KIND, places, plan, standing
from driver import Node

from provision.applier import Permissions, apply, apply_last, locks, outcome, rollback, status
from provision.applier.driver import changes
from provision.cli import main, parser
from provision.models.base.errors import InputError

pytest_plugins = ["applier_fixtures"]


@pytest.mark.parametrize("kind", [KIND, "h100-80gb"])
def test_what_a_reboot_took_is_applied_again(folder, state, kind):
    """On Hopper a reboot takes MIG mode, too; what a rollback led to is not applied over."""
    node = Node(folder / "node", [kind], mig=True)
    allowed = Permissions(allow_mig_mode_change=True)
    with node.loaded(inside=True):
        apply(plan([("3g.40gb", 4, {"a": 2})], kind=kind), state)
        before = standing(node, state)
        node.reboot()
        assert not node.instances(0)
        assert apply_last(state, permissions=allowed).outcome == "applied" and standing(node, state) == before
        assert apply_last(state).steps == ()
        assert main(["apply", "--last", "--yes", "--state", str(state)]) == 0
        rollback(state, permissions=allowed)
        node.reboot()
        apply_last(state, permissions=allowed)
        assert standing(node, state) != before


def test_the_unit_of_the_documentation_is_a_command_and_comes_before_the_kubelet():
    text = (Path(__file__).parents[3] / "docs/apply.md").read_text()
    unit = configparser.ConfigParser()
    unit.optionxform = str
    unit.read_string(text.partition("```ini\n")[2].partition("```")[0])
    _, verb, *options = shlex.split(unit["Service"]["ExecStart"])
    assert parser(verb).parse_args([verb, *options]).last
    assert unit["Unit"]["Before"] == "kubelet.service"


def test_nothing_recorded_cannot_be_applied_again(node, state, capsys):
    assert main(["apply", "--last", "--yes", "--state", str(state)]) == 2
    assert "no run is recorded there" in capsys.readouterr().err
    assert main(["apply", "--yes", "--state", str(state)]) == 2
    assert "no plan; name a plan file, or add --last" in capsys.readouterr().err


def test_consumers_are_told_to_look_again(node, state, folder, monkeypatch):
    (folder / "cdi").mkdir()
    (folder / "cdi/nvidia.yaml").write_text("")
    monkeypatch.setattr(outcome, "CDI_FOLDERS", (folder / "cdi", folder / "none"))
    monkeypatch.setattr(outcome, "KUBELET", folder)
    monkeypatch.setattr(outcome, "processes", lambda: [SimpleNamespace(name="nvidia-device-p")])
    notes = apply(plan([("3g.40gb", 4)]), state, gpus=["0"]).notes
    assert notes[0] == f"containers do not see the change: nvidia-ctk cdi generate --output={folder}/cdi/nvidia.yaml"
    assert "rollout restart daemonset nvidia-device-plugin-daemonset" in notes[1] and len(notes) == 2
    monkeypatch.setattr(outcome, "processes", list)
    assert "rollout restart daemonset NAME" in rollback(state).notes[1]
    assert apply(plan([]), state, gpus=["1"]).notes == ()


def test_who_holds_a_device_file_is_named(folder, monkeypatch):
    held = folder / "nvidia0"
    held.write_text("")
    (folder / "modules").write_text("nvidia_drm 1 0\n")
    monkeypatch.setattr(changes, "DEVICES", str(folder / "nvidia"))
    with open(held) as file, subprocess.Popen(["sleep", "600"], stdin=file) as process:
        assert f"{folder}/nvidia* is open in process {process.pid} sleep: end or stop it" in changes.holders()
        process.kill()
    monkeypatch.setattr(changes, "PROC", folder)
    assert "the module nvidia_drm is loaded: modprobe -r nvidia_drm" in changes.holders()


def test_a_daemon_that_died_is_started_again(node, state):
    wanted = plan([("3g.40gb", 4, {"a": 2})])
    apply(wanted, state, gpus=["0"])
    (daemon,) = node.daemons().values()
    node.end_process(daemon.pid)
    assert [piece.mps for piece in status(state)[0].gpus[0].slices] == [False]
    assert apply(wanted, state, gpus=["0"]).outcome == "applied" and len(node.daemons()) == 1
    assert apply(wanted, state, gpus=["0"]).steps == ()


def test_a_daemon_that_hangs_is_told_and_killed(node, state, folder, capsys):
    """It is known by its name and its pipe directory; here another program stands for it."""
    with node.loaded(inside=True):
        _hang(node, state, folder, capsys)


def _hang(node, state, folder, capsys):
    wanted = plan([("3g.40gb", 4, {"a": 2})])
    apply(wanted, state, gpus=["0"])
    (pipe, daemon), = node.daemons().items()
    program = folder / "nvidia-cuda-mps-control"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"], env={"CUDA_MPS_PIPE_DIRECTORY": pipe})
    node.fault("mps:get_server_list", 1, "hang")
    assert main(["status", "--state", str(state)]) == 0
    assert "get_server_list: no answer within 10 s" in capsys.readouterr().out
    for number in (1, 2, 3):
        node.fault("mps:get_server_list", number, "hang")
    node.end_process(daemon.pid)
    assert apply(wanted, state, gpus=["0"]).outcome == "applied"
    assert process.wait(60) < 0
    (again,) = node.daemons().values()
    assert again.pid != daemon.pid and apply(wanted, state, gpus=["0"]).steps == ()


def test_a_daemon_of_another_user_is_told(node, state, capsys):
    apply(plan([("3g.40gb", 4, {"a": 2})]), state, gpus=["0"])
    (pipe,) = node.daemons()
    node.give_daemon(pipe)
    assert main(["status", "--state", str(state)]) == 0
    said = f"the MPS daemon at {pipe} is another user's; run as that user or as root"
    assert said in capsys.readouterr().out
    outcome = apply(plan([("4g.40gb", 0)]), state, gpus=["0"])
    assert outcome.outcome == "unrestored" and said in outcome.failure
    assert places(node) == [(5, 0), (9, 4)] or places(node) == [(9, 4)]


LATE = """
import sys, pynvml
from ctypes import byref
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
print("there", flush=True)
sys.stdin.readline()
place = pynvml.c_nvmlGpuInstancePlacement_t(4, 4)
pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, byref(place))
print("made", flush=True)
"""


def test_a_driver_that_answers_late_undoes_nothing_of_others(node, state, folder, monkeypatch):
    """Another process makes an instance that this one does not see yet: it is refused its place and left alone."""
    node.answer(0, "late")
    command = [sys.executable, "-c", LATE]
    other = subprocess.Popen(command, env=node.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other.stdout.readline()

    def meddle(step):
        if step.action == "create_instance":
            other.stdin.write("go\n")
            other.stdin.flush()
            other.stdout.readline()

    outcome = apply(plan([("3g.40gb", 4)]), state, gpus=["0"], report=meddle)
    assert outcome.outcome == "restored" and places(node) == [(9, 4)]
    assert other.wait(60) == 0


def test_what_another_applier_did_is_seen_once_it_is_told(node, state, folder, monkeypatch):
    monkeypatch.setattr(locks, "SETTLE_S", 1.0)
    node.answer(0, "late")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from applier_scenario import plan; from provision.applier import"
        " apply; apply(plan([('3g.40gb', 4)]), sys.argv[2], gpus=['0'])"
    )
    assert status(state)[0].gpus[0].slices == ()
    support = str(Path(__file__).parents[2] / "support")
    subprocess.run([sys.executable, "-c", script, support, folder / "t"], env=node.environment(), check=True)
    with pytest.raises(InputError, match=r"3g\.40gb at 4 was made by something else"):
        apply(plan([("7g.80gb", 0)]), state, gpus=["0"])
