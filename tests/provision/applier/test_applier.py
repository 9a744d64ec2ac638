"""The applier on the stand-in of NVIDIA's driver, through the real bindings and programs."""

import io
import json
import os
import signal
import time
from pathlib import Path

import pynvml
import pytest
from applier_scenario import KIND, instance_of, places, plan, standing
from driver import Node

from provision.applier import Commands, Permissions, apply, difference, rollback, status
from provision.applier.driver import changes
from provision.applier.journal import Journal
from provision.applier.serving import servers
from provision.cli import main
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan

pytest_plugins = ["applier_fixtures"]


def test_a_plan_is_applied_once_and_rolled_back(scenario):
    outcome = scenario.apply()
    assert outcome.outcome == "applied" and outcome.steps
    target = scenario.standing()
    begun = scenario.node.counts[1]
    assert scenario.apply().steps == ()
    assert scenario.node.counts[1] == begun
    assert target != scenario.former
    assert rollback(scenario.state).outcome == "restored"
    assert scenario.standing() == scenario.former
    assert rollback(scenario.state).steps == ()
    assert {process.pid for process in scenario.node.processes()} >= scenario.clients


def test_what_fits_already_keeps_its_uuid_and_its_daemon(scenario):
    devices = {device for gpu in range(4) for one in scenario.node.instances(gpu) for device in one.devices}
    daemons = {daemon.pid for daemon in scenario.node.daemons().values()}
    outcome = scenario.apply()
    gone = sum(step.action == "destroy_instance" for step in outcome.steps)
    left = {device for gpu in range(4) for one in scenario.node.instances(gpu) for device in one.devices}
    assert len(devices - left) == gone == 2
    assert daemons < {daemon.pid for daemon in scenario.node.daemons().values()}


def test_a_shared_slice_has_a_daemon_and_its_replicas_know_it(node, state):
    apply(plan([("3g.40gb", 4, {"a": 2, "b": 1}), ("1g.10gb", 0, {"c": 1})]), state)
    alone, shared = (one.devices[0][0] for one in node.instances(0))
    (pipe, daemon), = node.daemons().items()
    assert daemon.device == shared and pipe == str(state.resolve() / "slices" / shared / "pipe")
    text = (state / "slices" / shared / "replica-1.env").read_text().splitlines()
    assert f"CUDA_VISIBLE_DEVICES={shared}" in text and f"CUDA_MPS_PIPE_DIRECTORY={pipe}" in text
    assert "PROVISION_WORKLOAD=b" in text and "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100" in text
    text = (state / "slices" / alone / "replica-0.env").read_text()
    assert f"CUDA_VISIBLE_DEVICES={alone}" in text and "MPS" not in text


def test_a_part_of_the_sms_is_kept_by_mps(node, state):
    """One replica with one process and half of the SMs needs a daemon as much as two processes do."""
    wanted = plan([("3g.40gb", 4, {"a": 1})]).model_dump()
    wanted["gpus"][0]["slices"][0]["replicas"][0]["sm_share"] = 0.5
    assert apply(Plan.model_validate(wanted), state).outcome == "applied"
    (pipe, _), = node.daemons().items()
    (path,) = (state / "slices").rglob("replica-0.env")
    text = path.read_text().splitlines()
    assert f"CUDA_MPS_PIPE_DIRECTORY={pipe}" in text and "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in text


def test_a_whole_gpu_without_mig_is_shared_too(folder, state):
    node = Node(folder / "node", ["t4"])
    shared = plan([("whole", 0, {"a": 2})], kind="t4")
    shared = shared.model_copy(update={"gpus": (shared.gpus[0].model_copy(update={"mig": False}),)})
    with node.loaded():
        assert apply(shared, state).outcome == "applied"
        assert [daemon.device for daemon in node.daemons().values()] == [node.gpus[0].uuid]
        assert apply(shared, state).steps == ()
        assert rollback(state).outcome == "restored" and not node.daemons()


def test_the_whole_of_a_double_memory_slice_is_used(folder, state):
    node = Node(folder / "node", ["h100-80gb"], mig=True)
    with node.loaded():
        assert apply(plan([("1g.20gb", 6)], kind="h100-80gb"), state).outcome == "applied"
        assert [piece.computes[0].sms for piece in status(state)[0].gpus[0].slices] == [26]


def test_a_busy_slice_is_not_touched_unless_told(node, state, bystander):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    node.start_process(node.instances(0)[0].devices[0][0], pid=bystander.pid)
    with pytest.raises(InputError, match=f"GPU 0, 3g.40gb at 4 is in use: end process {bystander.pid} sleep"):
        apply(plan([("7g.80gb", 0)]), state, gpus=["0"])
    assert places(node) == [(9, 4)]
    outcome = apply(plan([("7g.80gb", 0)]), state, gpus=["0"], permissions=Permissions(evict=True))
    assert outcome.outcome == "applied" and bystander.wait() == -signal.SIGTERM
    assert places(node) == [(0, 0)]


def test_a_client_that_comes_meanwhile_stops_the_run_and_all_is_restored(node, state):
    apply(plan([("2g.20gb", 0), ("3g.40gb", 4)]), state, gpus=["0"])
    late = []

    def arrive(step):
        if not late:
            late.append(node.start_process(node.instances(0)[1].devices[0][0]))

    outcome = apply(plan([("1g.10gb", 2), ("1g.10gb", 6)]), state, gpus=["0"], report=arrive)
    assert outcome.outcome == "restored" and f"in use by process {late[0]}" in outcome.failure
    assert places(node) == [(14, 0), (9, 4)]
    assert [process.pid for process in node.processes()] == late


def test_what_cannot_be_restored_is_said(node, state):
    apply(plan([("3g.40gb", 0)]), state, gpus=["0"])

    def occupy(step):
        if step.action == "start_mps":
            node.start_process(node.instances(0)[0].devices[0][0])
            node.fault("mps:-d", 1, "error", 1)

    outcome = apply(plan([("4g.40gb", 0, {"a": 2})]), state, gpus=["0"], report=occupy)
    assert outcome.outcome == "unrestored" and "4g.40gb at 0 is in use" in outcome.unrestored[0]
    assert Journal(state).last().unfinished
    node.end_process(node.processes()[0].pid)
    assert rollback(state).outcome == "restored"
    assert places(node) == [(9, 0)]


def test_instances_cut_into_several_compute_instances_come_back(node, state):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    _cut_into_pieces()
    former = standing(node, state)
    with pytest.raises(InputError, match=r"use 3g\.40gb at 4, which something else made\? .* --adopt to take it over"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    allowed = Permissions(evict_foreign=True, adopt=True)
    assert apply(plan([("3g.40gb", 4)]), state, gpus=["0"], permissions=allowed).outcome == "applied"
    assert [len(one.devices) for one in node.instances(0)] == [1]
    assert rollback(state).outcome == "restored"
    assert standing(node, state) == former


def _cut_into_pieces():
    """Cut the only instance of GPU 0 into compute instances of one and two slices."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    instance = next(gi for gi in (_by_id(gpu, identity) for identity in range(16)) if gi)
    pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
    for profile in (pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE):
        info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, 0)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
    pynvml.nvmlShutdown()


def _by_id(gpu, identity):
    try:
        return pynvml.nvmlDeviceGetGpuInstanceById(gpu, identity)
    except pynvml.NVMLError_NotFound:
        return None


def test_mig_mode_changes_only_when_allowed(folder, state):
    node = Node(folder / "node", [KIND])
    allowed = Permissions(allow_mig_mode_change=True)
    with node.loaded():
        with pytest.raises(InputError, match="GPU 0: a MIG mode differs or is pending: turn MIG on"):
            apply(plan([("3g.40gb", 4)]), state)
        assert apply(plan([("3g.40gb", 4)]), state, permissions=allowed).outcome == "applied"
        assert node.gpus[0].mig and places(node) == [(9, 4)]
        with pytest.raises(InputError, match="turn MIG off"):
            rollback(state)
        assert rollback(state, permissions=allowed).outcome == "restored"
        assert not node.gpus[0].mig


def test_a_pending_mode_is_not_a_current_one(folder, state):
    node = Node(folder / "node", [KIND])
    node.settle(0, "held")
    with node.loaded():
        outcome = apply(plan([("3g.40gb", 4)]), state, permissions=Permissions(allow_mig_mode_change=True))
    assert outcome.outcome == "restored" and "activation: in use" in outcome.failure
    assert (node.gpus[0].mig, node.gpus[0].pending_mig) == (0, 0)


def test_after_a_reboot_what_was_left_behind_is_cleared(node, state):
    wanted = plan([("3g.40gb", 4, {"a": 2})])
    apply(wanted, state)
    gone = node.instances(0)[0].devices[0][0]
    node.reboot()
    assert status(state)[0].leftovers == (gone,)
    assert apply(wanted, state).outcome == "applied"
    assert status(state)[0].leftovers == () and len(node.daemons()) == 1


def test_servers_are_started_watched_and_stopped(node, state, monkeypatch):
    monkeypatch.setattr(servers, "SETTLE_S", 0.05)
    wanted, commands = plan([("3g.40gb", 4, {"a": 2})]), Commands("sleep 600")
    try:
        assert apply(wanted, state, commands=commands).outcome == "applied"
        device = node.instances(0)[0].devices[0][0]
        first, second = servers.running(state.resolve())[device][0].values()
        environment = Path(f"/proc/{first}/environ").read_text().split("\0")
        assert f"CUDA_VISIBLE_DEVICES={device}" in environment
        assert f"CUDA_MPS_PIPE_DIRECTORY={state.resolve()}/slices/{device}/pipe" in environment
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        assert [step.action for step in difference(wanted, state, commands=commands)[1]] == ["add_replica"]
        assert apply(wanted, state, commands=commands).outcome == "applied"
        assert second in servers.running(state.resolve())[device][0].values()
    finally:
        assert apply(plan([]), state, gpus=["0"]).outcome == "applied"
    assert not servers.running(state.resolve()) and not node.daemons() and not places(node)


def test_servers_are_no_strangers_on_their_slices(node, state):
    assert apply(plan([("3g.40gb", 4, {"a": 2})]), state, commands=Commands("cuda-program")).outcome == "applied"
    until = time.monotonic() + 60
    while [one.kind for one in node.processes()].count("M+C") < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert len(node.processes()) == 4
    assert [piece.clients for piece in status(state)[0].gpus[0].slices] == [()]
    assert apply(plan([("4g.40gb", 0)]), state, gpus=["0"]).outcome == "applied"
    assert not node.processes() and places(node) == [(5, 0)]


def test_a_server_that_ends_at_once_fails_the_run(node, state):
    outcome = apply(plan([("3g.40gb", 4, {"a": 1})]), state, commands=Commands("sh -c 'echo no weights; exit 3'"))
    assert outcome.outcome == "restored" and not places(node)
    assert "ended with exit code 3: no weights" in outcome.failure
    outcome = apply(plan([("3g.40gb", 4, {"a": 1})]), state, commands=Commands("./no-such-program"))
    assert outcome.outcome == "restored" and "No such file or directory" in outcome.failure


def test_servers_that_are_not_ours_keep_a_slice_busy(node, state):
    apply(plan([("3g.40gb", 4, {"a": 2})]), state)
    (pipe, _), = node.daemons().items()
    client = node.start_client(pipe)
    with pytest.raises(InputError, match=f"end process {client}"):
        apply(plan([("1g.10gb", 5)]), state, gpus=["0"])
    node.end_process(client)
    assert apply(plan([("1g.10gb", 5)]), state, gpus=["0"]).outcome == "applied"
    assert not node.daemons() and places(node) == [(19, 5)]


def test_the_commands(node, tmp_path, state, capsys, typed, monkeypatch):
    planned = plan([("3g.40gb", 4, {"a": 2})])
    write(planned, tmp_path / "plan.json")
    write(instance_of(planned), tmp_path / "instance.json")
    of_plan = [str(tmp_path / "plan.json"), "--state", str(state), "--instance", str(tmp_path / "instance.json")]

    def run(*arguments):
        code = main([*arguments])
        return code, *capsys.readouterr()

    code, out, _ = run("diff", *of_plan, "--json")
    assert code == 1 and [step["action"] for step in json.loads(out)["steps"]][:1] == ["create_instance"]
    assert not state.exists()
    assert run("assert", *of_plan)[:2][0] == 1
    with monkeypatch.context() as closed:
        closed.setattr("sys.stdin", io.StringIO())
        code, out, err = run("apply", *of_plan)
    assert code == 2 and out == "" and "nobody to ask; look at provision diff and add --yes" in err
    typed("n\n")
    assert run("apply", *of_plan)[0] == 1 and not places(node)
    typed("y\n")
    assert run("apply", *of_plan)[0] == 0 and run("rollback", "--state", str(state), "--yes")[0] == 0
    code, out, err = run("apply", *of_plan, "--yes")
    assert (code, out) == (0, "4 steps\napplied: the plan stands\n") and "create 3g.40gb at 4" in err
    assert run("assert", *of_plan)[:2] == (0, "holds\n")
    assert run("diff", *of_plan)[:2] == (0, "no difference\n")
    code, out, _ = run("status", "--state", str(state), "--json")
    shown = json.loads(out)["gpus"][0]["slices"][0]
    assert code == 0 and shown["mps"] and shown["devices"] == [node.instances(0)[0].devices[0][0]]
    assert "3g.40gb at 4" in run("status", "--state", str(state))[1]
    code, out, _ = run("rollback", "--state", str(state), "--yes", "--json")
    assert code == 0 and json.loads(out)["outcome"] == "restored" and not places(node)


def test_device_nodes_are_made_for_new_instances(node, state, monkeypatch):
    monkeypatch.setattr(changes, "MINORS", node.folder)
    apply(plan([("3g.40gb", 4)]), state)
    assert any(call.name.startswith("smi:") for call in node.calls())


def test_a_path_too_long_for_sockets_is_refused_before_anything(node, tmp_path):
    state = tmp_path / ("s" * 60)
    with pytest.raises(InputError, match="characters too long for sockets of MPS"):
        apply(plan([("3g.40gb", 4, {"a": 2})]), state)
    assert not places(node) and Journal(state).last() is None


def test_nothing_recorded_is_nothing_to_go_back_to(node, state):
    with pytest.raises(InputError, match="no run is recorded there"):
        rollback(state)
