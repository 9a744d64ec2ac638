/* One row per line: a word that names the kind, then the fields in the order of the structures in state.h. */
#include "state.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST_REAL_PID = 1 << 22 };

struct state now;

bool answers(int gpu, const char *how)
{
    return gpu >= 0 && gpu < now.gpu_count && !strcmp(now.gpu_rows[gpu].answers, how);
}

bool sparse(int gpu)
{
    return answers(gpu, "sparse");
}

bool leaked(int gpu)
{
    return !strcmp(now.gpu_rows[gpu].settles, "leaked");
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* What this process saw last, and when; a driver that answers late shows that for a second. */
static struct state seen, fresh;
static char seen_folder[4096];
static double seen_s;
static bool looking_back;

void look_back(void)
{
    bool late = false;
    for (int gpu = 0; gpu < now.gpu_count; gpu++)
        late |= answers(gpu, "late");
    looking_back = late && !strcmp(seen_folder, folder()) && seconds() - seen_s < LATE_S;
    if (looking_back) {
        fresh = now;
        now = seen;
    } else if (late)
        remember();
}

void remember(void)
{
    seen = now;
    seen_s = seconds();
    snprintf(seen_folder, sizeof seen_folder, "%s", folder());
}

void look_ahead(void)
{
    if (looking_back)
        now = fresh;
    looking_back = false;
}

const char *folder(void)
{
    return getenv("NVML_STANDIN_FOLDER");
}

static char *path_of(char *path, const char *name)
{
    snprintf(path, 4096, "%s/%s", folder(), name);
    return path;
}

int lock_folder(void)
{
    char path[4096];
    int lock = open(path_of(path, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX))
        abort();
    return lock;
}

/* Processes that really exist leave the GPU when they end, waited for or not. */
static bool has_ended(int pid)
{
    char path[64], status = 0;
    if (pid > LARGEST_REAL_PID)
        return false;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    int known = fscanf(file, "%*d (%*[^)]) %c", &status);
    fclose(file);
    return known != 1 || status == 'Z' || status == 'X';
}

static void parse(const char *line)
{
    struct gpu g;
    struct instance i;
    struct compute c;
    struct process p;
    struct fault f;
    if (sscanf(line, "gpu %15s %47s %d %d %d %15s %15s", g.type, g.uuid, &g.mig, &g.pending_mig, &g.compute_mode,
               g.settles, g.answers) == 7)
        ADD(gpu, g);
    else if (sscanf(line, "instance %d %d %d %d %d %d", &i.gpu, &i.id, &i.profile, &i.start, &i.size, &i.serial) == 6)
        ADD(instance, i);
    else if (sscanf(line, "compute %d %d %d %d %d %d %d %d %47s", &c.gpu, &c.instance, &c.id, &c.profile, &c.start,
                    &c.size, &c.slot, &c.serial, c.uuid) == 9)
        ADD(compute, c);
    else if (sscanf(line, "process %d %d %d %d %3s %d %511s", &p.pid, &p.gpu, &p.instance, &p.compute, p.kind,
                    &p.memory_mib, p.name) == 7) {
        if (!has_ended(p.pid))
            ADD(process, p);
    } else if (sscanf(line, "fault %63s %d %15s %d", f.what, &f.countdown, f.kind, &f.code) == 4)
        ADD(fault, f);
    else if (sscanf(line, "node %d %d %d %d", &now.calls, &now.changes, &now.serial, &now.privileged) != 4)
        abort();
}

void load_state(void)
{
    char path[4096], line[1024];
    FILE *file = fopen(path_of(path, "state"), "r");
    if (!file)
        abort();
    now.gpu_count = now.instance_count = now.compute_count = now.process_count = now.fault_count = 0;
    while (fgets(line, sizeof line, file))
        parse(line);
    fclose(file);
}

static void write_rows(FILE *file)
{
    fprintf(file, "node %d %d %d %d\n", now.calls, now.changes, now.serial, now.privileged);
    for EACH(gpu, g)
        fprintf(file, "gpu %s %s %d %d %d %s %s\n", g->type, g->uuid, g->mig, g->pending_mig, g->compute_mode,
                g->settles, g->answers);
    for EACH(instance, i)
        fprintf(file, "instance %d %d %d %d %d %d\n", i->gpu, i->id, i->profile, i->start, i->size, i->serial);
    for EACH(compute, c)
        fprintf(file, "compute %d %d %d %d %d %d %d %d %s\n", c->gpu, c->instance, c->id, c->profile, c->start,
                c->size, c->slot, c->serial, c->uuid);
    for EACH(process, p)
        fprintf(file, "process %d %d %d %d %s %d %s\n", p->pid, p->gpu, p->instance, p->compute, p->kind,
                p->memory_mib, p->name);
    for EACH(fault, f)
        fprintf(file, "fault %s %d %s %d\n", f->what, f->countdown, f->kind, f->code);
}

void save_state(void)
{
    char fresh[4096], path[4096];
    FILE *file = fopen(path_of(fresh, "state.new"), "w");
    if (!file)
        abort();
    write_rows(file);
    if (fclose(file) || rename(fresh, path_of(path, "state")))
        abort();
}
