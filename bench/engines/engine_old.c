/* SPDX-License-Identifier: Apache-2.0
 *
 * --compare old --old-lib FILE: another libgyre.so with its own communicator, buffers and, in host
 * memory, stream. A copy of the linked version shows the comparison's own scatter.
 */
#include "bench/engines/engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct old {
    const struct bench_rank *rank;
    struct bench_library library;
    gyre_comm *comm;
    gyre_stream stream; /* on GPUs the rank's, which can be captured */
    struct bench_buffers buffers;
    gyre_window window;
    gyre_registration registrations[2];
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
    const struct bench_member *member = &rank->member;
    gyre_unique_id id, *ids = calloc((size_t)member->n_ranks, sizeof(*ids));
    gyre_config config = bench_config_of(rank->options);
    gyre_status status = GYRE_SUCCESS;
    config.device_ordinal = rank->ordinal;
    memset(&id, 0, sizeof(id));
    if (ids == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --compare old");
    else if (member->rank == 0)
        status = pass_on(old, old->library.get_unique_id(&id));
    status = bench_ranks_agree(member, status);
    if (status == GYRE_SUCCESS)
        status = bench_ranks_all_gather(member, &id, sizeof(id), ids);
    if (status == GYRE_SUCCESS)
        status = pass_on(old, old->library.comm_init_rank(&old->comm, member->n_ranks, &ids[0],
                                                          member->rank, &config));
    free(ids);
    return bench_ranks_agree(member, status);
}

/* In host memory only the library's own buffers can be windows. */
static gyre_status open_buffers(struct old *old)
{
    const struct bench_rank *rank = old->rank;
    const struct bench_library *library = &old->library;
    struct bench_buffers *buffers = &old->buffers;
    void *const both[] = {&buffers->send, &buffers->recv};
    buffers->n_bytes = rank->buffers.n_bytes;
    for (int i = 0; i < 2; i++)
        GYRE_TRY(pass_on(
            old, library->mem_alloc(both[i], buffers->n_bytes, rank->device_kind, rank->ordinal)));
    old->stream = rank->stream;
    if (rank->device_kind == GYRE_DEVICE_HOST && rank->stream != NULL)
        GYRE_TRY(
            pass_on(old, library->stream_create(&old->stream, rank->device_kind, rank->ordinal)));
    if (rank->options->registration == 2)
        return pass_on(old, library->window_register(old->comm, buffers->recv, buffers->n_bytes,
                                                     &old->window));
    if (rank->options->registration == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(pass_on(old, library->comm_register(old->comm, buffers->send, buffers->n_bytes,
                                                 &old->registrations[0])));
    return pass_on(old, library->comm_register(old->comm, buffers->recv, buffers->n_bytes,
                                               &old->registrations[1]));
}

static void leave(struct old *old, bool is_orderly)
{
    const struct bench_library *library = &old->library;
    const gyre_device_kind kind = old->rank->device_kind;
    if (old->stream != NULL && old->stream != old->rank->stream)
        (void)library->stream_destroy(old->stream, kind);
    for (int i = 0; i < 2; i++)
        if (old->registrations[i] != NULL)
            (void)library->comm_deregister(old->comm, old->registrations[i]);
    if (old->window != 0 && is_orderly)
        (void)library->window_deregister(old->comm, old->window);
    if (old->comm != NULL && !is_orderly)
        (void)library->comm_abort(old->comm);
    if (old->comm != NULL)
        (void)library->comm_destroy(old->comm);
    if (old->buffers.send != NULL)
        (void)library->mem_free(old->buffers.send, kind);
    if (old->buffers.recv != NULL)
        (void)library->mem_free(old->buffers.recv, kind);
    free(old);
}

static gyre_status old_open(const struct bench_rank *rank, void **state_out)
{
    struct old *old = calloc(1, sizeof(*old));
    gyre_status status = old == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --compare old")
                             : GYRE_SUCCESS;
    if (old != NULL) {
        old->rank = rank;
        status = load(old);
    }
    status = bench_ranks_agree(&rank->member, status);
    if (status == GYRE_SUCCESS)
        status = join(old);
    if (status == GYRE_SUCCESS)
        status = bench_ranks_agree(&rank->member, open_buffers(old));
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
    modes_out[0] = (struct bench_mode){"plain", &old->buffers};
    return 1;
}

static gyre_status old_check(void *state, const struct bench_call *call)
{
    (void)state;
    (void)call;
    return GYRE_SUCCESS; /* it has all that benches measure */
}

static gyre_status old_run(void *state, const struct bench_call *call)
{
    const struct old *old = state;
    return pass_on(old, bench_library_call(&old->library, old->comm, old->stream, old->rank, call));
}

static gyre_status old_wait(void *state)
{
    const struct old *old = state;
    return pass_on(
        old, bench_library_wait(&old->library, old->comm, old->stream, old->rank->device_kind));
}

static const char *old_wrong_value_hint(const struct bench_call *call)
{
    (void)call;
    return "";
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
    .check = old_check,
    .run = old_run,
    .wait = old_wait,
    .wrong_value_hint = old_wrong_value_hint,
    .close = old_close,
};
