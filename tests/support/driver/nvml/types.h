/* What the GPU types offer under MIG; the numbers are NVIDIA's, from the MIG user guide and nvidia-smi listings. */
#pragma once
#include <stdbool.h>

enum { MOST_PROFILES = 8, PROFILE_ENUMERATORS = 0x12, COMPUTE_ENUMERATORS = 9, COMPUTE_REV1 = 7 };

struct profile {
    const char *name;
    int enumerator, id;
    int slices;         /* compute slices */
    int size;           /* memory slices */
    int sms, most;      /* most: instances of this profile on one GPU */
    int memory_mib;
    const char *starts; /* allowed memory slices, in the order in which the driver tries them */
    bool media;         /* takes the GPU's only optical-flow accelerator */
};

struct gpu_type {
    const char *name, *product;
    int architecture, sms_per_slice, slices, memory_slices, memory_mib;
    unsigned pci_id;
    struct profile profiles[MOST_PROFILES]; /* ends with a profile without a name */
};

const struct gpu_type *gpu_type(const char *name);
const struct profile *profile_by_id(const struct gpu_type *type, unsigned id);
const struct profile *profile_by_enumerator(const struct gpu_type *type, unsigned enumerator);
