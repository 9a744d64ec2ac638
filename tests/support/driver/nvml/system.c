/* Starting and stopping the library, versions and error texts. */
#include "handle.h"
#include <stdio.h>
#include <string.h>

static nvmlReturn_t copy(char *text, unsigned length, const char *value)
{
    if (strlen(value) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_SUCCESS;
}

/* Without a node's folder there is no driver, as on a machine without NVIDIA's. */
nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    initialised++;
    struct call call = begin("nvmlInitWithFlags", LOOKS, -1, "%u", flags);
    nvmlReturn_t result = finish(&call);
    initialised -= result != NVML_SUCCESS;
    return result;
}

nvmlReturn_t nvmlShutdown(void)
{
    struct call call = begin("nvmlShutdown", LOOKS, -1, "");
    nvmlReturn_t result = finish(&call);
    initialised -= result == NVML_SUCCESS;
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const TEXTS[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    };
    bool known = (unsigned)result < sizeof TEXTS / sizeof *TEXTS && TEXTS[result];
    return known ? TEXTS[result] : "Unknown Error";
}

NVML(nvmlSystemGetDriverVersion, LOOKS, -1, (char *version, unsigned length), copy(version, length, "580.65.06"), "")
NVML(nvmlSystemGetNVMLVersion, LOOKS, -1, (char *version, unsigned length), copy(version, length, "13.580.65.06"), "")

static nvmlReturn_t cuda_version(int *version)
{
    *version = 13000;
    return NVML_SUCCESS;
}

NVML(nvmlSystemGetCudaDriverVersion, LOOKS, -1, (int *version), cuda_version(version), "")
NVML(nvmlSystemGetCudaDriverVersion_v2, LOOKS, -1, (int *version), cuda_version(version), "")

static nvmlReturn_t process_name(int pid, char *name, unsigned length)
{
    for EACH(process, p)
        if (p->pid == pid)
            return copy(name, length, p->name);
    return NVML_ERROR_NOT_FOUND;
}

NVML(nvmlSystemGetProcessName, LOOKS, -1, (unsigned pid, char *name, unsigned length), process_name(pid, name, length),
     "pid=%u", pid)
