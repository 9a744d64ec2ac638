/* Every call of the library: lock, count, fault, effect, log. Faults are counted down in the state, so that each
   happens once. */
#include "call.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int initialised;

static bool concerns(const struct fault *fault, const struct call *call)
{
    return !strcmp(fault->what, "call") || (call->access == CHANGES && !strcmp(fault->what, "change")) ||
           !strcmp(fault->what, call->name);
}

/* Counts down the faults that concern the call; the one that has come to its turn leaves the state and is returned. */
static struct fault due_fault(const struct call *call)
{
    struct fault due = {0};
    for EACH(fault, fault)
        if (concerns(fault, call) && --fault->countdown == 0) {
            due = *fault;
            REMOVE(fault, fault--);
        }
    return due;
}

static void append_to_log(const struct call *call, const char *outcome)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/calls", folder());
    FILE *file = fopen(path, "a");
    fprintf(file, "%d\t%d\t%s\t%d\t%d\t%s\t%s\n", now.calls, getpid(), call->name, call->gpu, call->access == CHANGES,
            call->arguments, outcome);
    fclose(file);
}

/* The end of a call: what it did is on disk before anyone else, or nobody, goes on. */
static void leave(const struct call *call, const char *outcome)
{
    save_state();
    append_to_log(call, outcome);
    close(call->lock);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

static void stop_before_effect(const struct call *call)
{
    if (!strcmp(call->fault.kind, "hang")) {
        leave(call, "hang");
        for (;;)
            pause();
    }
    if (!strcmp(call->fault.kind, "kill_before")) {
        leave(call, "kill_before");
        die();
    }
}

struct call begin(const char *name, enum access access, int gpu, const char *format, ...)
{
    struct call call = {.name = name, .access = access, .gpu = gpu, .lock = -1};
    if (!folder() || !initialised) {
        call.result = folder() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_LIBRARY_NOT_FOUND;
        return call;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call.arguments, sizeof call.arguments, format, arguments);
    va_end(arguments);
    call.lock = lock_folder();
    load_state();
    now.calls++;
    now.changes += access == CHANGES;
    call.fault = due_fault(&call);
    stop_before_effect(&call);
    if (access != CHANGES)
        look_back();
    if (!strcmp(call.fault.kind, "error"))
        call.result = call.fault.code;
    else if (access != LOOKS && !now.privileged)
        call.result = NVML_ERROR_NO_PERMISSION;
    return call;
}

nvmlReturn_t finish(struct call *call)
{
    if (call->lock < 0)
        return call->result;
    if (!strcmp(call->fault.kind, "error_after") && call->result == NVML_SUCCESS)
        call->result = call->fault.code;
    look_ahead();
    if (call->access == CHANGES)
        remember();
    bool killed = !strcmp(call->fault.kind, "kill_after");
    char outcome[16];
    snprintf(outcome, sizeof outcome, "%d", call->result);
    leave(call, killed ? "kill_after" : outcome);
    if (killed)
        die();
    return call->result;
}
