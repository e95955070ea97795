/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL as the compared engine (--compare nccl). It is loaded at run time and runs on the rank's
 * stream, over the buffers of gyre's calls or over its own in symmetric windows (--nccl-mode).
 * Types and operations have the same numbers in both libraries. This is the only bench file that
 * includes nccl.h.
 */
#include "bench/engines/engine.h"
#include "bench/engines/nccl_window.h"
#include "core/device/cuda_error.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define NCCL_SYMBOLS(X)                                                                        \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclGetErrorString) X(ncclCommInitRank)             \
    X(ncclCommDestroy) X(ncclCommAbort) X(ncclAllReduce) X(ncclBroadcast) X(ncclReduce)        \
    X(ncclAllGather) X(ncclReduceScatter) X(ncclSend) X(ncclRecv) X(ncclGroupStart)            \
    X(ncclGroupEnd)
/* clang-format on */

#define N_PINNED 2

struct nccl {
    const struct bench_rank *rank;
    void *library;
    ncclComm_t comm;
    struct bench_nccl_windows windows; /* open unless --nccl-mode is plain */
    bool is_pinned[N_PINNED];          /* this rank has set the variable */
    char *before[N_PINNED];            /* its value before that; NULL = it was not set */
#define NCCL_MEMBER(name) __typeof__(&name) name;
    NCCL_SYMBOLS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

static gyre_status check_result(const struct nccl *nccl, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_DEVICE, "%s: %s", call, nccl->ncclGetErrorString(result));
}

static const char *path_of(const struct bench_options *options)
{
    return options->nccl_library == NULL ? "libnccl.so.2" : options->nccl_library;
}

static gyre_status load(struct nccl *nccl, const char *path)
{
    nccl->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nccl->library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s (see --nccl-lib)", dlerror());
    /* gyre's own libnccl.so.2 depends on libgyre, and dlsym() also looks into dependencies */
    if (dlsym(nccl->library, "gyre_get_version") != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare nccl: %s is gyre itself; name NCCL's with --nccl-lib", path);
#define NCCL_LOAD(name)                                  \
    *(void **)&nccl->name = dlsym(nccl->library, #name); \
    if (nccl->name == NULL)                              \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s has no %s", path, #name);
    NCCL_SYMBOLS(NCCL_LOAD)
#undef NCCL_LOAD
    return GYRE_SUCCESS;
}

static bool wants_windows(const struct nccl *nccl)
{
    return nccl->rank->options->nccl_mode != BENCH_NCCL_PLAIN;
}

/* The variables that NCCL reads when a communicator is made: those of --nccl-algo and --nccl-proto.
 */
static const char *const pinned_names[N_PINNED] = {"NCCL_ALGO", "NCCL_PROTO"};

/* Only local rank 0 sets them. The all-gather of the id, which comes later, makes all threads see
 * them. */
static void pin_variables(struct nccl *nccl)
{
    const struct bench_options *options = nccl->rank->options;
    const char *const values[N_PINNED] = {options->nccl_algo, options->nccl_proto};
    for (int i = 0; i < N_PINNED; i++) {
        const char *before = getenv(pinned_names[i]);
        if (values[i] == NULL)
            continue;
        nccl->is_pinned[i] = true;
        nccl->before[i] = before == NULL ? NULL : strdup(before);
        setenv(pinned_names[i], values[i], 1);
    }
}

/* Restores the variables, because gyre reads them too when the next combination of --sweep makes a
 * communicator. */
static void restore_variables(struct nccl *nccl)
{
    for (int i = 0; i < N_PINNED; i++) {
        if (nccl->is_pinned[i] && nccl->before[i] != NULL)
            setenv(pinned_names[i], nccl->before[i], 1);
        else if (nccl->is_pinned[i])
            unsetenv(pinned_names[i]);
        free(nccl->before[i]);
    }
}

/* @is_orderly: all ranks leave together. Otherwise nothing may wait for other ranks, as
 * ncclCommDestroy() would. */
static void leave(struct nccl *nccl, bool is_orderly)
{
    if (nccl == NULL)
        return;
    if (nccl->comm != NULL && !is_orderly)
        (void)nccl->ncclCommAbort(nccl->comm);
    bench_nccl_windows_close(&nccl->windows, is_orderly);
    if (nccl->comm != NULL && is_orderly)
        (void)nccl->ncclCommDestroy(nccl->comm);
    restore_variables(nccl);
    /* the library stays loaded, because its threads may still be ending */
    free(nccl);
}

static void nccl_close(void *state)
{
    struct nccl *nccl = state;
    leave(nccl, !nccl->rank->has_failed);
}

struct init_report {
    gyre_status status;
    ncclUniqueId id;
};

static gyre_status join(struct nccl *nccl, struct init_report *all)
{
    const struct bench_rank *rank = nccl->rank;
    struct init_report mine;
    memset(&mine, 0, sizeof(mine));
    if (rank->device_kind != GYRE_DEVICE_CUDA)
        mine.status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl needs --device cuda");
    if (mine.status == GYRE_SUCCESS)
        mine.status = load(nccl, path_of(rank->options));
    if (mine.status == GYRE_SUCCESS && wants_windows(nccl))
        mine.status =
            bench_nccl_windows_load(nccl->library, path_of(rank->options), &nccl->windows);
    int previous; /* the thread belongs to this rank, so its GPU may stay current */
    if (mine.status == GYRE_SUCCESS)
        mine.status = gyre_cuda_enter(rank->ordinal, &previous);
    if (mine.status == GYRE_SUCCESS && rank->member.local == 0)
        pin_variables(nccl);
    if (mine.status == GYRE_SUCCESS && rank->member.rank == 0)
        mine.status = check_result(nccl, nccl->ncclGetUniqueId(&mine.id), "ncclGetUniqueId");
    GYRE_TRY(bench_ranks_all_gather(&rank->member, &mine, sizeof(mine), all));
    if (mine.status != GYRE_SUCCESS)
        return mine.status;
    for (int i = 0; i < rank->member.n_ranks;
         i++) /* if one rank is missing, ncclCommInitRank() would wait for ever */
        if (all[i].status != GYRE_SUCCESS)
            return gyre_fail(GYRE_ERROR_REMOTE, "--compare nccl: rank %d cannot take part: %s", i,
                             gyre_status_name(all[i].status));
    return check_result(
        nccl,
        nccl->ncclCommInitRank(&nccl->comm, rank->member.n_ranks, all[0].id, rank->member.rank),
        "ncclCommInitRank");
}

static gyre_status nccl_open(const struct bench_rank *rank, void **state_out)
{
    struct nccl *nccl = calloc(1, sizeof(*nccl));
    struct init_report *all = calloc((size_t)rank->member.n_ranks, sizeof(*all));
    gyre_status status = nccl == NULL || all == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for NCCL's side")
                             : GYRE_SUCCESS;
    status = bench_ranks_agree(&rank->member, status);
    if (status == GYRE_SUCCESS) {
        nccl->rank = rank;
        status = bench_ranks_agree(&rank->member, join(nccl, all));
        if (status == GYRE_SUCCESS && wants_windows(nccl))
            status = bench_nccl_windows_open(&rank->member, nccl->comm, rank->buffers.n_bytes,
                                             &nccl->windows);
    }
    free(all);
    if (status == GYRE_SUCCESS)
        *state_out = nccl;
    else
        leave(nccl, false);
    return status;
}

static gyre_status nccl_version(void *state, char *text_out, size_t n_bytes)
{
    static const char *const buffers[] = {
        [BENCH_NCCL_PLAIN] = "plain buffers",
        [BENCH_NCCL_WINDOW] = "its own buffers in symmetric windows",
        [BENCH_NCCL_BEST] = "the faster of plain buffers and its own in symmetric windows",
    };
    const struct nccl *nccl = state;
    int version = 0;
    GYRE_TRY(check_result(nccl, nccl->ncclGetVersion(&version), "ncclGetVersion"));
    const char *multicast = getenv("NCCL_NVLS_ENABLE");
    const char *algo = getenv("NCCL_ALGO");
    const char *proto = getenv("NCCL_PROTO");
    snprintf(text_out, n_bytes, "NCCL %d.%d.%d, %s, algo %.16s, proto %.16s%s", version / 10000,
             version / 100 % 100, version % 100, buffers[nccl->rank->options->nccl_mode],
             algo == NULL ? "auto" : algo, proto == NULL ? "auto" : proto,
             multicast != NULL && strcmp(multicast, "0") == 0
                 ? ", NVLink multicast off (NCCL_NVLS_ENABLE=0)"
                 : "");
    return GYRE_SUCCESS;
}

static int nccl_modes(void *state, struct bench_mode *modes_out)
{
    const struct nccl *nccl = state;
    const int mode = nccl->rank->options->nccl_mode;
    int n = 0;
    if (mode != BENCH_NCCL_WINDOW)
        modes_out[n++] = (struct bench_mode){"plain", NULL};
    if (mode != BENCH_NCCL_PLAIN)
        modes_out[n++] = (struct bench_mode){"window", &nccl->windows.buffers};
    return n;
}

static gyre_status nccl_check(void *state, const struct bench_call *call)
{
    (void)state;
    if (call->what.coll == GYRE_COLL_ALL_TO_ALL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: not for %s",
                         gyre_collectives[call->what.coll].name);
    return GYRE_SUCCESS;
}

static ncclResult_t send_recv(const struct nccl *nccl, const struct bench_call *call,
                              ncclDataType_t type, cudaStream_t stream)
{
    const int n_ranks = nccl->rank->member.n_ranks;
    const int me = nccl->rank->member.rank;
    ncclResult_t result = nccl->ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    result =
        nccl->ncclSend(call->send, call->what.count, type, (me + 1) % n_ranks, nccl->comm, stream);
    if (result == ncclSuccess)
        result = nccl->ncclRecv(call->recv, call->what.count, type, (me + n_ranks - 1) % n_ranks,
                                nccl->comm, stream);
    const ncclResult_t ended = nccl->ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

static gyre_status nccl_run(void *state, const struct bench_call *call)
{
    const struct nccl *nccl = state;
    const struct bench_case *what = &call->what;
    const ncclDataType_t type = (ncclDataType_t)what->dtype;
    const ncclRedOp_t op = (ncclRedOp_t)what->op;
    const cudaStream_t stream = nccl->rank->stream;
    ncclResult_t result = ncclInvalidArgument;
    switch (what->coll) {
    case GYRE_COLL_ALL_REDUCE:
        result =
            nccl->ncclAllReduce(call->send, call->recv, what->count, type, op, nccl->comm, stream);
        break;
    case GYRE_COLL_BROADCAST:
        result = nccl->ncclBroadcast(call->send, call->recv, what->count, type, what->root,
                                     nccl->comm, stream);
        break;
    case GYRE_COLL_REDUCE:
        result = nccl->ncclReduce(call->send, call->recv, what->count, type, op, what->root,
                                  nccl->comm, stream);
        break;
    case GYRE_COLL_ALL_GATHER:
        result = nccl->ncclAllGather(call->send, call->recv, what->count, type, nccl->comm, stream);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        result = nccl->ncclReduceScatter(call->send, call->recv, what->count, type, op, nccl->comm,
                                         stream);
        break;
    case GYRE_COLL_SEND_RECV:
        result = send_recv(nccl, call, type, stream);
        break;
    default:
        break;
    }
    return check_result(nccl, result, gyre_collectives[what->coll].name);
}

static const char *nccl_wrong_value_hint(const struct bench_call *call)
{
    (void)call;
    return "";
}

const struct bench_engine_ops bench_engine_nccl = {
    .name = "nccl",
    .is_on_stream = true,
    .open = nccl_open,
    .version = nccl_version,
    .modes = nccl_modes,
    .check = nccl_check,
    .run = nccl_run,
    .wrong_value_hint = nccl_wrong_value_hint,
    .close = nccl_close,
};
