/* SPDX-License-Identifier: Apache-2.0
 *
 * --compare nccl in the modes of --nccl-mode. zero-sm has its own communicator, to which the policy
 * belongs.
 */
#include "bench/engines/compare.h"
#include "bench/engines/nccl.h"
#include "core/foundation/base/text.h"
#include "core/foundation/device/cuda_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PINNED 4

/* Modes with own buffers. */
enum { WITH_REGISTERED, WITH_WINDOWS, WITH_ZERO_SM, N_OWN };
static const char *const own_names[N_OWN] = {"registered", "window", "zero-sm"};
static const int own_modes[N_OWN] = {BENCH_NCCL_BUFFERS, BENCH_NCCL_WINDOW, BENCH_NCCL_ZERO_SM};

struct nccl {
    const struct bench_rank *rank;
    struct bench_nccl_api api;
    /* The rank with NCCL's communicators, of which zero's has BENCH_NCCL_POLICY_ZERO. */
    struct bench_rank own_rank, zero_rank;
    struct bench_nccl_windows own[N_OWN];
    bool is_open[N_OWN];
    char left_out[192]; /* by --nccl-mode best, with reasons, "" = none */
    bool is_pinned[N_PINNED];
    char *before[N_PINNED]; /* NULL = unset */
};

static const char *path_of(const struct bench_options *options)
{
    return options->nccl_library == NULL ? "libnccl.so.2" : options->nccl_library;
}

static bool wants(const struct nccl *nccl, int mode)
{
    const int given = nccl->rank->options->nccl_mode;
    return given == BENCH_NCCL_BEST || given == mode;
}

/* NCCL reads them when a communicator is made. */
static const char *const pinned_names[N_PINNED] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS",
                                                   "NCCL_MAX_NCHANNELS"};

/* @is_orderly: all ranks leave together. Else nothing may wait for others, as ncclCommDestroy()
 * does. */
static void leave(struct nccl *nccl, bool is_orderly)
{
    void *const comms[] = {nccl->own_rank.comm, nccl->zero_rank.comm};
    for (int i = 0; i < 2 && !is_orderly; i++)
        if (comms[i] != NULL)
            (void)nccl->api.abort(comms[i]);
    for (int i = 0; i < N_OWN; i++)
        bench_nccl_windows_close(&nccl->own[i], is_orderly);
    for (int i = 0; i < 2 && is_orderly; i++)
        if (comms[i] != NULL)
            (void)nccl->api.destroy(comms[i]);
    /* gyre reads them too, for the next communicator of --sweep. */
    for (int i = 0; i < N_PINNED; i++) {
        if (nccl->is_pinned[i] && nccl->before[i] != NULL)
            setenv(pinned_names[i], nccl->before[i], 1);
        else if (nccl->is_pinned[i])
            unsetenv(pinned_names[i]);
        free(nccl->before[i]);
    }
    free(nccl);
}

static void nccl_close(void *state)
{
    struct nccl *nccl = state;
    leave(nccl, !nccl->rank->has_failed);
}

struct init_report {
    gyre_status status;
    int version;
    struct bench_nccl_id id;
};

static gyre_status prepare(struct nccl *nccl)
{
    const struct bench_rank *rank = nccl->rank;
    int previous; /* the thread is this rank's, so its GPU stays current */
    if (rank->device_kind != GYRE_DEVICE_CUDA)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl needs --device cuda");
    GYRE_TRY(bench_nccl_api_load(path_of(rank->options), &nccl->api));
    GYRE_TRY(gyre_cuda_enter(rank->ordinal, &previous));
    if (rank->self.local != 0)
        return GYRE_SUCCESS;
    /* By local rank 0 alone. The all-gather of the id publishes them to all threads. */
    const struct bench_options *options = rank->options;
    const char *const values[N_PINNED] = {options->nccl_algo, options->nccl_proto,
                                          options->nccl_channels, options->nccl_channels};
    for (int i = 0; i < N_PINNED; i++) {
        const char *before = getenv(pinned_names[i]);
        if (values[i] == NULL)
            continue;
        nccl->is_pinned[i] = true;
        nccl->before[i] = before == NULL ? NULL : strdup(before);
        setenv(pinned_names[i], values[i], 1);
    }
    return GYRE_SUCCESS;
}

/* Collective. @status: so far. @cta_policy: 0 = default. ncclCommInitRank() waits for ever for a
 * missing rank, and refuses mixed versions without naming ranks. */
static gyre_status join(struct nccl *nccl, gyre_status status, int cta_policy,
                        struct bench_rank *own)
{
    void *comm = NULL;
    const struct bench_self *self = &nccl->rank->self;
    struct init_report *all = calloc((size_t)self->n_ranks, sizeof(*all));
    struct init_report mine = {.status = status, .version = nccl->api.version};
    if (mine.status == GYRE_SUCCESS && all == NULL)
        mine.status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for NCCL's side");
    if (mine.status == GYRE_SUCCESS && self->rank == 0)
        mine.status =
            bench_nccl_api_check(&nccl->api, nccl->api.get_id(&mine.id), "ncclGetUniqueId");
    status = bench_ranks_agree(self, all == NULL ? mine.status : GYRE_SUCCESS);
    if (status == GYRE_SUCCESS)
        status = bench_ranks_all_gather(self, &mine, sizeof(mine), all);
    if (mine.status != GYRE_SUCCESS)
        status = mine.status;
    for (int i = 0; i < self->n_ranks && status == GYRE_SUCCESS; i++)
        if (all[i].status != GYRE_SUCCESS)
            status = gyre_fail(GYRE_ERROR_REMOTE, "--compare nccl: rank %d cannot take part: %s", i,
                               gyre_status_name(all[i].status));
    for (int i = 1; i < self->n_ranks && status == GYRE_SUCCESS; i++)
        if (all[i].version != all[0].version)
            status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                               "--compare nccl: rank 0 has NCCL %d and rank %d has %d; --nccl-lib "
                               "must name the same version everywhere",
                               all[0].version, i, all[i].version);
    if (status == GYRE_SUCCESS && cta_policy == 0) {
        status = bench_nccl_api_check(
            &nccl->api, nccl->api.init_rank(&comm, self->n_ranks, all[0].id, self->rank),
            "ncclCommInitRank");
    } else if (status == GYRE_SUCCESS) {
        struct bench_nccl_config config = bench_nccl_config_of(&nccl->api, cta_policy);
        status = bench_nccl_api_check(
            &nccl->api, nccl->api.init_config(&comm, self->n_ranks, all[0].id, self->rank, &config),
            "ncclCommInitRankConfig");
    }
    own->comm = comm;
    free(all);
    return status;
}

/* All ranks have one version of NCCL and find the same functions. */
static gyre_status open_own(struct nccl *nccl, int own)
{
    const struct bench_rank *rank = nccl->rank;
    const enum bench_nccl_buffer_kind kind =
        own == WITH_REGISTERED ? BENCH_NCCL_REGISTERED : BENCH_NCCL_IN_WINDOWS;
    if (own == WITH_ZERO_SM &&
        (nccl->api.version < BENCH_NCCL_ZERO_SM_VERSION || nccl->api.init_config == NULL))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--nccl-mode zero-sm needs NCCL 2.28");
    GYRE_TRY(
        bench_nccl_windows_load(nccl->api.library, path_of(rank->options), kind, &nccl->own[own]));
    if (own == WITH_ZERO_SM)
        GYRE_TRY(bench_ranks_agree(
            &rank->self, join(nccl, GYRE_SUCCESS, BENCH_NCCL_POLICY_ZERO, &nccl->zero_rank)));
    void *comm = own == WITH_ZERO_SM ? nccl->zero_rank.comm : nccl->own_rank.comm;
    return bench_nccl_windows_open(&rank->self, comm, rank->buffers.n_bytes, &nccl->own[own]);
}

/* With best, ranks must all have a mode or all lack it: those that disagree stop, or some would
 * wait for ever in the next mode. */
static gyre_status open_modes(struct nccl *nccl)
{
    for (int own = 0; own < N_OWN; own++) {
        bool is_lacking = false;
        if (!wants(nccl, own_modes[own]))
            continue;
        const gyre_status status = open_own(nccl, own);
        nccl->is_open[own] = status == GYRE_SUCCESS;
        if (nccl->rank->options->nccl_mode == BENCH_NCCL_BEST) {
            uint8_t all[GYRE_MAX_RANKS];
            const uint8_t mine = (uint8_t)status;
            GYRE_TRY(bench_ranks_all_gather(&nccl->rank->self, &mine, sizeof(mine), all));
            is_lacking = true;
            for (int i = 0; i < nccl->rank->self.n_ranks; i++)
                is_lacking = is_lacking && all[i] == GYRE_ERROR_UNSUPPORTED;
        }
        if (status == GYRE_SUCCESS)
            continue;
        if (!is_lacking)
            return status;
        bench_nccl_windows_close(&nccl->own[own], true);
        gyre_text_append(nccl->left_out, sizeof(nccl->left_out), "%s%s",
                         nccl->left_out[0] == '\0' ? "" : " and ", own_names[own]);
    }
    return GYRE_SUCCESS;
}

static gyre_status nccl_open(const struct bench_rank *rank, void **state_out)
{
    struct nccl *nccl = calloc(1, sizeof(*nccl));
    gyre_status status = nccl == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for NCCL's side")
                             : GYRE_SUCCESS;
    status = bench_ranks_agree(&rank->self, status);
    if (status != GYRE_SUCCESS) {
        free(nccl);
        return status;
    }
    nccl->rank = rank;
    nccl->own_rank = nccl->zero_rank = *rank;
    nccl->own_rank.comm = nccl->zero_rank.comm = NULL;
    status = bench_ranks_agree(&rank->self, join(nccl, prepare(nccl), 0, &nccl->own_rank));
    if (status == GYRE_SUCCESS)
        status = open_modes(nccl);
    if (status == GYRE_SUCCESS)
        *state_out = nccl;
    else
        leave(nccl, false);
    return status;
}

/* Up to the first comma it is the version, which reports carry alone. */
static gyre_status nccl_version(void *state, char *text_out, size_t n_bytes)
{
    const struct nccl *nccl = state;
    const int version = nccl->api.version;
    const char *multicast = getenv("NCCL_NVLS_ENABLE");
    const char *algo = getenv("NCCL_ALGO");
    const char *proto = getenv("NCCL_PROTO");
    char modes[64] = "", missing[256];
    if (wants(nccl, BENCH_NCCL_PLAIN))
        strcpy(modes, " plain");
    for (int own = 0; own < N_OWN; own++)
        if (nccl->is_open[own])
            gyre_text_append(modes, sizeof(modes), " %s", own_names[own]);
    bench_nccl_api_missing(&nccl->api, missing, sizeof(missing));
    snprintf(text_out, n_bytes, "NCCL %d.%d.%d, mode%s%s%s, algo %.16s, proto %.16s%s%s%s",
             version / 10000, version / 100 % 100, version % 100, modes,
             nccl->left_out[0] == '\0' ? "" : " without ", nccl->left_out,
             algo == NULL ? "auto" : algo, proto == NULL ? "auto" : proto,
             multicast != NULL && strcmp(multicast, "0") == 0
                 ? ", NVLink multicast off (NCCL_NVLS_ENABLE=0)"
                 : "",
             missing[0] == '\0' ? "" : ", missing ", missing);
    return GYRE_SUCCESS;
}

static int nccl_modes(void *state, struct bench_mode *modes_out)
{
    const struct nccl *nccl = state;
    int n = 0;
    if (wants(nccl, BENCH_NCCL_PLAIN))
        modes_out[n++] = (struct bench_mode){"plain", NULL};
    for (int own = 0; own < N_OWN; own++)
        if (nccl->is_open[own])
            modes_out[n++] = (struct bench_mode){own_names[own], &nccl->own[own].buffers};
    return n;
}

static gyre_status nccl_run(void *state, const struct bench_call *call)
{
    const struct nccl *nccl = state;
    const bool is_zero_sm = call->buffers == &nccl->own[WITH_ZERO_SM].buffers;
    return bench_nccl_call(&nccl->api, is_zero_sm ? &nccl->zero_rank : &nccl->own_rank, call);
}

static gyre_status nccl_wait(void *state)
{
    const struct nccl *nccl = state;
    return bench_wait(nccl->rank);
}

const struct bench_engine_ops bench_engine_nccl = {
    .name = "nccl",
    .is_on_stream = true,
    .open = nccl_open,
    .version = nccl_version,
    .modes = nccl_modes,
    .check = bench_engine_takes_all,
    .run = nccl_run,
    .wait = nccl_wait,
    .wrong_value_hint = bench_engine_has_no_hint,
    .close = nccl_close,
};
