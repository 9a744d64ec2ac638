/* The part of NVML's binary interface that the stand-in answers: status codes and the structures it fills. */
#pragma once
#include <stdint.h>

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
} nvmlReturn_t;

enum { ARCHITECTURE_TURING = 6, ARCHITECTURE_AMPERE = 7, ARCHITECTURE_HOPPER = 9 };
enum { NAME_SIZE = 96 };

/* NVML's handles are opaque pointers; here they are numbers of the same width (see handle.h). */
typedef uint64_t handle_t;

/* A structure's version word holds its size and its version, the way NVML's headers build it. */
#define VERSION_WORD(type, version) (unsigned)(sizeof(type) | (version) << 24)

struct placement { unsigned start, size; };

struct gpu_instance_info { handle_t device; unsigned id, profile; struct placement placement; };

struct compute_instance_info { handle_t device, gpu_instance; unsigned id, profile; struct placement placement; };

struct gpu_instance_profile_info {
    unsigned id, p2p, slices, instances, sms, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
};

struct gpu_instance_profile_info_v2 {
    unsigned version, id, p2p, slices, instances, sms, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
    char name[NAME_SIZE];
};

struct compute_instance_profile_info {
    unsigned id, slices, instances, sms, copy_engines, decoders, encoders, jpegs, ofas;
};

struct compute_instance_profile_info_v2 {
    unsigned version, id, slices, instances, sms, copy_engines, decoders, encoders, jpegs, ofas;
    char name[NAME_SIZE];
};

struct memory_info { unsigned long long total, free, used; };

struct memory_info_v2 { unsigned version; unsigned long long total, reserved, free, used; };

struct process_info { unsigned pid; unsigned long long used_bytes; unsigned gpu_instance, compute_instance; };

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct device_attributes {
    unsigned sms, copy_engines, decoders, encoders, jpegs, ofas, gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
};
