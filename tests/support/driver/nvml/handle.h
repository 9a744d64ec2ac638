/* Handles: what they point at is packed into the number, with the serial number of the instance, so that the handle of
   a destroyed instance is never mistaken for its successor's. */
#pragma once
#include "call.h"
#include "types.h"

enum kind { DEVICE = 1, MIG_DEVICE, GPU_INSTANCE, COMPUTE_INSTANCE };

#define HANDLE_GPU(handle) ((int)((handle) >> 48 & 0xFF))
#define HANDLE_INSTANCE(handle) ((int)((handle) >> 40 & 0xFF))
#define HANDLE_COMPUTE(handle) ((int)((handle) >> 32 & 0xFF))

handle_t device_handle(int gpu);
handle_t instance_handle(const struct instance *instance);
handle_t compute_handle(const struct compute *compute, enum kind kind);

/* What a handle points at; null when it is of another kind, or stale. */
struct gpu *device(handle_t handle);
struct instance *gpu_instance(handle_t handle);
struct compute *compute_instance(handle_t handle);
struct compute *mig_device(handle_t handle);

const struct gpu_type *type_of(int gpu);
struct instance *instance_by_id(int gpu, int id);
const struct profile *profile_of(const struct instance *instance);

/* SMs of a compute instance of a profile in a GPU instance. */
int compute_sms(const struct instance *instance, unsigned compute_profile);

/* Processes on a part of a GPU; -1 stands for any. */
int processes_on(int gpu, int instance, int compute);

/* An exported query of one number or structure about the GPU or MIG device of a handle. */
#define QUERY(name, type, rule) \
    NVML(name, LOOKS, HANDLE_GPU(handle), (handle_t handle, type *value), rule(handle, value), "")
