/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"

enum { N = 3 };

static _Thread_local int n_until_failure = -1;

void *test_calloc(size_t n, size_t n_bytes)
{
    if (n_until_failure >= 0 && n_until_failure-- == 0)
        return NULL;
    void *memory = malloc(n * n_bytes);
    return memory != NULL ? memset(memory, 0, n * n_bytes) : NULL;
}

static int n_allocations_before;
static pthread_barrier_t together;

static void run(void *(*client)(void *))
{
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "12", 1); /* what they would wait for */
    pthread_barrier_init(&together, NULL, N);
    start_clients(client, N, 1);
    pthread_barrier_destroy(&together);
}

static void check_end(ncclComm_t comm, const struct client *client, ncclResult_t result,
                      double start_s)
{
    CHECK(result == (client->rank == 1 ? ncclSystemError : ncclRemoteError));
    CHECK_MSG(now_s() - start_s < 6, "after %.0f s", now_s() - start_s);
    pthread_barrier_wait(&together); /* the abort would end other ranks too */
    NCCL_OK(ncclCommAbort(comm));
}

TEST_CLIENT(register_without_memory)
{
    ncclWindow_t window = NULL;
    void *memory = NULL;
    const double start_s = now_s();
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    pthread_barrier_wait(&together);
    n_until_failure = client->rank == 1 ? n_allocations_before : -1;
    const ncclResult_t result =
        ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
    n_until_failure = -1;
    CHECK(window == NULL);
    check_end(comm, client, result, start_s);
    NCCL_OK(ncclMemFree(memory));
    client->has_ended = true;
}

TEST_CASE("a rank without memory for a window ends the others at once")
{
    for (n_allocations_before = 0; n_allocations_before < 2; n_allocations_before++)
        run(register_without_memory);
}

TEST_CLIENT(hand_over_without_memory)
{
    int dev_comm = 0;
    const double start_s = now_s();
    pthread_barrier_wait(&together);
    n_until_failure = client->rank == 1 ? 0 : -1;
    const ncclResult_t result = ncclDevCommCreate(comm, NULL, &dev_comm);
    n_until_failure = -1;
    check_end(comm, client, result, start_s);
    client->has_ended = true;
}

TEST_CASE("a rank without memory for a twin ends the others at once")
{
    setenv("GYRE_NCCL_FALLBACK", FAKE_NCCL, 1);
    run(hand_over_without_memory);
}
