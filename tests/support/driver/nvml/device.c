/* GPUs and MIG devices: finding them, what they are, and the MIG mode. */
#include "handle.h"
#include <stdio.h>
#include <string.h>

static nvmlReturn_t count(unsigned *number)
{
    *number = now.gpu_count;
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(unsigned index, handle_t *handle)
{
    if (index >= (unsigned)now.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *handle = device_handle(index);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_uuid(const char *uuid, handle_t *handle)
{
    for EACH(gpu, gpu)
        if (!strcmp(gpu->uuid, uuid))
            return by_index(gpu - now.gpu_rows, handle);
    for EACH(compute, c)
        if (!strcmp(c->uuid, uuid)) {
            *handle = compute_handle(c, MIG_DEVICE);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static void bus_id(int gpu, char *text)
{
    sprintf(text, "00000000:%02X:00.0", gpu + 1);
}

static nvmlReturn_t by_bus_id(const char *wanted, handle_t *handle)
{
    for (int gpu = 0; gpu < now.gpu_count; gpu++) {
        char own[32];
        bus_id(gpu, own);
        if (!strcmp(own, wanted))
            return by_index(gpu, handle);
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t index_of(handle_t handle, unsigned *index)
{
    struct compute *mig = mig_device(handle);
    if (!mig && !device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = mig ? mig->slot : HANDLE_GPU(handle);
    return NVML_SUCCESS;
}

static nvmlReturn_t minor_of(handle_t handle, unsigned *minor)
{
    return device(handle) ? index_of(handle, minor) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t uuid_of(handle_t handle, char *uuid, unsigned length)
{
    struct compute *mig = mig_device(handle);
    if (!mig && !device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    int written = snprintf(uuid, length, "%s", mig ? mig->uuid : device(handle)->uuid);
    return (unsigned)written < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t name_of(handle_t handle, char *name, unsigned length)
{
    struct compute *mig = mig_device(handle);
    if (!mig && !device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *product = type_of(HANDLE_GPU(handle))->product;
    const char *profile = mig ? profile_of(instance_by_id(mig->gpu, mig->instance))->name : "";
    int written = snprintf(name, length, "%s%s%s", product, mig ? " MIG " : "", profile);
    return (unsigned)written < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t pci_of(handle_t handle, struct pci_info *info)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    int gpu = HANDLE_GPU(handle);
    *info = (struct pci_info){.bus = gpu + 1, .device_id = type_of(gpu)->pci_id};
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0", (gpu + 1) & 0xFF);
    bus_id(gpu, info->bus_id);
    return NVML_SUCCESS;
}

static nvmlReturn_t architecture_of(handle_t handle, unsigned *architecture)
{
    if (!device(handle) && !mig_device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *architecture = type_of(HANDLE_GPU(handle))->architecture;
    return NVML_SUCCESS;
}

static nvmlReturn_t persistence_of(handle_t handle, unsigned *mode)
{
    *mode = 1;
    return device(handle) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t compute_mode_of(handle_t handle, unsigned *mode)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = device(handle)->compute_mode;
    return NVML_SUCCESS;
}

/* In MIG mode the compute mode cannot be set. */
static nvmlReturn_t set_compute_mode(handle_t handle, unsigned mode)
{
    if (!device(handle) || mode > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device(handle)->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    device(handle)->compute_mode = mode;
    return NVML_SUCCESS;
}

static nvmlReturn_t mig_mode(handle_t handle, unsigned *current, unsigned *pending)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!type_of(HANDLE_GPU(handle))->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = device(handle)->mig;
    *pending = device(handle)->pending_mig;
    return NVML_SUCCESS;
}

static bool holds_instances(int gpu)
{
    for EACH(instance, i)
        if (i->gpu == gpu)
            return true;
    return false;
}

/* What stands in the way of a switch now. On Ampere it needs a reset, which a client that holds the GPU prevents, and
   which a virtual machine with a passed-through GPU cannot do; from Hopper on no reset is needed. */
static nvmlReturn_t obstacle(int gpu)
{
    bool resets = type_of(gpu)->architecture == ARCHITECTURE_AMPERE;
    if (processes_on(gpu, -1, -1) || holds_instances(gpu) || leaked(gpu))
        return NVML_ERROR_IN_USE;
    if (resets && !strcmp(now.gpu_rows[gpu].settles, "held"))
        return NVML_ERROR_IN_USE;
    return resets && !strcmp(now.gpu_rows[gpu].settles, "pass-through") ? NVML_ERROR_RESET_REQUIRED : NVML_SUCCESS;
}

/* The call succeeds even when the switch does not: that is what `activation` tells. On Ampere the mode is then pending
   until a reset; from Hopper on nothing is kept, since nothing would complete it. */
static nvmlReturn_t set_mig_mode(handle_t handle, unsigned mode, nvmlReturn_t *activation)
{
    unsigned current, pending;
    nvmlReturn_t known = mig_mode(handle, &current, &pending);
    if (known == NVML_SUCCESS && sparse(HANDLE_GPU(handle)))
        return NVML_ERROR_NOT_SUPPORTED;
    if (known != NVML_SUCCESS || mode > 1)
        return known != NVML_SUCCESS ? known : NVML_ERROR_INVALID_ARGUMENT;
    struct gpu *gpu = device(handle);
    *activation = mode == current ? NVML_SUCCESS : obstacle(HANDLE_GPU(handle));
    if (*activation == NVML_SUCCESS)
        gpu->mig = mode;
    if (*activation == NVML_SUCCESS || type_of(HANDLE_GPU(handle))->architecture == ARCHITECTURE_AMPERE)
        gpu->pending_mig = mode;
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetCount_v2, LOOKS, -1, (unsigned *number), count(number), "")
NVML(nvmlDeviceGetHandleByIndex_v2, LOOKS, -1, (unsigned index, handle_t *handle), by_index(index, handle), "%u", index)
NVML(nvmlDeviceGetHandleByUUID, LOOKS, -1, (const char *uuid, handle_t *handle), by_uuid(uuid, handle), "%s", uuid)
NVML(nvmlDeviceGetHandleByPciBusId_v2, LOOKS, -1, (const char *id, handle_t *handle), by_bus_id(id, handle), "%s", id)

QUERY(nvmlDeviceGetIndex, unsigned, index_of)
QUERY(nvmlDeviceGetMinorNumber, unsigned, minor_of)
QUERY(nvmlDeviceGetPciInfo_v3, struct pci_info, pci_of)
QUERY(nvmlDeviceGetArchitecture, unsigned, architecture_of)
QUERY(nvmlDeviceGetPersistenceMode, unsigned, persistence_of)
QUERY(nvmlDeviceGetComputeMode, unsigned, compute_mode_of)
NVML(nvmlDeviceGetUUID, LOOKS, HANDLE_GPU(handle), (handle_t handle, char *uuid, unsigned length),
     uuid_of(handle, uuid, length), "")
NVML(nvmlDeviceGetName, LOOKS, HANDLE_GPU(handle), (handle_t handle, char *name, unsigned length),
     name_of(handle, name, length), "")
NVML(nvmlDeviceSetComputeMode, CHANGES, HANDLE_GPU(handle), (handle_t handle, unsigned mode),
     set_compute_mode(handle, mode), "mode=%u", mode)
NVML(nvmlDeviceGetMigMode, LOOKS, HANDLE_GPU(handle), (handle_t handle, unsigned *current, unsigned *pending),
     mig_mode(handle, current, pending), "")
NVML(nvmlDeviceSetMigMode, CHANGES, HANDLE_GPU(handle), (handle_t handle, unsigned mode, nvmlReturn_t *activation),
     set_mig_mode(handle, mode, activation), "mode=%u", mode)
