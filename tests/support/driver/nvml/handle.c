/* Packing handles and finding what they point at in the state of the call. */
#include "handle.h"

static handle_t pack(enum kind kind, int gpu, int instance, int compute, int serial)
{
    handle_t part = (handle_t)gpu << 48 | (handle_t)instance << 40 | (handle_t)compute << 32;
    return (handle_t)kind << 60 | part | (unsigned)serial;
}

handle_t device_handle(int gpu)
{
    return pack(DEVICE, gpu, 0, 0, 0);
}

handle_t instance_handle(const struct instance *i)
{
    return pack(GPU_INSTANCE, i->gpu, i->id, 0, i->serial);
}

handle_t compute_handle(const struct compute *c, enum kind kind)
{
    return pack(kind, c->gpu, c->instance, c->id, c->serial);
}

struct gpu *device(handle_t handle)
{
    bool known = handle >> 60 == DEVICE && HANDLE_GPU(handle) < now.gpu_count;
    return known ? &now.gpu_rows[HANDLE_GPU(handle)] : 0;
}

struct instance *gpu_instance(handle_t handle)
{
    for EACH(instance, i)
        if (instance_handle(i) == handle)
            return i;
    return 0;
}

static struct compute *compute_of(handle_t handle, enum kind kind)
{
    for EACH(compute, c)
        if (compute_handle(c, kind) == handle)
            return c;
    return 0;
}

struct compute *compute_instance(handle_t handle)
{
    return compute_of(handle, COMPUTE_INSTANCE);
}

struct compute *mig_device(handle_t handle)
{
    return compute_of(handle, MIG_DEVICE);
}

const struct gpu_type *type_of(int gpu)
{
    return gpu_type(now.gpu_rows[gpu].type);
}

struct instance *instance_by_id(int gpu, int id)
{
    for EACH(instance, i)
        if (i->gpu == gpu && i->id == id)
            return i;
    return 0;
}

const struct profile *profile_of(const struct instance *instance)
{
    return profile_by_id(type_of(instance->gpu), instance->profile);
}

int processes_on(int gpu, int instance, int compute)
{
    int found = 0;
    for EACH(process, p)
        found += p->gpu == gpu && (instance < 0 || p->instance == instance) && (compute < 0 || p->compute == compute);
    return found;
}
