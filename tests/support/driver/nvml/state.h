/* What the GPUs are and hold, read from and written to the text file `state` of the node's folder. */
#pragma once
#include "abi.h"
#include <stdbool.h>

enum { LATE_S = 1 };
enum { MOST_GPUS = 16, MOST_INSTANCES = 128, MOST_PROCESSES = 512, MOST_FAULTS = 32 };

struct gpu { char type[16], uuid[48]; int mig, pending_mig, compute_mode; char settles[16], answers[16]; };

struct instance { int gpu, id, profile, start, size, serial; };

struct compute { int gpu, instance, id, profile, start, size, slot, serial; char uuid[48]; };

/* instance and compute are -1 for a process on a whole GPU, gpu is -1 for one that uses none (an MPS daemon). */
struct process { int pid, gpu, instance, compute; char kind[4]; int memory_mib; char name[512]; };

struct fault { char what[64]; int countdown; char kind[16]; int code; };

struct state {
    int calls, changes, serial, privileged;
    int gpu_count, instance_count, compute_count, process_count, fault_count;
    struct gpu gpu_rows[MOST_GPUS];
    struct instance instance_rows[MOST_INSTANCES];
    struct compute compute_rows[MOST_INSTANCES];
    struct process process_rows[MOST_PROCESSES];
    struct fault fault_rows[MOST_FAULTS];
};

/* The state of the call in progress; the lock makes the call the only user of it, across threads and processes. */
extern struct state now;

/* Whether a GPU answers in a way; sparsely as drivers under vGPU or WSL and NVIDIA's own mock do. */
bool answers(int gpu, const char *how);
bool sparse(int gpu);

/* Whether something holds a GPU that is no process on it, until the GPU is reset. */
bool leaked(int gpu);

/* For a call that looks: the state as this process last saw it, where the driver answers late; and back again. */
void look_back(void);
void look_ahead(void);
/* For a call that changes: what it left is what this process saw last. */
void remember(void);

const char *folder(void);
int lock_folder(void);
void load_state(void);
void save_state(void);

#define ADD(list, row) (now.list##_rows[now.list##_count++] = (row))
#define REMOVE(list, row) (*(row) = now.list##_rows[--now.list##_count])
#define EACH(list, row) \
    (__typeof__(&*now.list##_rows) row = now.list##_rows; row < now.list##_rows + now.list##_count; row++)
