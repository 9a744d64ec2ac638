"""The few NVML sequences that tests need to set a scene, through pynvml."""

from ctypes import byref, c_uint

import pynvml


def create(device, profile_id, start, size):
    """A GPU instance at a placement."""
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
        device, profile_id, byref(pynvml.c_nvmlGpuInstancePlacement_t(start, size))
    )


def mig_device(device, compute_instance):
    """The MIG device of a compute instance."""
    info = pynvml.nvmlComputeInstanceGetInfo(compute_instance)
    gi = pynvml.nvmlGpuInstanceGetInfo(info.gpuInstance).id
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            found = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except pynvml.NVMLError_NotFound:
            continue
        if (pynvml.nvmlDeviceGetGpuInstanceId(found), pynvml.nvmlDeviceGetComputeInstanceId(found)) == (gi, info.id):
            return found
    raise LookupError(f"no MIG device of GPU instance {gi}, compute instance {info.id}")


def placements(device, profile_id):
    """All placements of a profile as (start, size)."""
    count = c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, found, byref(count))
    return [(one.start, one.size) for one in found]
