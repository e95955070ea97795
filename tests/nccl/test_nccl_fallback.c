/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"
#include "tests/nccl/fake_nccl.h"

#include <dlfcn.h>

enum { N = 3 };

static struct fake_nccl_counts *counts;

/* `path` NULL: the variable is not set. */
static void run_with(const char *path, void (*run)(void))
{
    if (path != NULL)
        setenv("GYRE_NCCL_FALLBACK", path, 1);
    void *fake = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    counts = fake != NULL ? dlsym(fake, "fake_nccl_counts") : NULL;
    CHECK(counts != NULL);
    if (counts != NULL)
        run();
}

static pthread_barrier_t all_called;

TEST_CLIENT(use_windows)
{
    float data[16] = {0};
    int dev_comm = 0;
    ncclWindow_t window = NULL;
    void *memory = NULL;
    data[0] = 1.0F;
    CHECK(ncclMemAlloc(&memory, 64) == ncclSuccess && memory != NULL);
    NCCL_OK(ncclCommWindowRegister(comm, data, sizeof(data), &window, 0));
    CHECK((void *)window == (void *)data);
    NCCL_OK(ncclDevCommCreate(comm, NULL, &dev_comm));
    CHECK(dev_comm == client->rank * 100 + N);
    NCCL_OK(ncclDevCommDestroy(comm, &dev_comm));
    NCCL_FAILS(ncclDevCommDestroy(comm, NULL), ncclInvalidArgument, "the fake's own words");
    NCCL_OK(ncclCommWindowDeregister(comm, window));
    NCCL_OK(ncclMemFree(memory));
    /* Calls that gyre can do are not forwarded to NCCL. */
    NCCL_OK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, NULL));
    pthread_barrier_wait(&all_called); /* after the abort it could be refused */
    CHECK((client->rank == 0 ? ncclCommAbort(comm) : ncclCommDestroy(comm)) == ncclSuccess);
    client->has_ended = true;
}

static void run_windows(void)
{
    pthread_barrier_init(&all_called, NULL, N);
    start_clients(use_windows, N, 1);
    pthread_barrier_destroy(&all_called);
    CHECK_MSG(counts->n_ids == 1 && counts->n_inits == N, "%d ids, %d twins", counts->n_ids,
              counts->n_inits);
    CHECK(counts->n_windows_gone == N && counts->n_allocated == N);
    CHECK(counts->n_destroyed == N - 1 && counts->n_aborted == 1);
}

TEST_RUNS("unsupported calls reach the other library", run_with(FAKE_NCCL, run_windows))

TEST_CLIENT(make_nothing)
{
    int dev_comm = 0;
    NCCL_FAILS(ncclDevCommCreate(comm, NULL, &dev_comm), ncclSystemError, "GYRE_NCCL_FALLBACK");
}

static void run_failing(void)
{
    counts->fails = 1;
    start_clients(make_nothing, N, 1);
    CHECK(counts->n_inits == 0 && counts->n_destroyed == 0);
}

TEST_RUNS("its failure is every rank's error", run_with(FAKE_NCCL, run_failing))

TEST_CLIENT(be_refused)
{
    float data[4] = {0};
    int dev_comm = 0;
    ncclWindow_t window = (ncclWindow_t)(void *)data;
    NCCL_FAILS(ncclDevCommCreate(comm, NULL, &dev_comm), ncclInvalidUsage, "device API");
    if (getenv("GYRE_NCCL_FALLBACK") != NULL)
        CHECK_HAS(ncclGetLastError(NULL), "/nowhere/libnccl.so.2");
    NCCL_OK(ncclCommWindowRegister(comm, data, sizeof(data), &window, 0));
    CHECK(window == NULL);
    NCCL_OK(ncclCommWindowDeregister(comm, window));
}

static void run_refused(void)
{
    start_clients(be_refused, N, 1);
    CHECK(counts->n_ids == 0 && counts->n_inits == 0);
}

TEST_RUNS("it is off by default", run_with(NULL, run_refused))
TEST_RUNS("a library that cannot be loaded is named",
          run_with("/nowhere/libnccl.so.2", run_refused))
