"""The stand-in's rules beyond geometry: what is refused and why, modes, identities, and driver-chosen placements."""

from ctypes import byref, c_uint

import pynvml
import pytest
from driver import Node
from driver.layouts import create, mig_device
from hypothesis import given, settings
from hypothesis import strategies as st

A100, A30, H100, OFF, T4 = range(5)
FULL, HALF, QUARTER, EIGHTH, EIGHTH_MEDIA, DOUBLE = 0, 9, 14, 19, 20, 15
SHARED = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED


@pytest.fixture
def node(tmp_path):
    """An A100, an A30 and an H100 in MIG mode, an A100 that is not, and a T4 that cannot be."""
    node = Node(tmp_path / "node", ["a100-80gb", "a30", "h100-80gb", "a100-80gb", "t4"], mig=True)
    with node.loaded():
        pynvml.nvmlInit()
        pynvml.nvmlDeviceSetMigMode(gpu(OFF), pynvml.NVML_DEVICE_MIG_DISABLE)
        yield node
        pynvml.nvmlShutdown()


def gpu(index):
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def half_with_process(node):
    """A 3g with its compute instance and a process on it: (GPU instance, compute instance, process id)."""
    instance = create(gpu(A100), HALF, 4, 4)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    uuid = pynvml.nvmlDeviceGetUUID(mig_device(gpu(A100), compute))
    return instance, compute, node.start_process(uuid)


def test_overlap_and_wrong_placement(node):
    """A taken slice is InsufficientResources, the same instance again too; a place off the list InvalidArgument."""
    create(gpu(A100), HALF, 0, 4)
    for start, size, profile in ((0, 4, HALF), (3, 1, EIGHTH), (2, 2, QUARTER), (0, 8, FULL)):
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            create(gpu(A100), profile, start, size)
    for start, size, profile in ((1, 2, QUARTER), (7, 1, EIGHTH), (4, 1, HALF), (0, 1, 77)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            create(gpu(A100), profile, start, size)
    assert [(one.profile_id, one.start) for one in node.instances(A100)] == [(HALF, 0)]
    assert node.instances(OFF) == []


def test_remaining_capacity_and_caps(node):
    """A 3g at 0 leaves room for three 1g or one 3g; one media instance is the most."""
    create(gpu(A100), HALF, 0, 4)
    left = {profile: pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(A100), profile) for profile in (HALF, EIGHTH)}
    assert left == {HALF: 1, EIGHTH: 3}
    pynvml.nvmlDeviceCreateGpuInstance(gpu(A100), EIGHTH_MEDIA)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        create(gpu(A100), EIGHTH_MEDIA, 4, 1)


@pytest.mark.parametrize(
    ("wanted", "picked"),
    [
        ((5, QUARTER, EIGHTH), [0, 4, 6]),
        ((HALF, QUARTER, EIGHTH, EIGHTH), [4, 2, 0, 1]),
        ((QUARTER, EIGHTH, EIGHTH, EIGHTH, EIGHTH, EIGHTH), [4, 6, 0, 1, 2, 3]),
    ],
)
def test_placements_that_the_driver_picks(node, wanted, picked):
    """Those that the user guide shows."""
    made = [pynvml.nvmlDeviceCreateGpuInstance(gpu(A100), profile) for profile in wanted]
    assert [pynvml.nvmlGpuInstanceGetInfo(instance).placement.start for instance in made] == picked


def test_order_matters_without_placements(node):
    """The order bug of the user guide: a 3g asked for after smaller ones does not fit any more."""
    for profile in (QUARTER, EIGHTH, EIGHTH):
        pynvml.nvmlDeviceCreateGpuInstance(gpu(A100), profile)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlDeviceCreateGpuInstance(gpu(A100), HALF)


def test_in_use_until_processes_and_compute_instances_are_gone(node):
    """The teardown works in one order only, and the old handle stays dead when the same instance comes again."""
    instance, compute, pid = half_with_process(node)
    for destroy, handle in ((pynvml.nvmlComputeInstanceDestroy, compute), (pynvml.nvmlGpuInstanceDestroy, instance)):
        with pytest.raises(pynvml.NVMLError_InUse):
            destroy(handle)
    node.end_process(pid)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(instance)
    create(gpu(A100), HALF, 4, 4)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpuInstanceGetInfo(instance)


def test_processes_and_memory_are_seen_where_they_are(node):
    """On the MIG device and its GPU with the instance ids, elsewhere not."""
    _, compute, pid = half_with_process(node)
    device = mig_device(gpu(A100), compute)
    for seen in (device, gpu(A100)):
        (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(seen)
        assert (process.pid, process.usedGpuMemory, process.gpuInstanceId) == (pid, 500 << 20, 1)
    assert pynvml.nvmlDeviceGetMPSComputeRunningProcesses(device) == []
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(A30)) == []
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    assert (memory.total, memory.used) == (40192 << 20, 500 << 20)
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu(A100), pynvml.nvmlMemory_v2).total == 80896 << 20


def test_new_devices_get_new_uuids_and_gpus_keep_theirs(node):
    """The same slice made again is another MIG device."""
    seen = []
    for _ in range(2):
        instance = create(gpu(A100), EIGHTH, 6, 1)
        compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
        device = mig_device(gpu(A100), compute)
        seen.append((pynvml.nvmlDeviceGetUUID(device), pynvml.nvmlDeviceGetUUID(gpu(A100))))
        found = pynvml.nvmlDeviceGetHandleByUUID(seen[-1][0])
        assert pynvml.nvmlDeviceGetGpuInstanceId(found) == 13
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
        assert pynvml.nvmlDeviceGetUUID(parent) == seen[-1][1]
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)
    (first, parent_first), (second, parent_second) = seen
    assert first != second and parent_first == parent_second
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID(first)


def test_indices_of_mig_devices_have_gaps(node):
    """Destroying the first of two MIG devices leaves the second at its index."""
    computes = []
    for start in (0, 1):
        computes.append(pynvml.nvmlGpuInstanceCreateComputeInstance(create(gpu(A100), EIGHTH, start, 1), 0))
    pynvml.nvmlComputeInstanceDestroy(computes[0])
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(A100), 0)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(A100), 1))


def test_compute_instances_share_the_slices(node):
    """A 3g holds 1c + 2c and then no more; 4c it never offers."""
    instance = create(gpu(A100), HALF, 4, 4)
    for profile in (1, 0):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profile)
    assert pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 0
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 3)
    assert [profile for _, profile in node.instances(A100)[0].devices] == [1, 0]


def test_double_memory_on_hopper_has_two_profiles_of_one_slice(node):
    """The first leaves ten SMs idle, the seventh takes all."""
    instance = create(gpu(H100), DOUBLE, 6, 2)
    offered = {
        profile: pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, SHARED).multiprocessorCount
        for profile in (0, 7)
    }
    assert offered == {0: 16, 7: 26}
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 7)
    assert pynvml.nvmlDeviceGetAttributes_v2(mig_device(gpu(H100), compute)).multiprocessorCount == 26


def test_switching_mig_mode(node):
    """The call never fails because the GPU is busy: its result tells, and on Ampere the mode stays pending."""
    assert pynvml.nvmlDeviceSetMigMode(gpu(OFF), 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(gpu(OFF)) == [1, 1]
    half_with_process(node)
    assert pynvml.nvmlDeviceSetMigMode(gpu(A100), 0) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu(A100)) == [1, 0]
    create(gpu(H100), HALF, 4, 4)
    assert pynvml.nvmlDeviceSetMigMode(gpu(H100), 0) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu(H100)) == [1, 1]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetMigMode(gpu(T4), 1)


@pytest.mark.parametrize(
    ("how", "status"), [("held", pynvml.NVML_ERROR_IN_USE), ("pass-through", pynvml.NVML_ERROR_RESET_REQUIRED)]
)
def test_pending_mode_waits_for_a_reset(node, how, status):
    """Something outside stands in the way of an idle Ampere; Hopper needs no reset."""
    for index in (OFF, H100):
        node.settle(index, how)
    assert pynvml.nvmlDeviceSetMigMode(gpu(OFF), 1) == status
    assert pynvml.nvmlDeviceGetMigMode(gpu(OFF)) == [0, 1]
    assert pynvml.nvmlDeviceSetMigMode(gpu(H100), 0) == pynvml.NVML_SUCCESS
    node.reset(OFF)
    assert pynvml.nvmlDeviceGetMigMode(gpu(OFF)) == [1, 1]


def test_reset_and_reboot(node):
    """A busy GPU cannot be reset; a reboot ends everything, and MIG mode on Hopper."""
    half_with_process(node)
    with pytest.raises(BlockingIOError):
        node.reset(A100)
    node.reboot()
    assert node.processes() == [] and node.instances(A100) == []
    assert [pynvml.nvmlDeviceGetMigMode(gpu(index))[0] for index in (A100, A30, H100)] == [1, 1, 0]


def test_what_needs_root(node):
    """Changes and listings of instances do, what a monitor asks does not."""
    instance = create(gpu(A100), HALF, 4, 4)
    node.unprivileged()
    found, count = (pynvml.c_nvmlGpuInstance_t * 2)(), c_uint(2)
    for call, *arguments in (
        (pynvml.nvmlDeviceSetMigMode, gpu(A30), 0),
        (pynvml.nvmlDeviceCreateGpuInstance, gpu(A100), HALF),
        (pynvml.nvmlGpuInstanceDestroy, instance),
        (pynvml.nvmlDeviceGetGpuInstances, gpu(A100), HALF, found, byref(count)),
        (pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity, gpu(A100), HALF),
    ):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            call(*arguments)
    assert pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(A100), 2).id == HALF
    assert pynvml.nvmlDeviceGetMigMode(gpu(A30)) == [1, 1] and len(node.instances(A100)) == 1


def test_without_mig_mode(node):
    """Instances cannot be asked for, profiles only in the old way, and only such a GPU takes processes directly."""
    for call, *arguments in (
        (pynvml.nvmlDeviceCreateGpuInstance, gpu(OFF), HALF),
        (pynvml.nvmlDeviceGetGpuInstanceById, gpu(OFF), 1),
        (pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu(OFF), 2),
        (pynvml.nvmlDeviceGetMigMode, gpu(T4)),
        (pynvml.nvmlDeviceSetComputeMode, gpu(A100), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS),
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            call(*arguments)
    assert pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(OFF), 2, version=1).id == HALF
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu(OFF)) == 0
    node.start_process(node.gpus[OFF].uuid)
    with pytest.raises(LookupError):
        node.start_process(node.gpus[A100].uuid)
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(OFF))
    assert process.gpuInstanceId == 0xFFFFFFFF


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([FULL, 5, HALF, QUARTER, EIGHTH, DOUBLE]), st.booleans()), max_size=12))
def test_capacity_is_what_can_still_be_created(tmp_path_factory, wishes):
    """After any history the capacity of a profile tells whether the driver makes another, and none overlap."""
    node = Node(tmp_path_factory.mktemp("node") / "a100", ["a100-40gb"], mig=True)
    with node.loaded():
        pynvml.nvmlInit()
        for profile, destroys in wishes:
            room = pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(0), profile)
            try:
                instance = pynvml.nvmlDeviceCreateGpuInstance(gpu(0), profile)
            except pynvml.NVMLError_InsufficientResources:
                assert room == 0
                continue
            assert room > 0
            if destroys:
                pynvml.nvmlGpuInstanceDestroy(instance)
        pynvml.nvmlShutdown()
    taken = [slot for one in node.instances(0) for slot in range(one.start, one.start + one.size)]
    assert len(taken) == len(set(taken))
