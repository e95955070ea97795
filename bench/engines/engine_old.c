/* SPDX-License-Identifier: Apache-2.0
 *
 * --compare old --old-lib FILE: another libgyre.so with its own communicator, buffers and, in host
 * memory, stream. A copy of the linked version shows the comparison's own scatter.
 */
#include "bench/engines/compare.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct old {
    const struct bench_rank *rank; /* gyre's */
    struct bench_library library;
    struct bench_rank own; /* on GPUs with gyre's stream, which can be captured */
};

/* The library that failed holds the cause. */
static gyre_status pass_on(const struct old *old, gyre_status status)
{
    return status == GYRE_SUCCESS ? status
                                  : gyre_fail(status, "%s: %s", old->rank->options->old_library,
                                              old->library.last_error());
}

/* RTLD_DEEPBIND: its calls reach its own functions, not the bench's. Its threads may end later, so
 * it stays loaded. */
static gyre_status load(struct old *old)
{
    const char *path = old->rank->options->old_library;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--old-lib: %s", dlerror());
#define LOOK_UP(name)                                                                           \
    {                                                                                           \
        void *found = dlsym(handle, "gyre_" #name);                                             \
        if (found == NULL)                                                                      \
            return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--old-lib: %s has no gyre_" #name, path); \
        memcpy(&old->library.name, &found, sizeof(found));                                      \
    }
    BENCH_LIBRARY_TABLE(LOOK_UP)
#undef LOOK_UP
    return GYRE_SUCCESS;
}

static gyre_status join(struct old *old)
{
    const struct bench_rank *rank = old->rank;
    const struct bench_self *self = &rank->self;
    gyre_unique_id id, *ids = calloc((size_t)self->n_ranks, sizeof(*ids));
    gyre_config config = bench_config_of(rank->options);
    gyre_status status = GYRE_SUCCESS;
    config.device_ordinal = rank->ordinal;
    memset(&id, 0, sizeof(id));
    if (ids == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --compare old");
    else if (self->rank == 0)
        status = pass_on(old, old->library.get_unique_id(&id));
    status = bench_ranks_agree(self, status);
    if (status == GYRE_SUCCESS)
        status = bench_ranks_all_gather(self, &id, sizeof(id), ids);
    if (status == GYRE_SUCCESS)
        status = pass_on(old, old->library.comm_init_rank(&old->own.comm, self->n_ranks, &ids[0],
                                                          self->rank, &config));
    free(ids);
    return bench_ranks_agree(self, status);
}

static void leave(struct old *old, bool is_orderly)
{
    if (old->own.stream == old->rank->stream)
        old->own.stream = NULL;
    if (old->own.comm != NULL && !is_orderly)
        (void)old->library.comm_abort(old->own.comm);
    bench_library_leave(&old->library, &old->own, is_orderly);
    free(old);
}

static gyre_status open_memory(struct old *old)
{
    struct bench_rank *own = &old->own;
    if (own->device_kind == GYRE_DEVICE_HOST && own->stream != NULL) {
        own->stream = NULL;
        GYRE_TRY(
            pass_on(old, old->library.stream_create(&own->stream, own->device_kind, own->ordinal)));
    }
    /* In host memory only the library's own buffers can be windows. */
    return pass_on(old, bench_library_open_buffers(&old->library, own));
}

static gyre_status old_open(const struct bench_rank *rank, void **state_out)
{
    struct old *old = calloc(1, sizeof(*old));
    gyre_status status = old == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --compare old")
                             : GYRE_SUCCESS;
    if (old != NULL) {
        old->rank = rank;
        old->own = *rank;
        old->own.comm = NULL;
        old->own.window = 0;
        memset(old->own.registrations, 0, sizeof(old->own.registrations));
        memset(&old->own.buffers, 0, sizeof(old->own.buffers));
        status = load(old);
    }
    status = bench_ranks_agree(&rank->self, status);
    if (status == GYRE_SUCCESS)
        status = join(old);
    if (status == GYRE_SUCCESS)
        status = bench_ranks_agree(&rank->self, open_memory(old));
    if (status == GYRE_SUCCESS)
        *state_out = old;
    else if (old != NULL)
        leave(old, false);
    return status;
}

static gyre_status old_version(void *state, char *text_out, size_t n_bytes)
{
    const struct old *old = state;
    int version = 0;
    GYRE_TRY(pass_on(old, old->library.get_version(&version)));
    snprintf(text_out, n_bytes, "gyre %d.%d.%d, %s", version / 10000, version / 100 % 100,
             version % 100, old->rank->options->old_library);
    return GYRE_SUCCESS;
}

static int old_modes(void *state, struct bench_mode *modes_out)
{
    const struct old *old = state;
    modes_out[0] = (struct bench_mode){"plain", &old->own.buffers};
    return 1;
}

static gyre_status old_run(void *state, const struct bench_call *call)
{
    const struct old *old = state;
    return pass_on(old, bench_library_call(&old->library, &old->own, call));
}

static gyre_status old_wait(void *state)
{
    const struct old *old = state;
    return pass_on(old, bench_library_wait(&old->library, &old->own));
}

static void old_close(void *state)
{
    struct old *old = state;
    leave(old, !old->rank->has_failed);
}

const struct bench_engine_ops bench_engine_old = {
    .name = "old",
    .is_on_stream = true,
    .open = old_open,
    .version = old_version,
    .modes = old_modes,
    .check = bench_engine_takes_all,
    .run = old_run,
    .wait = old_wait,
    .wrong_value_hint = bench_engine_has_no_hint,
    .close = old_close,
};
