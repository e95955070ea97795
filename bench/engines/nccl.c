/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/engines/nccl.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MAGIC   0xcafebeefU /* NCCL_CONFIG_INITIALIZER of nccl.h */
#define CONFIG_VERSION 22809       /* of struct bench_nccl_config */

/* ISO C has no cast from dlsym()'s result to a function. */
bool bench_nccl_find(void *library, const char *symbol, void *function_out)
{
    void *found = dlsym(library, symbol);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

gyre_status bench_nccl_api_look_up(void *library, const char *path, struct bench_nccl_api *api_out)
{
    struct bench_nccl_api api = {.library = library};
#define LOOK_UP(field, symbol)                          \
    if (!bench_nccl_find(library, #symbol, &api.field)) \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s has no %s", path, #symbol);
#define LOOK_UP_FUNCTION(member, symbol, result, parameters) LOOK_UP(member, symbol)
#define LOOK_UP_CALL(member, symbol)                         LOOK_UP(calls.member, symbol)
#define LOOK_UP_REPLACED(member, symbol)                     (void)bench_nccl_find(library, #symbol, &api.calls.member);
    BENCH_NCCL_TABLE(LOOK_UP_FUNCTION)
    BENCH_NCCL_CALL_TABLE(LOOK_UP_CALL)
    BENCH_NCCL_REPLACED_TABLE(LOOK_UP_REPLACED)
    (void)bench_nccl_find(library, "ncclCommInitRankConfig", &api.init_config);
    GYRE_TRY(bench_nccl_api_check(&api, api.get_version(&api.version), "ncclGetVersion"));
    if (api.version < BENCH_NCCL_MIN_VERSION)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare nccl: %s is NCCL %d.%d.%d; 2.20 or newer is needed", path,
                         api.version / 10000, api.version / 100 % 100, api.version % 100);
    *api_out = api;
    return GYRE_SUCCESS;
}

gyre_status bench_nccl_api_load(const char *path, struct bench_nccl_api *api_out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s (see --nccl-lib)", dlerror());
    /* gyre's own libnccl.so.2 depends on libgyre, where dlsym() looks too. */
    if (dlsym(library, "gyre_get_version") != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare nccl: %s is gyre itself; name NCCL's with --nccl-lib", path);
    return bench_nccl_api_look_up(library, path, api_out);
}

void bench_nccl_api_missing(const struct bench_nccl_api *api, char *text_out, size_t n_bytes)
{
    char names[64] = "";
#define ADD_MISSING(member, symbol) \
    if (api->calls.member == NULL)  \
        gyre_text_append(names, sizeof(names), "%s%s", names[0] == '\0' ? "" : ", ", #symbol);
    BENCH_NCCL_REPLACED_TABLE(ADD_MISSING)
#undef ADD_MISSING
    snprintf(text_out, n_bytes, "%s%s", names,
             names[0] == '\0' ? "" : " (since 2.28), for which sends and receives stand in");
}

gyre_status bench_nccl_api_check(const struct bench_nccl_api *api, int result, const char *call)
{
    if (result == 0)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_DEVICE, "%s: %s", call, api->error_text(result));
}

/* A newer version would promise fields that the library does not know. */
struct bench_nccl_config bench_nccl_config_of(const struct bench_nccl_api *api, int cta_policy)
{
    return (struct bench_nccl_config){
        .size = sizeof(struct bench_nccl_config),
        .magic = CONFIG_MAGIC,
        .version = (unsigned)(api->version < CONFIG_VERSION ? api->version : CONFIG_VERSION),
        .blocking = INT_MIN, /* NCCL_CONFIG_UNDEF_INT */
        .cga_cluster_size = INT_MIN,
        .min_ctas = INT_MIN,
        .max_ctas = INT_MIN,
        .split_share = INT_MIN,
        .traffic_class = INT_MIN,
        .collnet_enable = INT_MIN,
        .cta_policy = cta_policy,
        .shrink_share = INT_MIN,
        .nvls_ctas = INT_MIN,
        .channels_per_net_peer = INT_MIN,
        .nvlink_centric_sched = INT_MIN,
    };
}

/* As in nccl-tests, for an NCCL without the function. */
static int run_group(const struct bench_library *calls, const struct bench_rank *rank,
                     const struct bench_call *call)
{
    const struct bench_case *what = &call->what;
    const size_t block_bytes = what->count * gyre_dtype_bytes(what->dtype);
    const bool is_root = rank->self.rank == what->root;
    const bool is_gather = what->coll == GYRE_COLL_GATHER;
    const bool is_scatter = what->coll == GYRE_COLL_SCATTER;
    int result = (int)calls->group_start();
    if (result != 0)
        return result;
    if (is_gather) /* also from the root to itself */
        result = (int)calls->send(call->send, what->count, what->dtype, what->root, rank->comm,
                                  rank->stream);
    else if (is_scatter)
        result = (int)calls->recv(call->recv, what->count, what->dtype, what->root, rank->comm,
                                  rank->stream);
    for (int peer = 0; peer < rank->self.n_ranks && result == 0; peer++) {
        const size_t offset = (size_t)peer * block_bytes;
        if (is_scatter ? is_root : !is_gather)
            result = (int)calls->send((const char *)call->send + offset, what->count, what->dtype,
                                      peer, rank->comm, rank->stream);
        if (result == 0 && (is_gather ? is_root : !is_scatter))
            result = (int)calls->recv((char *)call->recv + offset, what->count, what->dtype, peer,
                                      rank->comm, rank->stream);
    }
    const int ended = (int)calls->group_end();
    return result != 0 ? result : ended;
}

gyre_status bench_nccl_call(const struct bench_nccl_api *api, const struct bench_rank *rank,
                            const struct bench_call *call)
{
    const enum gyre_collective coll = call->what.coll;
    const bool is_missing = (coll == GYRE_COLL_ALL_TO_ALL && api->calls.all_to_all == NULL) ||
                            (coll == GYRE_COLL_GATHER && api->calls.gather == NULL) ||
                            (coll == GYRE_COLL_SCATTER && api->calls.scatter == NULL);
    const int result = is_missing ? run_group(&api->calls, rank, call)
                                  : (int)bench_library_call(&api->calls, rank, call);
    return bench_nccl_api_check(api, result, gyre_collectives[coll].name);
}

/* NCCL_WIN_REQUIRED_ALIGNMENT of nccl.h, below ncclMemAlloc()'s. */
#define WINDOW_ALIGN_BYTES 4096

gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    enum bench_nccl_buffer_kind kind,
                                    struct bench_nccl_windows *windows_out)
{
    struct bench_nccl_windows windows = {.kind = kind};
#define LOAD(member, symbol, result, parameters, needed_by)                                      \
    if (!bench_nccl_find(library, #symbol, &windows.member) &&                                   \
        ((needed_by) < 0 || (needed_by) == (int)kind))                                           \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--nccl-mode %s: %s has no %s (NCCL has %s)",   \
                         kind == BENCH_NCCL_IN_WINDOWS ? "window" : "registered", path, #symbol, \
                         kind == BENCH_NCCL_IN_WINDOWS ? "windows since 2.27"                    \
                                                       : "registration since 2.19");
    BENCH_NCCL_WINDOW_TABLE(LOAD)
#undef LOAD
    *windows_out = windows;
    return GYRE_SUCCESS;
}

static gyre_status check_result(const struct bench_nccl_windows *windows, int result,
                                const char *call, size_t n_bytes)
{
    if (result == 0)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_DEVICE, "%s(%zu bytes): %s", call, n_bytes,
                     windows->error_text(result));
}

/* The ranks agree after allocating: one without memory would leave the others waiting inside
 * NCCL. */
gyre_status bench_nccl_windows_open(const struct bench_self *self, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows)
{
    struct bench_buffers *buffers = &windows->buffers;
    const bool is_window = windows->kind == BENCH_NCCL_IN_WINDOWS;
    const char *call = is_window ? "ncclCommWindowRegister" : "ncclCommRegister";
    void **const bases[] = {&buffers->send, &buffers->recv};
    gyre_status status = GYRE_SUCCESS;
    windows->comm = comm;
    buffers->n_bytes = gyre_round_up(n_bytes, WINDOW_ALIGN_BYTES);
    for (int i = 0; i < 2 && status == GYRE_SUCCESS; i++)
        status = check_result(windows, windows->alloc(bases[i], buffers->n_bytes), "ncclMemAlloc",
                              buffers->n_bytes);
    GYRE_TRY(bench_ranks_agree(self, status));
    for (int i = 0; i < 2 && status == GYRE_SUCCESS; i++)
        status =
            check_result(windows,
                         is_window ? windows->add(comm, *bases[i], buffers->n_bytes,
                                                  &windows->handles[i], BENCH_NCCL_WINDOW_SYMMETRIC)
                                   : windows->add_buffer(comm, *bases[i], buffers->n_bytes,
                                                         &windows->handles[i]),
                         call, buffers->n_bytes);
    /* NCCL returns success without a window where it cannot use them. */
    if (status == GYRE_SUCCESS && is_window &&
        (windows->handles[0] == NULL || windows->handles[1] == NULL))
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "--nccl-mode: NCCL makes no symmetric windows here; is one of "
                           "NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE 0, or peer access off?");
    return bench_ranks_agree(self, status);
}

void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly)
{
    for (int i = 0; i < 2 && is_orderly; i++)
        if (windows->handles[i] != NULL && windows->kind == BENCH_NCCL_IN_WINDOWS)
            (void)windows->remove(windows->comm, windows->handles[i]);
        else if (windows->handles[i] != NULL)
            (void)windows->remove_buffer(windows->comm, windows->handles[i]);
    if (windows->buffers.send != NULL)
        (void)windows->free(windows->buffers.send);
    if (windows->buffers.recv != NULL)
        (void)windows->free(windows->buffers.recv);
    *windows = (struct bench_nccl_windows){.kind = windows->kind};
}
