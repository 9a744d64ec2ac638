/* Every call of the library: lock, count, fault, effect, log. */
#pragma once
#include "state.h"

/* What a call needs and does; in NVML the state-changing calls of MIG need root, and so do some that only look. */
enum access { LOOKS, LOOKS_AS_ROOT, CHANGES };

struct call {
    const char *name;
    enum access access;
    int gpu, lock;
    char arguments[160];
    struct fault fault;
    nvmlReturn_t result;
};

extern int initialised;

struct call begin(const char *name, enum access access, int gpu, const char *format, ...);
nvmlReturn_t finish(struct call *call);

/* An exported function: the rule is evaluated when the call is neither refused nor failed on purpose. */
#define NVML(name, access, gpu, parameters, rule, ...)                  \
    nvmlReturn_t name parameters                                        \
    {                                                                   \
        struct call call = begin(#name, access, gpu, __VA_ARGS__);      \
        if (call.result == NVML_SUCCESS)                                \
            call.result = (rule);                                       \
        return finish(&call);                                           \
    }
