/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/engines/nccl.h"

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
#define LOOK_UP_REQUIRED(member, symbol, result, parameters) \
    if (!bench_nccl_find(library, #symbol, &api.member))     \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s has no %s", path, #symbol);
    BENCH_NCCL_REQUIRED_TABLE(LOOK_UP_REQUIRED)
#undef LOOK_UP_REQUIRED
#define LOOK_UP_OPTIONAL(member, symbol, result, parameters) \
    (void)bench_nccl_find(library, #symbol, &api.member);
    BENCH_NCCL_OPTIONAL_TABLE(LOOK_UP_OPTIONAL)
#undef LOOK_UP_OPTIONAL
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
#define ADD_MISSING(member, symbol, result, parameters)                        \
    if (api->member == NULL)                                                   \
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", \
                 names[0] == '\0' ? "" : ", ", #symbol);
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

/* NCCL before 2.28 lacks all-to-all, gather and scatter. As in nccl-tests, grouped sends and
 * receives replace them. */
struct transfer {
    const struct bench_nccl_api *api;
    void *comm;
    void *stream;
    const struct bench_call *call;
    int type;
    size_t block_bytes;
};

static int send_block(const struct transfer *transfer, int block, int peer)
{
    const struct bench_call *call = transfer->call;
    return transfer->api->send((const char *)call->send + (size_t)block * transfer->block_bytes,
                               call->what.count, transfer->type, peer, transfer->comm,
                               transfer->stream);
}

static int recv_block(const struct transfer *transfer, int block, int peer)
{
    const struct bench_call *call = transfer->call;
    return transfer->api->recv((char *)call->recv + (size_t)block * transfer->block_bytes,
                               call->what.count, transfer->type, peer, transfer->comm,
                               transfer->stream);
}

static int run_group(const struct transfer *transfer, const struct bench_self *self)
{
    const int n_ranks = self->n_ranks, me = self->rank;
    const enum gyre_collective coll = transfer->call->what.coll;
    const int root = transfer->call->what.root;
    const bool is_root = me == root;
    int result = transfer->api->group_start();
    if (result != 0)
        return result;
    if (coll == GYRE_COLL_SEND_RECV) {
        result = send_block(transfer, 0, (me + 1) % n_ranks);
        if (result == 0)
            result = recv_block(transfer, 0, (me + n_ranks - 1) % n_ranks);
    } else if (coll == GYRE_COLL_GATHER) {
        result = send_block(transfer, 0, root); /* also to itself */
    } else if (coll == GYRE_COLL_SCATTER) {
        result = recv_block(transfer, 0, root);
    }
    for (int peer = 0; peer < n_ranks && result == 0; peer++) {
        if (coll == GYRE_COLL_ALL_TO_ALL || (coll == GYRE_COLL_SCATTER && is_root))
            result = send_block(transfer, peer, peer);
        if (result == 0 && (coll == GYRE_COLL_ALL_TO_ALL || (coll == GYRE_COLL_GATHER && is_root)))
            result = recv_block(transfer, peer, peer);
    }
    const int ended = transfer->api->group_end();
    return result != 0 ? result : ended;
}

static int run(const struct transfer *transfer, const struct bench_self *self)
{
    const struct bench_nccl_api *api = transfer->api;
    const struct bench_call *call = transfer->call;
    const struct bench_case *what = &call->what;
    const int op = (int)what->op;
    switch (what->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return api->all_reduce(call->send, call->recv, what->count, transfer->type, op,
                               transfer->comm, transfer->stream);
    case GYRE_COLL_BROADCAST:
        return api->broadcast(call->send, call->recv, what->count, transfer->type, what->root,
                              transfer->comm, transfer->stream);
    case GYRE_COLL_REDUCE:
        return api->reduce(call->send, call->recv, what->count, transfer->type, op, what->root,
                           transfer->comm, transfer->stream);
    case GYRE_COLL_ALL_GATHER:
        return api->all_gather(call->send, call->recv, what->count, transfer->type, transfer->comm,
                               transfer->stream);
    case GYRE_COLL_REDUCE_SCATTER:
        return api->reduce_scatter(call->send, call->recv, what->count, transfer->type, op,
                                   transfer->comm, transfer->stream);
    case GYRE_COLL_ALL_TO_ALL:
        if (api->all_to_all != NULL)
            return api->all_to_all(call->send, call->recv, what->count, transfer->type,
                                   transfer->comm, transfer->stream);
        break;
    case GYRE_COLL_GATHER:
        if (api->gather != NULL)
            return api->gather(call->send, call->recv, what->count, transfer->type, what->root,
                               transfer->comm, transfer->stream);
        break;
    case GYRE_COLL_SCATTER:
        if (api->scatter != NULL)
            return api->scatter(call->send, call->recv, what->count, transfer->type, what->root,
                                transfer->comm, transfer->stream);
        break;
    default:
        break;
    }
    return run_group(transfer, self);
}

gyre_status bench_nccl_call(const struct bench_nccl_api *api, void *comm,
                            const struct bench_self *self, const struct bench_call *call,
                            void *stream)
{
    const struct transfer transfer = {
        .api = api,
        .comm = comm,
        .stream = stream,
        .call = call,
        .type = (int)call->what.dtype,
        .block_bytes = call->what.count * gyre_dtype_bytes(call->what.dtype),
    };
    return bench_nccl_api_check(api, run(&transfer, self), gyre_collectives[call->what.coll].name);
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

static gyre_status allocate(struct bench_nccl_windows *windows, size_t n_bytes)
{
    struct bench_buffers *buffers = &windows->buffers;
    buffers->n_bytes = gyre_round_up(n_bytes, WINDOW_ALIGN_BYTES);
    GYRE_TRY(check_result(windows, windows->alloc(&buffers->send, buffers->n_bytes), "ncclMemAlloc",
                          buffers->n_bytes));
    return check_result(windows, windows->alloc(&buffers->recv, buffers->n_bytes), "ncclMemAlloc",
                        buffers->n_bytes);
}

static int add(struct bench_nccl_windows *windows, void *base, void **handle_out)
{
    const size_t n_bytes = windows->buffers.n_bytes;
    if (windows->kind == BENCH_NCCL_REGISTERED)
        return windows->add_buffer(windows->comm, base, n_bytes, handle_out);
    return windows->add(windows->comm, base, n_bytes, handle_out, BENCH_NCCL_WINDOW_SYMMETRIC);
}

static gyre_status add_windows(struct bench_nccl_windows *windows)
{
    const bool is_window = windows->kind == BENCH_NCCL_IN_WINDOWS;
    const char *call = is_window ? "ncclCommWindowRegister" : "ncclCommRegister";
    void *const bases[] = {windows->buffers.send, windows->buffers.recv};
    for (int i = 0; i < 2; i++)
        GYRE_TRY(check_result(windows, add(windows, bases[i], &windows->handles[i]), call,
                              windows->buffers.n_bytes));
    /* NCCL returns success without a window where it cannot use them. */
    if (is_window && (windows->handles[0] == NULL || windows->handles[1] == NULL))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--nccl-mode: NCCL makes no symmetric windows here; is one of "
                         "NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE 0, or peer access off?");
    return GYRE_SUCCESS;
}

/* The ranks agree after allocating: one without memory would leave the others waiting inside
 * NCCL. */
gyre_status bench_nccl_windows_open(const struct bench_self *self, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows)
{
    windows->comm = comm;
    GYRE_TRY(bench_ranks_agree(self, allocate(windows, n_bytes)));
    return bench_ranks_agree(self, add_windows(windows));
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
