"""What an administrator would fear: odd names, lost journals, full disks, other people's processes, Ctrl-C."""

import os
import signal
import subprocess
import threading
import time
from queue import SimpleQueue

import pynvml
import pytest
from applier_scenario import KIND, instance_of, places, plan
from driver import Node

from provision.applier import Commands, Permissions, apply, rollback, status
from provision.applier.driver import calls
from provision.applier.driver.calls import Calls
from provision.applier.journal import Journal
from provision.applier.locks import locked_state
from provision.applier.serving import servers
from provision.cli import main
from provision.instances.read import write
from provision.models.base.clock import stopping
from provision.models.base.errors import InputError
from provision.models.plans.plan import Plan

pytest_plugins = ["applier_fixtures"]
NONE_NAMED = "is empty"


def planned_file(folder, wanted):
    """The arguments that apply a plan with a state directory."""
    write(wanted, folder / "plan.json", force=True)
    write(instance_of(wanted), folder / "instance.json", force=True)
    return [str(folder / "plan.json"), "--state", str(folder / "s"), "--instance", str(folder / "instance.json")]


@pytest.mark.parametrize(("gpus", "why"), [("", "an argument is empty"), ("0,", NONE_NAMED), (" ", NONE_NAMED)])
def test_no_gpus_are_not_all_gpus(node, folder, gpus, why, capsys):
    assert main(["apply", *planned_file(folder, plan([("7g.80gb", 0, {"a": 1})])), "--yes", "--gpus", gpus]) == 2
    assert why in capsys.readouterr().err and node.counts[1] == 0


def test_a_gpu_named_twice_is_one_gpu(node, state):
    with pytest.raises(InputError, match="needs 2 GPUs of type a100-80gb, 1 may be used"):
        apply(plan([("7g.80gb", 0)], [("7g.80gb", 0)]), state, gpus=["1", node.gpus[1].uuid])
    assert node.counts[1] == 0


def test_ctrl_c_on_the_way_leaves_a_journal_and_says_what_to_do(scenario, folder, capsys, monkeypatch):
    arguments = planned_file(folder, plan([("7g.80gb", 0, {"a": 1})]))

    def interrupt(step):
        if step.action == "destroy_instance":
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("provision.commands.apply._report", interrupt)
    scenario.node.fault("nvmlShutdown", 1, "error", pynvml.NVML_ERROR_UNKNOWN)
    assert main(["apply", *arguments, "--state", str(scenario.state), "--gpus", "0", "--yes"]) == 143
    assert capsys.readouterr().err == "stopped on the way: provision apply goes on, provision rollback goes back\n"
    # The step that had begun is finished and recorded, so that nobody has to be asked who made what stands.
    last = Journal(scenario.state).last()
    assert last.outcome is None and last.taken and not last.unsure and scenario.standing() != scenario.former
    assert main(["rollback", "--state", str(scenario.state), "--yes"]) == 0
    assert scenario.standing() == scenario.former


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [(None, 143, "stopped: nothing is left half done"), ("\x04", 1, "declined: nothing was done")],
)
def test_no_answer_is_no(node, folder, capsys, typed, answer, code, said):
    if answer is None:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        typed(answer)
    assert main(["apply", *planned_file(folder, plan([("3g.40gb", 4, {"a": 1})]))]) == code
    out, err = capsys.readouterr()
    assert said in out + err and node.counts[1] == 0 and Journal(folder / "s").last() is None


def test_a_session_that_ends_badly_has_done_what_it_did(node, folder, capsys):
    node.fault("nvmlShutdown", 1, "error", pynvml.NVML_ERROR_UNKNOWN)
    assert main(["apply", *planned_file(folder, plan([("3g.40gb", 4, {"a": 1})])), "--yes"]) == 0
    assert capsys.readouterr().out.endswith("applied: the plan stands\n") and places(node) == [(9, 4)]


@pytest.mark.parametrize("waits", [lambda folder: hold_state(folder), lambda folder: Calls()("nvmlDeviceGetCount")])
def test_waits_end_with_the_run(node, folder, monkeypatch, waits):
    """A lock that another applier has, and a call that never returns."""
    monkeypatch.setattr(calls, "STOPPED_S", 0.2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: time.sleep(20))
    with stopping() as stop:
        threading.Timer(0.2, stop.ask).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            waits(folder)
        assert stop.asked and time.monotonic() - begun < 10


def hold_state(folder):
    with locked_state(folder / "s"), locked_state(folder / "s", wait=True):
        raise AssertionError("the lock is taken twice")


def test_an_answer_that_was_not_waited_for_is_no_later_calls(node, monkeypatch):
    class Interrupted(SimpleQueue):
        def get(self, *arguments, **options):
            raise KeyboardInterrupt

    call = Calls()
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(calls, "SimpleQueue", Interrupted)
        call("nvmlInit")
    assert call("nvmlDeviceGetCount") == 2
    call("nvmlShutdown")
    call.end()


@pytest.mark.parametrize("name", ["it's $(touch pwned) `id` \"x\" \\ #", "a=b", "two\u2028lines\u0085", "ü ~ *"])
def test_names_are_data(node, state, folder, name):
    """They come back from the environment file, to the applier and to a shell, and nothing in them runs."""
    wanted = plan([("3g.40gb", 4, {name: 1})])
    assert apply(wanted, state).outcome == "applied" and apply(wanted, state).steps == ()
    assert status(state)[0].gpus[0].slices[0].replicas[0].workload == name
    (path,) = (state / "slices").rglob("replica-0.env")
    assert all(one.stat().st_mode & 0o077 == 0 for one in (state, Journal(state).path, path))
    script = 'set -a; . "$0"; printf "%s" "$PROVISION_WORKLOAD"'
    done = subprocess.run(["sh", "-c", script, path], cwd=folder, capture_output=True, check=True)
    assert done.stdout.decode() == name and done.stderr == b"" and not (folder / "pwned").exists()


@pytest.mark.parametrize(
    "line",
    [
        "[1]", "null", '{"event": "begin"}', '{"event": "begin", "run": {"verb": "apply"}}', '{"event": "end"}',
        '{"event": "begin", "run": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=range(6),
)
def test_a_journal_that_is_not_ours_is_not_guessed_at(node, state, line):
    state.mkdir()
    Journal(state).path.write_text(line + "\n")
    for act in (lambda: apply(plan([("3g.40gb", 4)]), state), lambda: rollback(state), lambda: status(state)):
        with pytest.raises(InputError, match=r"journal\.jsonl: has lines that this version of the applier"):
            act()
    assert node.counts[1] == 0


def test_a_state_directory_that_is_a_file(node, state):
    state.write_text("mine")
    with pytest.raises(InputError, match="s: cannot be used: File exists; name another directory with --state"):
        apply(plan([("3g.40gb", 4)]), state)
    with pytest.raises(InputError, match="Not a directory"):
        status(state)
    assert state.read_text() == "mine"


def test_a_shell_with_the_variable_of_servers_is_none(node, state):
    environment = os.environ | {servers.STATE: str(state.resolve())}
    with subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as shell:
        try:
            assert servers.running(state.resolve()) == {} and status(state)[0].leftovers == ()
        finally:
            shell.kill()


def test_a_process_that_has_left_the_slice_is_not_ended(node, state, bystander):
    """Its id could be another's by now."""
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    node.start_process(node.instances(0)[0].devices[0][0], pid=bystander.pid)
    outcome = apply(
        plan([("7g.80gb", 0)]), state, gpus=["0"], permissions=Permissions(evict=True),
        report=lambda step: node.end_process(bystander.pid),
    )
    assert outcome.steps[0].action == "evict" and outcome.outcome == "applied"
    assert bystander.poll() is None


def test_a_client_of_mps_that_comes_meanwhile_is_not_ended(node, state):
    apply(plan([("3g.40gb", 4, {"a": 2})]), state, gpus=["0"])
    (pipe, _), = node.daemons().items()
    late = []

    def arrive(step):
        if step.action == "remove_replica":
            late.append(node.start_client(pipe))

    outcome = apply(plan([("1g.10gb", 5)]), state, gpus=["0"], report=arrive)
    assert outcome.outcome == "restored" and f"in use by process {late[0]}" in outcome.failure
    assert late[0] in {process.pid for process in node.processes()} and places(node) == [(9, 4)]


def test_what_something_else_undoes_meanwhile_is_told(node, state):
    def meddle(step):
        if step.action == "add_replica":
            node.end_process(*(daemon.pid for daemon in node.daemons().values()))

    outcome = apply(plan([("3g.40gb", 4, {"a": 2})]), state, report=meddle)
    assert outcome.outcome == "restored" and not places(node)
    assert "after the last step there is still to do" in outcome.failure


def test_a_process_that_comes_meanwhile_keeps_its_mode(folder, state):
    node = Node(folder / "node", [KIND])
    allowed = Permissions(allow_mig_mode_change=True)
    with node.loaded():
        outcome = apply(
            plan([("3g.40gb", 4)]), state, permissions=allowed,
            report=lambda step: node.processes() or node.start_process(node.gpus[0].uuid),
        )
    assert outcome.outcome == "restored" and node.counts[1] == 0


def test_a_mode_that_was_pending_does_not_block_the_way_back(folder, state):
    node = Node(folder / "node", [KIND])
    node.settle(0, "held")
    allowed = Permissions(allow_mig_mode_change=True)
    whole = Plan(version=1, instance="x", gpus=[{"gpu": KIND, "mig": False, "slices": []}])
    with node.loaded():
        pynvml.nvmlInit()
        pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
        pynvml.nvmlShutdown()
        assert (node.gpus[0].mig, node.gpus[0].pending_mig) == (0, 1)
        assert apply(whole, state, permissions=allowed).outcome == "applied"
        assert rollback(state, permissions=allowed).outcome == "restored"
    assert (node.gpus[0].mig, node.gpus[0].pending_mig) == (0, 0)


def test_an_unfinished_rollback_is_only_rolled_back(node, state, capsys):
    apply(plan([("3g.40gb", 4)]), state)
    node.fault("nvmlGpuInstanceDestroy", 1, "error", pynvml.NVML_ERROR_UNKNOWN)
    node.fault("nvmlGpuInstanceDestroy", 2, "error", pynvml.NVML_ERROR_UNKNOWN)
    assert rollback(state).outcome == "unrestored"
    with pytest.raises(InputError, match="run provision rollback first"):
        apply(plan([("3g.40gb", 4)]), state)
    assert main(["status", "--state", str(state)]) == 0
    assert capsys.readouterr().out.endswith("the last rollback was not finished: provision rollback goes on\n")
    assert rollback(state, Permissions(adopt=True)).outcome == "restored" and not places(node)


def test_several_types_each_go_to_their_own(folder, state):
    node = Node(folder / "node", ["t4", KIND, "a30"], mig=True)
    gpus = [plan([("2g.12gb", 2)], kind="a30").gpus[0], plan([("2g.20gb", 2)]).gpus[0]]
    with node.loaded():
        assert apply(Plan(version=1, instance="x", gpus=gpus), state).outcome == "applied"
    assert (places(node, 0), places(node, 1), places(node, 2)) == ([], [(14, 2)], [(5, 2)])
    assert node.touched() == {1, 2}


@pytest.mark.parametrize("template", ["serve {batch[0]}", "serve {batch.real.x}", "serve {sm_share}", "serve {} {0}"])
def test_odd_templates_are_refused_before_anything(node, state, template):
    with pytest.raises(InputError, match=r"^--server: "):
        apply(plan([("3g.40gb", 4, {"a": 1})]), state, commands=Commands(template))
    assert node.counts[1] == 0
