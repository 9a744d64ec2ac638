/* MIG devices: what CUDA sees, one per compute instance. */
#include "handle.h"

static nvmlReturn_t most(handle_t handle, unsigned *count)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = device(handle)->mig || sparse(HANDLE_GPU(handle)) ? type_of(HANDLE_GPU(handle))->slices : 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(handle_t handle, unsigned index, handle_t *found)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device(handle)->mig)
        return sparse(HANDLE_GPU(handle)) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
    if (index >= (unsigned)type_of(HANDLE_GPU(handle))->slices)
        return NVML_ERROR_INVALID_ARGUMENT;
    for EACH(compute, c)
        if (c->gpu == HANDLE_GPU(handle) && c->slot == (int)index) {
            *found = compute_handle(c, MIG_DEVICE);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t is_mig(handle_t handle, unsigned *answer)
{
    *answer = mig_device(handle) != 0;
    return *answer || device(handle) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t parent(handle_t handle, handle_t *found)
{
    if (!mig_device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *found = device_handle(HANDLE_GPU(handle));
    return NVML_SUCCESS;
}

static nvmlReturn_t gpu_instance_id(handle_t handle, unsigned *id)
{
    if (!mig_device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = mig_device(handle)->instance;
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_instance_id(handle_t handle, unsigned *id)
{
    if (!mig_device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = mig_device(handle)->id;
    return NVML_SUCCESS;
}

static nvmlReturn_t attributes(handle_t handle, struct device_attributes *found)
{
    struct compute *c = mig_device(handle);
    if (!c)
        return device(handle) ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    const struct instance *i = instance_by_id(c->gpu, c->instance);
    *found = (struct device_attributes){.sms = compute_sms(i, c->profile), .gpu_instance_slices = profile_of(i)->slices,
                                        .compute_instance_slices = c->size, .memory_mib = profile_of(i)->memory_mib};
    return NVML_SUCCESS;
}

QUERY(nvmlDeviceGetMaxMigDeviceCount, unsigned, most)
QUERY(nvmlDeviceIsMigDeviceHandle, unsigned, is_mig)
QUERY(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle_t, parent)
QUERY(nvmlDeviceGetGpuInstanceId, unsigned, gpu_instance_id)
QUERY(nvmlDeviceGetComputeInstanceId, unsigned, compute_instance_id)
QUERY(nvmlDeviceGetAttributes_v2, struct device_attributes, attributes)
NVML(nvmlDeviceGetMigDeviceHandleByIndex, LOOKS, HANDLE_GPU(handle), (handle_t handle, unsigned index, handle_t *found),
     by_index(handle, index, found), "%u", index)
