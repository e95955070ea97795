/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/engines/nccl.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

#define N_RANKS 3
#define COUNT   5
#define ROOT    1

/* What all ranks share. */
struct job {
    struct bench_nccl_api api;
    gyre_status (*synchronize)(gyre_stream stream, gyre_device_kind kind); /* the library's own */
    struct bench_nccl_id id;
    enum gyre_collective coll;
    bool is_in_place;
};

struct rank {
    const struct job *job;
    int rank;
};

static int input(int rank, size_t i)
{
    return 1000 * (rank + 1) + (int)i;
}

static int sum_of_inputs(size_t i)
{
    int sum = 0;
    for (int rank = 0; rank < N_RANKS; rank++)
        sum += input(rank, i);
    return sum;
}

static int expected(enum gyre_collective coll, int rank, size_t i)
{
    const int block = (int)(i / COUNT);
    const size_t at = i % COUNT;
    switch (coll) {
    case GYRE_COLL_ALL_REDUCE:
    case GYRE_COLL_REDUCE:
        return sum_of_inputs(i);
    case GYRE_COLL_BROADCAST:
        return input(ROOT, i);
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_GATHER:
        return input(block, at);
    case GYRE_COLL_REDUCE_SCATTER:
        return sum_of_inputs((size_t)rank * COUNT + i);
    case GYRE_COLL_ALL_TO_ALL:
        return input(block, (size_t)rank * COUNT + at);
    case GYRE_COLL_SCATTER:
        return input(ROOT, (size_t)rank * COUNT + i);
    default:
        return input((rank + N_RANKS - 1) % N_RANKS, i);
    }
}

static bool has_defined_values(const struct job *job, int rank)
{
    if (job->is_in_place && (job->coll == GYRE_COLL_ALL_TO_ALL || job->coll == GYRE_COLL_SEND_RECV))
        return false;
    return (job->coll != GYRE_COLL_REDUCE && job->coll != GYRE_COLL_GATHER) || rank == ROOT;
}

static void *run_rank(void *argument)
{
    const struct rank *me = argument;
    const struct job *job = me->job;
    struct bench_rank rank_of_call = {.self = {.rank = me->rank, .n_ranks = N_RANKS}};
    int send[COUNT * N_RANKS], recv[COUNT * N_RANKS] = {0};
    void *comm = NULL;
    for (size_t i = 0; i < COUNT * N_RANKS; i++)
        send[i] = input(me->rank, i);
    struct bench_call call = {
        .what = {.coll = job->coll, .count = COUNT, .dtype = GYRE_INT32, .root = ROOT}};
    const int rank = me->rank;
    const struct gyre_collective_traits *traits = &gyre_collectives[job->coll];
    const size_t own = (size_t)rank * COUNT;
    call.send = send;
    call.recv = recv;
    if (job->is_in_place) {
        call.recv = traits->in_blocks && !traits->out_blocks ? send + own : send;
        if (traits->out_blocks && !traits->in_blocks) {
            call.recv = recv;
            call.send = recv + own;
            memcpy(recv + own, send, COUNT * sizeof(int));
        }
    }
    struct bench_nccl_config config = bench_nccl_config_of(&job->api, 0);
    CHECK(job->api.init_config(&comm, N_RANKS, job->id, me->rank, &config) == 0);
    rank_of_call.comm = comm;
    CHECK_OK(bench_nccl_call(&job->api, &rank_of_call, &call));
    CHECK(job->synchronize(NULL, GYRE_DEVICE_HOST) == GYRE_SUCCESS);
    const size_t n = gyre_collectives[job->coll].out_blocks ? COUNT * N_RANKS : COUNT;
    for (size_t i = 0; i < n && has_defined_values(job, me->rank); i++)
        CHECK_MSG(((int *)call.recv)[i] == expected(job->coll, me->rank, i),
                  "%s%s, rank %d, element %zu: %d is not %d", gyre_collectives[job->coll].name,
                  job->is_in_place ? " in place" : "", me->rank, i, ((int *)call.recv)[i],
                  expected(job->coll, me->rank, i));
    CHECK(job->api.destroy(comm) == 0);
    return NULL;
}

static void run_job(struct job *job)
{
    struct rank ranks[N_RANKS];
    CHECK(job->api.get_id(&job->id) == 0);
    for (int i = 0; i < N_RANKS; i++)
        ranks[i] = (struct rank){.job = job, .rank = i};
    test_run_threads(run_rank, ranks, N_RANKS, sizeof(ranks[0]));
}

static void *library(void)
{
    void *library = dlopen(GYRE_NCCL, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(library != NULL, "%s", dlerror());
    return library;
}

static bool open_job(struct job *job)
{
    void *opened = library();
    *job = (struct job){.coll = GYRE_COLL_ALL_REDUCE};
    if (opened == NULL)
        return false;
    CHECK_OK(bench_nccl_api_look_up(opened, "gyre's", &job->api));
    CHECK(bench_nccl_find(opened, "gyre_stream_synchronize", &job->synchronize));
    return true;
}

TEST_CASE("every collective gives its values")
{
    struct job job;
    if (!open_job(&job))
        return;
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
        job.coll = (enum gyre_collective)coll;
        run_job(&job);
    }
}

TEST_CASE("every collective takes its call in place")
{
    struct job job;
    if (!open_job(&job))
        return;
    job.is_in_place = true;
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
        job.coll = (enum gyre_collective)coll;
        run_job(&job);
    }
}

TEST_CASE("sends and receives stand in for functions that are missing")
{
    static const enum gyre_collective newer[] = {GYRE_COLL_ALL_TO_ALL, GYRE_COLL_GATHER,
                                                 GYRE_COLL_SCATTER};
    char text[256];
    struct job job;
    if (!open_job(&job))
        return;
    bench_nccl_api_missing(&job.api, text, sizeof(text));
    CHECK_MSG(text[0] == '\0', "%s", text);
    job.api.calls.all_to_all = NULL;
    job.api.calls.gather = NULL;
    job.api.calls.scatter = NULL;
    for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++) {
        job.coll = newer[i];
        run_job(&job);
    }
    bench_nccl_api_missing(&job.api, text, sizeof(text));
    CHECK_MSG(strcmp(text, "ncclAlltoAll, ncclGather, ncclScatter (since 2.28), for which sends "
                           "and receives stand in") == 0,
              "%s", text);
}

TEST_CASE("the configuration promises no more than the library knows")
{
    const struct bench_nccl_api old = {.version = 22707};
    const struct bench_nccl_api new = {.version = 23203};
    const struct bench_nccl_config config = bench_nccl_config_of(&old, BENCH_NCCL_POLICY_ZERO);
    CHECK(config.version == 22707 && bench_nccl_config_of(&new, 0).version == 22809);
    /* nccl.h of 2.28.9: 80 bytes, NCCL_CTA_POLICY_ZERO is 2, an undefined number is INT_MIN */
    CHECK_MSG(config.size == 80 && sizeof(config) == 80, "%zu", config.size);
    CHECK(config.magic == 0xcafebeef && config.cta_policy == 2 && config.blocking == INT_MIN);
    CHECK(config.net_name == NULL && config.nvlink_centric_sched == INT_MIN);
}

TEST_CASE("libraries that do not serve are refused")
{
    struct bench_nccl_api api;
    void *opened = library();
    CHECK_FAILS(bench_nccl_api_load(GYRE_NCCL, &api), GYRE_ERROR_UNSUPPORTED, "is gyre itself");
    CHECK_FAILS(bench_nccl_api_load("/nonexistent/libnccl.so.2", &api), GYRE_ERROR_UNSUPPORTED,
                "see --nccl-lib");
    CHECK_FAILS(bench_nccl_api_load("libc.so.6", &api), GYRE_ERROR_UNSUPPORTED,
                "libc.so.6 has no ncclGetVersion");
    setenv("GYRE_NCCL_VERSION", "2.19.4", 1);
    CHECK_FAILS(bench_nccl_api_look_up(opened, "old.so", &api), GYRE_ERROR_UNSUPPORTED,
                "old.so is NCCL 2.19.4; 2.20 or newer is needed");
    setenv("GYRE_NCCL_VERSION", "2.20.3", 1);
    CHECK_OK(bench_nccl_api_look_up(opened, "old.so", &api));
    CHECK(api.version == 22003);
}
