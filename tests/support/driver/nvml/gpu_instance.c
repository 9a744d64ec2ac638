/* GPU instances: profiles, placements, creation and destruction. An instance takes an interval of memory slices, and no
   two intervals overlap; a profile's own maximum and the one optical-flow accelerator are the other limits. */
#include "handle.h"
#include <stdio.h>
#include <string.h>

static bool starts_at(const struct profile *profile, unsigned start)
{
    return start < 8 && strchr(profile->starts, '0' + start);
}

static bool is_free(int gpu, int start, int size)
{
    for EACH(instance, i)
        if (i->gpu == gpu && i->start < start + size && start < i->start + i->size)
            return false;
    return true;
}

/* How many more of a profile its maximum and the media engines allow, wherever they stand. */
static int allowance(int gpu, const struct profile *profile)
{
    int left = profile->most;
    for EACH(instance, i)
        if (i->gpu == gpu) {
            left -= i->profile == profile->id;
            if (profile->media && profile_of(i)->media)
                return 0;
        }
    return left;
}

/* The profile of a GPU in MIG mode, or why there is none. */
static nvmlReturn_t find_profile(handle_t handle, unsigned id, const struct profile **profile)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device(handle)->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *profile = profile_by_id(type_of(HANDLE_GPU(handle)), id);
    return *profile ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static struct gpu_instance_profile_info_v2 describe(const struct profile *p)
{
    struct gpu_instance_profile_info_v2 info = {.id = p->id, .slices = p->slices, .instances = p->most, .sms = p->sms,
                                                .ofas = p->media, .memory_mib = p->memory_mib};
    snprintf(info.name, sizeof info.name, "MIG %s", p->name);
    return info;
}

static nvmlReturn_t profile_v1(handle_t handle, unsigned enumerator, struct gpu_instance_profile_info *info)
{
    if (!device(handle) || enumerator >= PROFILE_ENUMERATORS)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct profile *profile = profile_by_enumerator(type_of(HANDLE_GPU(handle)), enumerator);
    if (!profile)
        return NVML_ERROR_NOT_SUPPORTED;
    struct gpu_instance_profile_info_v2 all = describe(profile);
    *info = (struct gpu_instance_profile_info){.id = all.id, .slices = all.slices, .instances = all.instances,
                                               .sms = all.sms, .ofas = all.ofas, .memory_mib = all.memory_mib};
    return NVML_SUCCESS;
}

static nvmlReturn_t profile_v2(handle_t handle, const struct profile *profile,
                               struct gpu_instance_profile_info_v2 *info)
{
    if (info->version != VERSION_WORD(struct gpu_instance_profile_info_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!profile || !device(handle)->mig || sparse(HANDLE_GPU(handle)))
        return NVML_ERROR_NOT_SUPPORTED;
    *info = describe(profile);
    info->version = VERSION_WORD(struct gpu_instance_profile_info_v2, 2);
    return NVML_SUCCESS;
}

static nvmlReturn_t profile_v2_by_enumerator(handle_t handle, unsigned enumerator,
                                             struct gpu_instance_profile_info_v2 *info)
{
    if (!device(handle) || enumerator >= PROFILE_ENUMERATORS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return profile_v2(handle, profile_by_enumerator(type_of(HANDLE_GPU(handle)), enumerator), info);
}

static nvmlReturn_t profile_v2_by_id(handle_t handle, unsigned id, struct gpu_instance_profile_info_v2 *info)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    return profile_v2(handle, profile_by_id(type_of(HANDLE_GPU(handle)), id), info);
}

/* All placements of a profile, free or not; works with MIG off too. */
static nvmlReturn_t placements(handle_t handle, unsigned id, struct placement *list, unsigned *count)
{
    const struct profile *profile = device(handle) ? profile_by_id(type_of(HANDLE_GPU(handle)), id) : 0;
    if (!profile)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned found = 0;
    if (list && *count < strlen(profile->starts))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned start = 0; start < 8; start++)
        if (starts_at(profile, start) && ++found && list)
            list[found - 1] = (struct placement){start, profile->size};
    *count = found;
    return NVML_SUCCESS;
}

static nvmlReturn_t capacity(handle_t handle, unsigned id, unsigned *count)
{
    const struct profile *profile;
    nvmlReturn_t known = find_profile(handle, id, &profile);
    if (known != NVML_SUCCESS)
        return known;
    int allowed = allowance(HANDLE_GPU(handle), profile), free = 0;
    for (const char *start = profile->starts; *start; start++)
        free += is_free(HANDLE_GPU(handle), *start - '0', profile->size);
    *count = free < allowed ? free : allowed;
    return NVML_SUCCESS;
}

/* NVIDIA numbers instances by size: 0 the whole GPU, 1-2 halves, 3-6 quarters, 7-13 eighths. In listings an eighth's
   number follows its start, while a half's does not: two GPUs show a 3g at 4 as 1 and as 2. */
static int new_id(int gpu, int start, int size)
{
    int id = type_of(gpu)->memory_slices / size - 1 + (size == 1 ? start : 0);
    while (instance_by_id(gpu, id))
        id++;
    return id;
}

static nvmlReturn_t place(int gpu, const struct profile *profile, int start, handle_t *handle)
{
    struct instance made = {gpu, new_id(gpu, start, profile->size), profile->id, start, profile->size, ++now.serial};
    ADD(instance, made);
    *handle = instance_handle(&made);
    return NVML_SUCCESS;
}

static nvmlReturn_t create_at(handle_t handle, unsigned id, const struct placement *at, handle_t *made)
{
    const struct profile *profile;
    nvmlReturn_t known = find_profile(handle, id, &profile);
    if (known != NVML_SUCCESS)
        return known;
    if (at->size != (unsigned)profile->size || !starts_at(profile, at->start))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (allowance(HANDLE_GPU(handle), profile) <= 0 || !is_free(HANDLE_GPU(handle), at->start, at->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    return place(HANDLE_GPU(handle), profile, at->start, made);
}

/* The driver takes the first free placement in its own order. */
static nvmlReturn_t create(handle_t handle, unsigned id, handle_t *made)
{
    const struct profile *profile;
    nvmlReturn_t known = find_profile(handle, id, &profile);
    if (known != NVML_SUCCESS)
        return known;
    for (const char *start = profile->starts; *start; start++) {
        struct placement at = {*start - '0', profile->size};
        if (create_at(handle, id, &at, made) == NVML_SUCCESS)
            return NVML_SUCCESS;
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t destroy(handle_t handle)
{
    struct instance *instance = gpu_instance(handle);
    if (!instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    for EACH(compute, c)
        if (c->gpu == instance->gpu && c->instance == instance->id)
            return NVML_ERROR_IN_USE;
    if (leaked(instance->gpu))
        return NVML_ERROR_IN_USE;
    REMOVE(instance, instance);
    return NVML_SUCCESS;
}

static nvmlReturn_t list(handle_t handle, unsigned id, handle_t *found, unsigned *count)
{
    const struct profile *profile;
    nvmlReturn_t known = find_profile(handle, id, &profile);
    if (known != NVML_SUCCESS)
        return known;
    *count = 0;
    for EACH(instance, i)
        if (i->gpu == HANDLE_GPU(handle) && i->profile == profile->id)
            found[(*count)++] = answers(i->gpu, "counted") ? 0 : instance_handle(i);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_id(handle_t handle, unsigned id, handle_t *found)
{
    if (!device(handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!device(handle)->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    struct instance *instance = instance_by_id(HANDLE_GPU(handle), id);
    if (!instance)
        return NVML_ERROR_NOT_FOUND;
    *found = instance_handle(instance);
    return NVML_SUCCESS;
}

static nvmlReturn_t information(handle_t handle, struct gpu_instance_info *info)
{
    struct instance *i = gpu_instance(handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (struct gpu_instance_info){device_handle(i->gpu), i->id, i->profile, {i->start, i->size}};
    return NVML_SUCCESS;
}

#define GPU HANDLE_GPU(handle)

NVML(nvmlDeviceGetGpuInstanceProfileInfo, LOOKS, GPU,
     (handle_t handle, unsigned profile, struct gpu_instance_profile_info *info),
     profile_v1(handle, profile, info), "enumerator=%u", profile)
NVML(nvmlDeviceGetGpuInstanceProfileInfoV, LOOKS, GPU,
     (handle_t handle, unsigned profile, struct gpu_instance_profile_info_v2 *info),
     profile_v2_by_enumerator(handle, profile, info), "enumerator=%u", profile)
NVML(nvmlDeviceGetGpuInstanceProfileInfoByIdV, LOOKS, GPU,
     (handle_t handle, unsigned id, struct gpu_instance_profile_info_v2 *info),
     profile_v2_by_id(handle, id, info), "profile=%u", id)
NVML(nvmlDeviceGetGpuInstancePossiblePlacements_v2, LOOKS_AS_ROOT, GPU,
     (handle_t handle, unsigned id, struct placement *found, unsigned *count),
     placements(handle, id, found, count), "profile=%u", id)
NVML(nvmlDeviceGetGpuInstanceRemainingCapacity, LOOKS_AS_ROOT, GPU, (handle_t handle, unsigned id, unsigned *count),
     capacity(handle, id, count), "profile=%u", id)
NVML(nvmlDeviceCreateGpuInstance, CHANGES, GPU, (handle_t handle, unsigned id, handle_t *made),
     create(handle, id, made), "profile=%u", id)
NVML(nvmlDeviceCreateGpuInstanceWithPlacement, CHANGES, GPU,
     (handle_t handle, unsigned id, const struct placement *at, handle_t *made), create_at(handle, id, at, made),
     "profile=%u start=%u size=%u", id, at->start, at->size)
NVML(nvmlGpuInstanceDestroy, CHANGES, GPU, (handle_t handle), destroy(handle), "instance=%d", HANDLE_INSTANCE(handle))
NVML(nvmlDeviceGetGpuInstances, LOOKS_AS_ROOT, GPU, (handle_t handle, unsigned id, handle_t *found, unsigned *count),
     list(handle, id, found, count), "profile=%u", id)
NVML(nvmlDeviceGetGpuInstanceById, LOOKS_AS_ROOT, GPU, (handle_t handle, unsigned id, handle_t *found),
     by_id(handle, id, found), "instance=%u", id)
NVML(nvmlGpuInstanceGetInfo, LOOKS, GPU, (handle_t handle, struct gpu_instance_info *info), information(handle, info),
     "instance=%d", HANDLE_INSTANCE(handle))
