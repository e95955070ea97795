/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/check.h"
#include "tests/nccl/fake_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3 };

static struct fake_nccl_counts *counts;

struct client {
    pthread_t thread;
    ncclComm_t comm;
    void (*run)(ncclComm_t comm, int rank);
    int rank;
};

static void *run_client(void *argument)
{
    struct client *client = argument;
    client->run(client->comm, client->rank);
    return NULL;
}

static void run_clients(void (*run)(ncclComm_t comm, int rank))
{
    struct client clients[N];
    ncclComm_t comms[N];
    CHECK(ncclCommInitAll(comms, N, NULL) == ncclSuccess);
    for (int rank = 0; rank < N; rank++) {
        clients[rank] = (struct client){0, comms[rank], run, rank};
        pthread_create(&clients[rank].thread, NULL, run_client, &clients[rank]);
    }
    for (int rank = 0; rank < N; rank++)
        pthread_join(clients[rank].thread, NULL);
}

/* `path` NULL: the variable is not set. */
static void in_a_process(const char *path, void (*run)(void))
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        test_n_failures = 0;
        if (path != NULL)
            setenv("GYRE_NCCL_FALLBACK", path, 1);
        void *fake = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
        counts = fake != NULL ? dlsym(fake, "fake_nccl_counts") : NULL;
        CHECK(counts != NULL);
        if (counts != NULL)
            run();
        fflush(NULL);
        _exit(test_n_failures == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static pthread_barrier_t all_called;

static void use_windows(ncclComm_t comm, int rank)
{
    float data[16] = {0};
    int dev_comm = 0;
    ncclWindow_t window = NULL;
    void *memory = NULL;
    data[0] = 1.0F;
    CHECK(ncclMemAlloc(&memory, 64) == ncclSuccess && memory != NULL);
    CHECK(ncclCommWindowRegister(comm, data, sizeof(data), &window, 0) == ncclSuccess);
    CHECK((void *)window == (void *)data);
    CHECK(ncclDevCommCreate(comm, NULL, &dev_comm) == ncclSuccess);
    CHECK(dev_comm == rank * 100 + N);
    CHECK(ncclDevCommDestroy(comm, &dev_comm) == ncclSuccess);
    CHECK(ncclDevCommDestroy(comm, NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "the fake's own words") != NULL);
    CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
    CHECK(ncclMemFree(memory) == ncclSuccess);
    /* Calls that gyre can do are not forwarded to NCCL. */
    CHECK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    pthread_barrier_wait(&all_called); /* after the abort it could be refused */
    CHECK((rank == 0 ? ncclCommAbort(comm) : ncclCommDestroy(comm)) == ncclSuccess);
}

static void run_windows(void)
{
    pthread_barrier_init(&all_called, NULL, N);
    run_clients(use_windows);
    pthread_barrier_destroy(&all_called);
    CHECK_MSG(counts->n_ids == 1 && counts->n_inits == N, "%d ids, %d twins", counts->n_ids,
              counts->n_inits);
    CHECK(counts->n_windows_gone == N && counts->n_allocated == N);
    CHECK(counts->n_destroyed == N - 1 && counts->n_aborted == 1);
}

TEST_RUNS("unsupported calls reach the other library", in_a_process(FAKE_NCCL, run_windows))

static void make_nothing(ncclComm_t comm, int rank)
{
    int dev_comm = 0;
    (void)rank;
    CHECK(ncclDevCommCreate(comm, NULL, &dev_comm) == ncclSystemError);
    CHECK(strstr(ncclGetLastError(NULL), "GYRE_NCCL_FALLBACK") != NULL);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static void run_failing(void)
{
    counts->fails = 1;
    run_clients(make_nothing);
    CHECK(counts->n_inits == 0 && counts->n_destroyed == 0);
}

TEST_RUNS("its failure is every rank's error", in_a_process(FAKE_NCCL, run_failing))

static void be_refused(ncclComm_t comm, int rank)
{
    float data[4] = {0};
    int dev_comm = 0;
    ncclWindow_t window = (ncclWindow_t)(void *)data;
    (void)rank;
    CHECK(ncclDevCommCreate(comm, NULL, &dev_comm) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "device API") != NULL);
    if (getenv("GYRE_NCCL_FALLBACK") != NULL)
        CHECK(strstr(ncclGetLastError(NULL), "/nowhere/libnccl.so.2") != NULL);
    CHECK(ncclCommWindowRegister(comm, data, sizeof(data), &window, 0) == ncclSuccess);
    CHECK(window == NULL);
    CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static void run_refused(void)
{
    run_clients(be_refused);
    CHECK(counts->n_ids == 0 && counts->n_inits == 0);
}

TEST_RUNS("it is off by default", in_a_process(NULL, run_refused))
TEST_RUNS("a library that cannot be loaded is named",
          in_a_process("/nowhere/libnccl.so.2", run_refused))
