/* Compute instances: how a GPU instance's compute slices are dealt out. A profile's id equals its enumerator. */
#include "handle.h"
#include <stdio.h>

/* Compute slices by enumerator; the last is the one-slice profile that takes all SMs of a double-memory instance. */
static const int SLICES[COMPUTE_ENUMERATORS] = {1, 2, 3, 4, 7, 8, 6, 1, 0};

/* SMs that whole slices do not account for: from Hopper on a double-memory 1g has more than one slice's. */
static bool has_surplus(const struct instance *i)
{
    return profile_of(i)->slices == 1 && profile_of(i)->sms > type_of(i->gpu)->sms_per_slice;
}

static bool offers(const struct instance *i, unsigned id)
{
    int whole = profile_of(i)->slices, slices = SLICES[id];
    if (id == COMPUTE_REV1)
        return has_surplus(i);
    return slices > 0 && (slices == whole || (slices < whole && slices <= 2) || (whole == 7 && slices <= 4));
}

int compute_sms(const struct instance *i, unsigned id)
{
    bool all = SLICES[id] == profile_of(i)->slices && (id == COMPUTE_REV1 || !has_surplus(i));
    return all ? profile_of(i)->sms : SLICES[id] * type_of(i->gpu)->sms_per_slice;
}

static int most(const struct instance *i, unsigned id)
{
    return profile_of(i)->slices / SLICES[id];
}

static bool is_free(const struct instance *i, int start, int size)
{
    for EACH(compute, c)
        if (c->gpu == i->gpu && c->instance == i->id && c->start < start + size && start < c->start + c->size)
            return false;
    return true;
}

/* The profile asked for, or why there is none. */
static nvmlReturn_t check(handle_t handle, unsigned id, struct instance **instance)
{
    *instance = gpu_instance(handle);
    if (!*instance || id >= COMPUTE_ENUMERATORS)
        return NVML_ERROR_INVALID_ARGUMENT;
    return offers(*instance, id) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t profile_v1(handle_t handle, unsigned id, unsigned engine,
                               struct compute_instance_profile_info *info)
{
    struct instance *i;
    nvmlReturn_t known = engine ? NVML_ERROR_INVALID_ARGUMENT : check(handle, id, &i);
    if (known == NVML_SUCCESS)
        *info = (struct compute_instance_profile_info){.id = id, .slices = SLICES[id], .instances = most(i, id),
                                                       .sms = compute_sms(i, id), .ofas = profile_of(i)->media};
    return known;
}

static nvmlReturn_t profile_v2(handle_t handle, unsigned id, unsigned engine,
                               struct compute_instance_profile_info_v2 *info)
{
    struct compute_instance_profile_info v1;
    if (info->version != VERSION_WORD(struct compute_instance_profile_info_v2, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t known = profile_v1(handle, id, engine, &v1);
    if (known != NVML_SUCCESS)
        return known;
    *info = (struct compute_instance_profile_info_v2){.version = info->version, .id = id, .slices = v1.slices,
                                                      .instances = v1.instances, .sms = v1.sms, .ofas = v1.ofas};
    struct instance *i = gpu_instance(handle);
    if (SLICES[id] == profile_of(i)->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", profile_of(i)->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %dc.%s", SLICES[id], profile_of(i)->name);
    return NVML_SUCCESS;
}

/* Placements lie at multiples of their size; with `free_only` those that overlap nothing. */
static nvmlReturn_t placements(handle_t handle, unsigned id, struct placement *list, unsigned *count, bool free_only)
{
    struct instance *i;
    nvmlReturn_t known = check(handle, id, &i);
    if (known != NVML_SUCCESS)
        return known;
    if (list && *count < (unsigned)most(i, id))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = 0;
    for (int start = 0; start / SLICES[id] < most(i, id); start += SLICES[id]) {
        if (free_only && !is_free(i, start, SLICES[id]))
            continue;
        if (list)
            list[*count] = (struct placement){start, SLICES[id]};
        (*count)++;
    }
    return NVML_SUCCESS;
}

/* Whether a compute instance has this id in a GPU instance, or this index among the MIG devices; -1 stands for any. */
static bool exists(int gpu, int instance, int id, int slot)
{
    for EACH(compute, c)
        if (c->gpu == gpu && (instance < 0 || (c->instance == instance && c->id == id)) &&
            (slot < 0 || c->slot == slot))
            return true;
    return false;
}

/* A UUID made of the GPU's and a number (by FNV-1a): the serial number, hence new for each new MIG device (version 4), or
   the ids of the instances, hence the same for those that are made again (version 5). */
static void new_uuid(int gpu, int serial, int version, char *uuid)
{
    uint64_t hash[2] = {14695981039346656037u, 1099511628211u + serial};
    for (const char *c = now.gpu_rows[gpu].uuid; *c; c++)
        for (int half = 0; half < 2; half++)
            hash[half] = (hash[half] ^ (uint64_t)(*c + serial)) * 1099511628211u;
    unsigned a = hash[0] >> 32, b = hash[0] >> 16 & 0xFFFF, c = hash[0] & 0xFFF, d = hash[1] >> 48 & 0xFFF;
    unsigned long long e = hash[1] & 0xFFFFFFFFFFFF;
    snprintf(uuid, 48, "MIG-%08x-%04x-%d%03x-a%03x-%012llx", a, b, version, c, d, e);
}

/* MIG devices keep their index for life, so that destroying one leaves a gap. */
static nvmlReturn_t place(const struct instance *i, unsigned id, int start, handle_t *handle)
{
    struct compute made = {i->gpu, i->id, 0, id, start, SLICES[id], 0, ++now.serial, ""};
    while (exists(i->gpu, i->id, made.id, -1))
        made.id++;
    while (exists(i->gpu, -1, -1, made.slot))
        made.slot++;
    bool named = answers(i->gpu, "named");
    new_uuid(i->gpu, named ? i->id << 8 | made.id : made.serial, named ? 5 : 4, made.uuid);
    ADD(compute, made);
    *handle = compute_handle(&made, COMPUTE_INSTANCE);
    return NVML_SUCCESS;
}

static nvmlReturn_t create_at(handle_t handle, unsigned id, const struct placement *at, handle_t *made)
{
    struct instance *i;
    nvmlReturn_t known = check(handle, id, &i);
    if (known != NVML_SUCCESS)
        return known;
    if (at->size != (unsigned)SLICES[id] || at->start % at->size || at->start / at->size >= (unsigned)most(i, id))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!is_free(i, at->start, at->size))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    return place(i, id, at->start, made);
}

static nvmlReturn_t create(handle_t handle, unsigned id, handle_t *made)
{
    struct placement free[8];
    unsigned count = 8;
    nvmlReturn_t known = placements(handle, id, free, &count, true);
    if (known != NVML_SUCCESS)
        return known;
    return count ? create_at(handle, id, free, made) : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t destroy(handle_t handle)
{
    struct compute *compute = compute_instance(handle);
    if (!compute)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (processes_on(compute->gpu, compute->instance, compute->id))
        return NVML_ERROR_IN_USE;
    REMOVE(compute, compute);
    return NVML_SUCCESS;
}

static nvmlReturn_t list(handle_t handle, unsigned id, handle_t *found, unsigned *count)
{
    struct instance *i;
    nvmlReturn_t known = check(handle, id, &i);
    if (known != NVML_SUCCESS)
        return known;
    *count = 0;
    for EACH(compute, c)
        if (c->gpu == i->gpu && c->instance == i->id && c->profile == (int)id)
            found[(*count)++] = compute_handle(c, COMPUTE_INSTANCE);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_id(handle_t handle, unsigned id, handle_t *found)
{
    struct instance *i = gpu_instance(handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    for EACH(compute, c)
        if (c->gpu == i->gpu && c->instance == i->id && c->id == (int)id) {
            *found = compute_handle(c, COMPUTE_INSTANCE);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t information(handle_t handle, struct compute_instance_info *info)
{
    struct compute *c = compute_instance(handle);
    if (!c)
        return NVML_ERROR_INVALID_ARGUMENT;
    handle_t parent = instance_handle(instance_by_id(c->gpu, c->instance));
    *info = (struct compute_instance_info){device_handle(c->gpu), parent, c->id, c->profile, {c->start, c->size}};
    return NVML_SUCCESS;
}

static nvmlReturn_t capacity(handle_t handle, unsigned id, unsigned *count)
{
    return placements(handle, id, 0, count, true);
}

#define GPU HANDLE_GPU(handle)
#define ARGUMENTS "instance=%d profile=%u", HANDLE_INSTANCE(handle), id

NVML(nvmlGpuInstanceGetComputeInstanceProfileInfo, LOOKS, GPU,
     (handle_t handle, unsigned id, unsigned engine, struct compute_instance_profile_info *info),
     profile_v1(handle, id, engine, info), ARGUMENTS)
NVML(nvmlGpuInstanceGetComputeInstanceProfileInfoV, LOOKS, GPU,
     (handle_t handle, unsigned id, unsigned engine, struct compute_instance_profile_info_v2 *info),
     profile_v2(handle, id, engine, info), ARGUMENTS)
NVML(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, LOOKS_AS_ROOT, GPU,
     (handle_t handle, unsigned id, unsigned *count), capacity(handle, id, count), ARGUMENTS)
NVML(nvmlGpuInstanceGetComputeInstancePossiblePlacements, LOOKS_AS_ROOT, GPU,
     (handle_t handle, unsigned id, struct placement *found, unsigned *count),
     placements(handle, id, found, count, false), ARGUMENTS)
NVML(nvmlGpuInstanceCreateComputeInstance, CHANGES, GPU, (handle_t handle, unsigned id, handle_t *made),
     create(handle, id, made), ARGUMENTS)
NVML(nvmlGpuInstanceCreateComputeInstanceWithPlacement, CHANGES, GPU,
     (handle_t handle, unsigned id, const struct placement *at, handle_t *made), create_at(handle, id, at, made),
     ARGUMENTS)
NVML(nvmlComputeInstanceDestroy, CHANGES, GPU, (handle_t handle), destroy(handle), "instance=%d compute=%d",
     HANDLE_INSTANCE(handle), HANDLE_COMPUTE(handle))
NVML(nvmlGpuInstanceGetComputeInstances, LOOKS_AS_ROOT, GPU,
     (handle_t handle, unsigned id, handle_t *found, unsigned *count), list(handle, id, found, count), ARGUMENTS)
NVML(nvmlGpuInstanceGetComputeInstanceById, LOOKS_AS_ROOT, GPU, (handle_t handle, unsigned id, handle_t *found),
     by_id(handle, id, found), "instance=%d compute=%u", HANDLE_INSTANCE(handle), id)
NVML(nvmlComputeInstanceGetInfo_v2, LOOKS, GPU, (handle_t handle, struct compute_instance_info *info),
     information(handle, info), "instance=%d compute=%d", HANDLE_INSTANCE(handle), HANDLE_COMPUTE(handle))
