/* What GPUs and MIG devices hold: memory and processes. */
#include "handle.h"

/* The MIG device or GPU a handle points at; for a GPU instance and compute are -1. */
struct part { int gpu, instance, compute; };

static bool part_of(handle_t handle, struct part *part)
{
    struct compute *mig = mig_device(handle);
    *part = mig ? (struct part){mig->gpu, mig->instance, mig->id} : (struct part){HANDLE_GPU(handle), -1, -1};
    return mig || device(handle);
}

static nvmlReturn_t memory(handle_t handle, struct memory_info *info)
{
    struct part part;
    if (!part_of(handle, &part))
        return NVML_ERROR_INVALID_ARGUMENT;
    int total = part.instance < 0 ? type_of(part.gpu)->memory_mib
                                  : profile_of(instance_by_id(part.gpu, part.instance))->memory_mib;
    unsigned long long used = 0;
    for EACH(process, p)
        if (p->gpu == part.gpu && (part.instance < 0 || p->instance == part.instance))
            used += (unsigned long long)p->memory_mib << 20;
    *info = (struct memory_info){(unsigned long long)total << 20, ((unsigned long long)total << 20) - used, used};
    return NVML_SUCCESS;
}

static nvmlReturn_t memory_v2(handle_t handle, struct memory_info_v2 *info)
{
    struct memory_info plain;
    if (info->version != VERSION_WORD(struct memory_info_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = memory(handle, &plain);
    if (result == NVML_SUCCESS)
        *info = (struct memory_info_v2){info->version, plain.total, 0, plain.free, plain.used};
    return result;
}

static nvmlReturn_t processes(handle_t handle, unsigned *count, struct process_info *list, bool mps)
{
    struct part part;
    if (!part_of(handle, &part))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (mps && sparse(part.gpu))
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned room = list ? *count : 0, found = 0;
    for EACH(process, p) {
        bool counts = p->gpu == part.gpu && (!mps || p->kind[1] == '+') &&
                      (part.instance < 0 || (p->instance == part.instance && p->compute == part.compute));
        if (counts && found++ < room)
            list[found - 1] = (struct process_info){p->pid, (uint64_t)p->memory_mib << 20, p->instance, p->compute};
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST(name, mps)                                                                                     \
    NVML(name, LOOKS, HANDLE_GPU(handle), (handle_t handle, unsigned *count, struct process_info *list),     \
         processes(handle, count, list, mps), "")

LIST(nvmlDeviceGetComputeRunningProcesses_v2, false)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, true)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, true)
NVML(nvmlDeviceGetMemoryInfo, LOOKS, HANDLE_GPU(handle), (handle_t handle, struct memory_info *info),
     memory(handle, info), "")
NVML(nvmlDeviceGetMemoryInfo_v2, LOOKS, HANDLE_GPU(handle), (handle_t handle, struct memory_info_v2 *info),
     memory_v2(handle, info), "")
