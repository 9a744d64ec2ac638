"""The stand-in across processes: hardware outlives them, calls are logged, and faults strike where they were set."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pynvml
import pytest
from driver import Node

CREATE = """
import sys, pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
for profile in map(int, sys.argv[1:]):
    pynvml.nvmlDeviceCreateGpuInstance(gpu, profile)
"""
HALF, QUARTER, EIGHTH = 9, 14, 19


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node", ["a100-80gb", "a100-80gb"], mig=True)


def start(node, *profiles):
    """A process of its own that creates instances on GPU 0, with the binding as it is installed."""
    arguments = [sys.executable, "-c", CREATE, *map(str, profiles)]
    return subprocess.Popen(arguments, env=node.environment(), stderr=subprocess.PIPE, text=True)


def create(node, *profiles):
    """(Exit status, last line on stderr) of such a process."""
    process = start(node, *profiles)
    _, error = process.communicate(timeout=60)
    return process.returncode, (error.splitlines() or [""])[-1]


def profiles(node):
    return [one.profile_id for one in node.instances(0)]


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_hardware_outlives_processes(node):
    """What one process made the next one meets; only the GPU that they named was touched."""
    assert create(node, HALF) == (0, "")
    assert create(node, HALF, EIGHTH) == (1, "pynvml.NVMLError_InsufficientResources: Insufficient Resources")
    assert profiles(node) == [HALF, HALF]
    assert node.touched() == {0}
    assert node.counts == (len(node.calls()), 3)
    assert [call.result for call in node.calls() if call.change] == [0, 0, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES]


def test_without_the_node_there_is_no_driver(node):
    """The library alone behaves like a machine without NVIDIA's."""
    environment = node.environment()
    del environment["NVML_STANDIN_FOLDER"]
    done = subprocess.run([sys.executable, "-c", CREATE], env=environment, capture_output=True, text=True)
    assert "NVMLError_LibraryNotFound" in done.stderr


@pytest.mark.parametrize(
    ("kind", "status", "left"),
    [
        ("error", 1, [HALF]),
        ("error_after", 1, [QUARTER, HALF]),
        ("kill_before", -signal.SIGKILL, [HALF]),
        ("kill_after", -signal.SIGKILL, [QUARTER, HALF]),
    ],
)
def test_faults_at_a_change(node, kind, status, left):
    """The second change goes wrong, once: before its effect or after it."""
    node.fault("change", 2, kind, code=pynvml.NVML_ERROR_IN_USE)
    code, message = create(node, HALF, QUARTER, EIGHTH)
    assert code == status
    assert ("NVMLError_InUse" in message) == kind.startswith("error")
    assert profiles(node) == left
    assert create(node, EIGHTH) == (0, "") and len(profiles(node)) == len(left) + 1


def test_faults_at_any_call_and_at_a_function(node):
    """Calls are counted from when the fault is set: looking counts as a call, not as a change."""
    node.fault("call", 2, "error", code=pynvml.NVML_ERROR_UNKNOWN)
    assert "NVMLError_Unknown" in create(node)[1]
    assert node.calls()[-1].name == "nvmlDeviceGetHandleByIndex_v2"
    node.fault("nvmlDeviceCreateGpuInstance", 3, "error", code=pynvml.NVML_ERROR_GPU_IS_LOST)
    assert create(node, HALF, EIGHTH)[0] == 0
    assert "NVMLError_GpuIsLost" in create(node, EIGHTH)[1]
    assert profiles(node) == [EIGHTH, HALF] or profiles(node) == [HALF, EIGHTH]


def test_a_hanging_call_holds_nobody_else_up(node):
    """It never returns; another process goes on with the same GPU, and the instance is not made."""
    node.fault("change", 1, "hang")
    hanging = start(node, QUARTER)
    wait_until(lambda: any(call.result == "hang" for call in node.calls()))
    assert create(node, HALF) == (0, "")
    assert hanging.poll() is None
    hanging.kill()
    hanging.communicate()
    assert profiles(node) == [HALF]


def test_crash_at_every_change_leaves_a_prefix(node):
    """Killed before and after each change in turn, what is there is what was done until then."""
    for number in (1, 2, 3):
        for kind in ("kill_before", "kill_after"):
            node.reset(0)
            node.fault("change", number, kind)
            assert create(node, HALF, QUARTER, EIGHTH)[0] == -signal.SIGKILL
            assert len(profiles(node)) == number - (kind == "kill_before")


def test_processes_at_the_same_time_lose_no_call(node):
    """Six processes ask for eight 1g on a GPU that takes seven: one fails, and every call has its own number."""
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda count: create(node, *[EIGHTH] * count)[0], (2, 2, 2, 2)))
    assert sorted(codes) == [0, 0, 0, 1]
    assert profiles(node) == [EIGHTH] * 7
    assert [call.number for call in node.calls()] == list(range(1, len(node.calls()) + 1))


def test_a_real_process_leaves_the_gpu_when_it_ends(node):
    """Also while its parent has not yet waited for it."""
    create(node, HALF)
    with node.loaded():
        pynvml.nvmlInit()
        instance = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
        compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
        ((uuid, _),) = node.instances(0)[0].devices
        program = subprocess.Popen(["cuda-program"], env=node.environment(CUDA_VISIBLE_DEVICES=uuid))
        wait_until(lambda: [process.pid for process in node.processes()] == [program.pid])
        with pytest.raises(pynvml.NVMLError_InUse):
            pynvml.nvmlComputeInstanceDestroy(compute)
        program.kill()
        wait_until(lambda: not node.processes())
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlShutdown()
    assert program.wait() == -signal.SIGKILL


def test_unusable_faults_are_refused(node):
    """A misspelt kind or a call number zero would never strike."""
    for kind, number in (("kil", 1), ("error", 0)):
        with pytest.raises(ValueError, match="kinds are"):
            node.fault("call", number, kind)
