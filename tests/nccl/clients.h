/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads as ranks, through NCCL's interface.
 */
#ifndef GYRE_TESTS_NCCL_CLIENTS_H
#define GYRE_TESTS_NCCL_CLIENTS_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <time.h>

#define NCCL_OK(call) CHECK_MSG((call) == ncclSuccess, "%s", ncclGetLastError(NULL))

/** With this result and `words` in the last error. */
#define NCCL_FAILS(call, expected, words)                                                        \
    do {                                                                                         \
        const ncclResult_t check_result_ = (call);                                               \
        CHECK_MSG(check_result_ == (expected), "%d: %s", check_result_, ncclGetLastError(NULL)); \
        CHECK_HAS(ncclGetLastError(NULL), words);                                                \
    } while (0)

struct client {
    ncclUniqueId id;
    int rank;
    int n_ranks;
    int blocking;
    bool has_ended; /* set by a TEST_CLIENT that has ended its communicator */
};

/** Poll until nothing is in progress. */
static inline ncclResult_t wait_for(ncclComm_t comm)
{
    ncclResult_t result = ncclInProgress;
    while (result == ncclInProgress)
        CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    return result;
}

/** Poll until the communicator fails. */
static inline ncclResult_t wait_for_failure(ncclComm_t comm)
{
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess)
        CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    return result;
}

static inline ncclComm_t join(const struct client *client)
{
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = client->blocking;
    const ncclResult_t result =
        ncclCommInitRankConfig(&comm, client->n_ranks, client->id, client->rank, &config);
    CHECK(result == (client->blocking ? ncclSuccess : ncclInProgress));
    if (result == ncclInProgress)
        CHECK_MSG(wait_for(comm) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return comm;
}

/** What cudaStreamSynchronize is on GPUs. */
static inline void wait_for_stream(void)
{
    CHECK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST) == GYRE_SUCCESS);
}

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/** `run` gets a struct client; waits for all. */
static inline void start_clients(void *(*run)(void *), int n_ranks, int blocking)
{
    enum { MAX_CLIENTS = 8 };
    struct client clients[MAX_CLIENTS];
    ncclUniqueId id;
    CHECK(n_ranks <= MAX_CLIENTS && ncclGetUniqueId(&id) == ncclSuccess);
    for (int rank = 0; rank < n_ranks; rank++)
        clients[rank] = (struct client){id, rank, n_ranks, blocking, false};
    test_run_threads(run, clients, n_ranks, sizeof(clients[0]));
}

/** A function for start_clients(): client and comm are its own. */
#define TEST_CLIENT(name)                                          \
    static void name##_of(struct client *client, ncclComm_t comm); \
    static void *name(void *argument)                              \
    {                                                              \
        struct client *client = argument;                          \
        ncclComm_t comm = join(client);                            \
        name##_of(client, comm);                                   \
        if (!client->has_ended)                                    \
            NCCL_OK(ncclCommDestroy(comm));                        \
        return NULL;                                               \
    }                                                              \
    static void name##_of(__attribute__((unused)) struct client *client, ncclComm_t comm)

/** A case of n clients that block. */
#define TEST_ON_CLIENTS(sentence, n)        TEST_ON_CLIENTS_AT(sentence, n, __LINE__)
#define TEST_ON_CLIENTS_AT(sentence, n, at) TEST_ON_CLIENTS_OF(sentence, n, at)
#define TEST_ON_CLIENTS_OF(sentence, n, at)        \
    static void *test_client_##at(void *argument); \
    TEST_CASE_OF(sentence, at)                     \
    {                                              \
        start_clients(test_client_##at, n, 1);     \
    }                                              \
    TEST_CLIENT(test_client_##at)

#endif
