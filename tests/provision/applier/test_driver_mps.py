"""The stand-in for nvidia-cuda-mps-control: commands, quirks, and daemons that keep their MIG device in use."""

import signal
import subprocess
import sys
import time

import pynvml
import pytest
from driver import Node
from driver.layouts import create, mig_device


class Control:
    """The program with the environment of one MIG device's daemon."""

    def __init__(self, node, pipe, device):
        self.node, self.pipe = node, pipe
        self.environment = node.environment(CUDA_MPS_PIPE_DIRECTORY=str(pipe), CUDA_VISIBLE_DEVICES=device)

    def run(self, *arguments, commands=""):
        """(Exit status, stdout)."""
        done = subprocess.run(
            ["nvidia-cuda-mps-control", *arguments],
            env=self.environment,
            input=commands,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout.strip()

    def ask(self, commands):
        """The answer of a daemon that can be reached."""
        status, text = self.run(commands=commands)
        assert status == 0
        return text

    def run_in_another_process(self, commands):
        """The exit status of a process that runs the program, and that a kill fault hits."""
        script = "import subprocess, sys; subprocess.run(['nvidia-cuda-mps-control'], input=sys.argv[1], text=True)"
        return subprocess.run([sys.executable, "-c", script, commands], env=self.environment, timeout=60).returncode


@pytest.fixture
def node(tmp_path):
    """Two A100; the first has a 3g with a MIG device."""
    node = Node(tmp_path / "node", ["a100-80gb", "a100-80gb"], mig=True)
    with node.loaded():
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        node.compute = pynvml.nvmlGpuInstanceCreateComputeInstance(create(gpu, 9, 4, 4), 2)
        node.uuid = pynvml.nvmlDeviceGetUUID(mig_device(gpu, node.compute))
        yield node
        pynvml.nvmlShutdown()


@pytest.fixture
def control(node, tmp_path):
    """The program for the MIG device, its daemon running."""
    control = Control(node, tmp_path / "pipe", node.uuid)
    assert control.run("-d") == (0, "")
    return control


def test_no_daemon(node, tmp_path):
    """Without one the program fails; with one a second does not start."""
    control = Control(node, tmp_path / "pipe", node.uuid)
    assert control.run(commands="get_server_list\n") == (1, "Cannot find MPS control daemon process")
    assert control.run("-d")[0] == 0
    assert control.run("-d") == (1, "An instance of this daemon is already running")
    assert control.run(commands="quit\n") == (0, "")
    assert control.run(commands="ps\n")[0] == 1


@pytest.mark.parametrize(
    "command",
    [
        "set_default_active_thread_percentage 0",
        "set_default_active_thread_percentage 101",
        "set_default_active_thread_percentage many",
        "set_default_active_thread_percentage",
        "set_active_thread_percentage 1 50",
        "set_default_device_pinned_mem_limit 0 1T",
        "shutdown_server 1",
        "make_coffee",
    ],
)
def test_rejected_commands_end_with_success(control, command):
    """The quirk: exit status 0, the reason on stdout, nothing changed."""
    status, text = control.run(commands=f"{command}\nget_default_active_thread_percentage\n")
    reason, percent = text.splitlines()
    assert (status, percent) == (0, "100.0") and reason


def test_defaults_hold_for_future_servers_only(control):
    """A running server keeps its percentage; what was set is read back."""
    control.ask("start_server -uid 0\nset_default_active_thread_percentage 40\n")
    (server,) = control.ask("get_server_list").split()
    assert control.ask(f"get_active_thread_percentage {server}\nget_default_active_thread_percentage") == "100.0\n40.0"
    control.ask(f"shutdown_server {server}\nstart_server -uid 0\n")
    (successor,) = control.ask("get_server_list").split()
    assert successor != server and control.ask(f"get_active_thread_percentage {successor}") == "40.0"


def test_clients_keep_what_they_started_with(node, control):
    """A server's new percentage is for new clients; a client may ask for less, not for more."""
    first = node.start_client(control.pipe)
    (server,) = control.ask("get_server_list").split()
    control.ask(f"set_active_thread_percentage {server} 30")
    second, third = node.start_client(control.pipe, percent=50), node.start_client(control.pipe, percent=10)
    (daemon,) = node.daemons().values()
    granted = {client["pid"]: client["percent"] for client in daemon.servers[0]["clients"]}
    assert granted == {first: 100, second: 30, third: 10}
    assert control.ask(f"get_client_list {server}").split() == [str(pid) for pid in (first, second, third)]
    assert len(control.ask("ps").splitlines()) == 4
    control.ask(f"terminate_client {server} {second}")
    assert control.ask(f"get_client_list {server}").split() == [str(pid) for pid in (first, third)]


def test_memory_limits_are_read_back(control):
    """A default for servers that come, then the server's own."""
    control.ask("set_default_device_pinned_mem_limit 0 2G\nstart_server -uid 0\n")
    (server,) = control.ask("get_server_list").split()
    assert control.ask(f"set_device_pinned_mem_limit {server} 0 512M\nget_device_pinned_mem_limit {server} 0") == "512M"
    assert control.ask("get_default_device_pinned_mem_limit 0") == "2G"


def test_a_server_keeps_its_device_in_use_until_the_daemon_quits(node, control):
    """It outlives its last client; quit frees the MIG device, and settings are lost."""
    client = node.start_client(control.pipe)
    device = pynvml.nvmlDeviceGetHandleByUUID(node.uuid)
    assert [one.pid for one in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(device)] == [client]
    node.end_process(client)
    (server,) = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert str(server.pid) == control.ask("get_server_list")
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlComputeInstanceDestroy(node.compute)
    control.ask("set_default_active_thread_percentage 20\nquit\n")
    pynvml.nvmlComputeInstanceDestroy(node.compute)
    assert control.run("-d")[0] == 0
    assert control.ask("get_default_active_thread_percentage") == "100.0"


def test_quit_waits_for_clients(node, control):
    """Without a time for ever, with one until then, and the exit status tells that they were dropped."""
    client = node.start_client(control.pipe)
    waiting = subprocess.Popen(["nvidia-cuda-mps-control"], env=control.environment, stdin=subprocess.PIPE, text=True)
    waiting.stdin.write("quit\n")
    waiting.stdin.close()
    time.sleep(0.3)
    assert waiting.poll() is None and node.daemons()
    node.end_process(client)
    assert waiting.wait(60) == 0 and not node.daemons()
    control.run("-d")
    node.start_client(control.pipe)
    assert control.run(commands="quit -t 0.1\n") == (1, "")
    assert node.processes() == []


def test_a_server_of_another_user_waits_for_clients(node, control):
    """One active server per daemon: it makes way when idle, not while it serves."""
    control.ask("start_server -uid 1000\nstart_server -uid 1001\n")
    assert len(control.ask("get_server_list").split()) == 1
    client = node.start_client(control.pipe)
    assert "has clients" in control.ask("start_server -uid 1001")
    node.end_process(client)
    assert control.ask("start_server -uid 1001") == ""


def test_a_device_that_is_gone_is_noticed_by_the_server(node, control):
    """The daemon does not check its device: it is there, and its server cannot start."""
    pynvml.nvmlComputeInstanceDestroy(node.compute)
    assert "Failed to start" in control.ask("start_server -uid 0")
    assert control.ask("get_server_list") == ""


def test_a_cuda_program_is_a_client_if_there_is_a_daemon(node, control, tmp_path):
    """With the daemon's pipe directory it joins within its own percentage, with another it silently runs alone."""
    programs = []
    for pipe, kinds in ((control.pipe, ["C", "M+C"]), (tmp_path / "elsewhere", ["C", "C", "M+C"])):
        own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25", "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        programs.append(subprocess.Popen(["cuda-program"], env=control.environment | own))
        end = time.monotonic() + 60
        while sorted(process.kind for process in node.processes() if process.kind != "D") != kinds:
            assert time.monotonic() < end
            time.sleep(0.01)
    (daemon,) = node.daemons().values()
    assert daemon.servers[0]["clients"] == [{"pid": programs[0].pid, "percent": 25.0, "limits": {}}]
    for program in programs:
        program.terminate()
        program.wait()
    assert control.ask("quit") == ""


def test_a_daemon_dies_with_the_node_or_when_killed(node, control):
    """Its pipe directory stays, nobody answers, and another one can be started there."""
    node.end_process(node.daemons()[str(control.pipe)].pid)
    assert control.pipe.exists() and control.run(commands="ps\n")[0] == 1
    assert control.run("-d")[0] == 0
    node.reboot()
    assert control.run(commands="ps\n")[0] == 1


def test_faults_share_the_counter_with_nvml(node, control):
    """A change is a change, whichever library or program makes it; a rejection has status 0, an error its own."""
    before = node.counts[1]
    node.fault("change", 1, "error")
    node.fault("change", 2, "error_after", code=3)
    assert control.run(commands="set_default_active_thread_percentage 50\n") == (0, "Failed with error 0")
    assert control.run(commands="set_default_active_thread_percentage 60\n") == (3, "Failed with error 3")
    assert control.ask("get_default_active_thread_percentage") == "60.0"
    assert node.counts[1] == before + 2 and node.touched() == {0}


@pytest.mark.parametrize(("kind", "runs"), [("kill_before", True), ("kill_after", False)])
def test_a_kill_hits_the_caller_of_the_program(node, control, kind, runs):
    """The daemon has then quit or not; the next caller goes on from there."""
    node.fault("mps:quit", 1, kind)
    assert control.run_in_another_process("quit\n") == -signal.SIGKILL
    assert bool(node.daemons()) == runs
    assert control.run(commands="quit\n")[0] == (0 if runs else 1)


def test_nvidia_smi_resets_an_idle_gpu(node):
    """It lists GPUs, and resets one unless a process runs there."""

    def reset(gpu):
        command = ["nvidia-smi", "--gpu-reset", "-i", gpu]
        return subprocess.run(command, env=node.environment(), capture_output=True, text=True).returncode

    assert reset("7") == 6
    pid = node.start_process(node.uuid)
    assert reset("0") == 19 and len(node.instances(0)) == 1
    node.end_process(pid)
    assert reset(node.gpus[0].uuid) == 0 and node.instances(0) == []
    listed = subprocess.run(["nvidia-smi", "-L"], env=node.environment(), capture_output=True, text=True).stdout
    assert all(gpu.uuid in listed for gpu in node.gpus)
