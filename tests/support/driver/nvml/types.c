/* The tables of types.h. The order of the starts follows the placements that the user guide shows the driver to pick:
   4, 2, 1 go to 4@0 2@4 1@6; 3, 2, 1, 1 to 3@4 2@2 1@0 1@1; 2 and five 1 to 2@4, then 1@6, 0, 1, 2, 3. */
#include "types.h"
#include "abi.h"
#include <string.h>

static const struct gpu_type TYPES[] = {
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", ARCHITECTURE_AMPERE, 14, 7, 8, 40192, 0x20B010DE, {
        {"1g.5gb",     0, 19, 1, 1, 14, 7,  4864, "6450123", false},
        {"1g.5gb+me",  7, 20, 1, 1, 14, 1,  4864, "6450123", true},
        {"1g.10gb",    9, 15, 1, 2, 14, 4,  9856, "6420",    false},
        {"2g.10gb",    1, 14, 2, 2, 28, 3,  9856, "420",     false},
        {"3g.20gb",    2,  9, 3, 4, 42, 2, 19968, "40",      false},
        {"4g.20gb",    3,  5, 4, 4, 56, 1, 19968, "0",       false},
        {"7g.40gb",    4,  0, 7, 8, 98, 1, 40192, "0",       true}}},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", ARCHITECTURE_AMPERE, 14, 7, 8, 80896, 0x20B210DE, {
        {"1g.10gb",    0, 19, 1, 1, 14, 7,  9728, "6450123", false},
        {"1g.10gb+me", 7, 20, 1, 1, 14, 1,  9728, "6450123", true},
        {"1g.20gb",    9, 15, 1, 2, 14, 4, 19968, "6420",    false},
        {"2g.20gb",    1, 14, 2, 2, 28, 3, 19968, "420",     false},
        {"3g.40gb",    2,  9, 3, 4, 42, 2, 40192, "40",      false},
        {"4g.40gb",    3,  5, 4, 4, 56, 1, 40192, "0",       false},
        {"7g.80gb",    4,  0, 7, 8, 98, 1, 80896, "0",       true}}},
    {"a30", "NVIDIA A30", ARCHITECTURE_AMPERE, 14, 4, 4, 24000, 0x20B710DE, {
        {"1g.6gb",     0, 14, 1, 1, 14, 4,  5952, "2301",    false},
        {"1g.6gb+me",  7, 21, 1, 1, 14, 1,  5952, "2301",    true},
        {"2g.12gb",    1,  5, 2, 2, 28, 2, 11968, "02",      false},
        {"2g.12gb+me", 8,  6, 2, 2, 28, 1, 11968, "02",      true},
        {"4g.24gb",    3,  0, 4, 4, 56, 1, 24000, "0",       true}}},
    {"h100-80gb", "NVIDIA H100 80GB HBM3", ARCHITECTURE_HOPPER, 16, 7, 8, 81152, 0x233010DE, {
        {"1g.10gb",    0, 19, 1, 1,  16, 7,  9984, "6450123", false},
        {"1g.10gb+me", 7, 20, 1, 1,  16, 1,  9984, "6450123", true},
        {"1g.20gb",    9, 15, 1, 2,  26, 4, 20096, "6420",    false},
        {"2g.20gb",    1, 14, 2, 2,  32, 3, 20096, "420",     false},
        {"3g.40gb",    2,  9, 3, 4,  60, 2, 40448, "40",      false},
        {"4g.40gb",    3,  5, 4, 4,  64, 1, 40448, "0",       false},
        {"7g.80gb",    4,  0, 7, 8, 132, 1, 81152, "0",       true}}},
    {"h100-pcie", "NVIDIA H100 PCIe", ARCHITECTURE_HOPPER, 15, 7, 8, 81152, 0x233110DE, {
        {"2g.20gb",    1, 14, 2, 2,  30, 3, 20096, "420",     false},
        {"3g.40gb",    2,  9, 3, 4,  46, 2, 40448, "40",      false},
        {"4g.40gb",    3,  5, 4, 4,  62, 1, 40448, "0",       false},
        {"7g.80gb",    4,  0, 7, 8, 114, 1, 81152, "0",       true}}},
    /* Names one GB off, ids that equal the enumerators, SMs in proportion: as drivers and mocks differ. */
    {"h100-other", "NVIDIA H100 80GB HBM3", ARCHITECTURE_HOPPER, 16, 7, 8, 81152, 0x233010DE, {
        {"1g.9gb",     0, 0, 1, 1,  16, 7,  9984, "6450123", false},
        {"2g.19gb",    1, 1, 2, 2,  32, 3, 20096, "420",     false},
        {"3g.39gb",    2, 2, 3, 4,  48, 2, 40448, "40",      false},
        {"4g.39gb",    3, 3, 4, 4,  64, 1, 40448, "0",       false},
        {"7g.79gb",    4, 4, 7, 8, 112, 1, 81152, "0",       true}}},
    {"t4", "Tesla T4", ARCHITECTURE_TURING, 0, 0, 0, 15360, 0x1EB810DE, {{0}}},
};

const struct gpu_type *gpu_type(const char *name)
{
    for (unsigned i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (!strcmp(TYPES[i].name, name))
            return &TYPES[i];
    return 0;
}

const struct profile *profile_by_id(const struct gpu_type *type, unsigned id)
{
    for (const struct profile *p = type->profiles; p->name; p++)
        if ((unsigned)p->id == id)
            return p;
    return 0;
}

const struct profile *profile_by_enumerator(const struct gpu_type *type, unsigned enumerator)
{
    for (const struct profile *p = type->profiles; p->name; p++)
        if ((unsigned)p->enumerator == enumerator)
            return p;
    return 0;
}
