/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"

static void *fail_in_a_group(void *argument)
{
    ncclComm_t comm = join(argument);
    float one = 1.0F;
    float result = -1.0F;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    for (int turn = 0; turn < 2; turn++) {
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(ncclAllReduce(NULL, &result, 1, ncclFloat, ncclSum, comm, NULL) ==
              ncclInvalidArgument);
        CHECK(ncclGroupEnd() == ncclSuccess);
        CHECK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, NULL, NULL) ==
              ncclInvalidArgument);
        CHECK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
        CHECK((turn == 0 ? ncclGroupEnd() : ncclGroupSimulateEnd(&info)) == ncclInvalidArgument);
        CHECK(strstr(ncclGetLastError(NULL), "send buffer is NULL") != NULL);
        wait_for_stream();
        CHECK(result == -1.0F);
    }
    CHECK(info.estimatedTime < 0);
    CHECK(ncclGroupStart() == ncclSuccess); /* the failure went with its group */
    CHECK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    wait_for_stream();
    CHECK(result == 2.0F);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return NULL;
}

TEST_RUNS("a group with a failed call launches nothing", start_clients(fail_in_a_group, 2, 1))

TEST_CASE("an init that fails in a group is no longer in progress")
{
    ncclComm_t comms[2] = {NULL, NULL};
    ncclUniqueId id;
    int rank = -1;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommInitRank(&comms[i], 2, id, 0) == ncclSuccess);
    const ncclResult_t ended = ncclGroupEnd();
    CHECK(ended != ncclSuccess && ended != ncclInProgress);
    for (int i = 0; i < 2; i++) {
        ncclResult_t result = ncclInProgress;
        CHECK(ncclCommGetAsyncError(comms[i], &result) == ncclSuccess && result == ended);
        CHECK(ncclCommUserRank(comms[i], &rank) == ended);
        CHECK(strstr(ncclGetLastError(NULL), "failed") != NULL);
        CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
    }
}

TEST_CASE("a handle may go before its group ends")
{
    for (int aborts = 0; aborts < 2; aborts++) {
        ncclComm_t comms[2] = {NULL, NULL};
        ncclUniqueId id;
        CHECK(ncclGetUniqueId(&id) == ncclSuccess);
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int i = 0; i < 2; i++)
            CHECK(ncclCommInitRank(&comms[i], 2, id, i) == ncclSuccess);
        CHECK((aborts ? ncclCommAbort(comms[0]) : ncclCommDestroy(comms[0])) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
        CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
    }
}

static void *register_many(void *argument)
{
    enum { N_WINDOWS = 70 };
    ncclComm_t comm = join(argument);
    ncclWindow_t windows[N_WINDOWS] = {NULL};
    char *memory = NULL;
    CHECK(ncclMemAlloc((void **)&memory, 4096) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < N_WINDOWS; i++)
        CHECK(ncclCommWindowRegister(comm, memory + i * 8, 8, &windows[i],
                                     NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int i = 0; i < N_WINDOWS; i++) {
        CHECK(windows[i] != NULL);
        CHECK(ncclCommWindowDeregister(comm, windows[i]) == ncclSuccess);
    }
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(ncclMemFree(memory) == ncclSuccess);
    return NULL;
}

TEST_RUNS("a group makes any number of windows", start_clients(register_many, 2, 1))

static void *abort_inside(void *argument)
{
    ncclComm_t comm = join(argument);
    ncclWindow_t windows[3] = {NULL};
    char *memory = NULL;
    CHECK(ncclMemAlloc((void **)&memory, 4096) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 3; i++)
        CHECK(ncclCommWindowRegister(comm, memory + i * 8, 8, &windows[i],
                                     NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int i = 0; i < 3; i++)
        CHECK(windows[i] == NULL);
    CHECK(ncclMemFree(memory) == ncclSuccess);
    return NULL;
}

TEST_RUNS("a communicator that ends in a group takes its windows along",
          start_clients(abort_inside, 2, 1))

static void *fail_a_window(void *argument)
{
    ncclComm_t comm = join(argument);
    ncclComm_t alone = NULL;
    ncclWindow_t window = NULL;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommInitRankConfig(&alone, 1, id, 0, &config) == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, NULL, 64, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(window == NULL && wait_for(alone) == ncclSuccess);
    CHECK(ncclCommDestroy(alone) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return NULL;
}

TEST_RUNS("a failed window is not lost behind progress", start_clients(fail_a_window, 2, 1))

static void *simulate_inside(void *argument)
{
    ncclComm_t comm = join(argument);
    ncclWindow_t window = NULL;
    void *memory = NULL;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) ==
          ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(window != NULL);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(ncclMemFree(memory) == ncclSuccess);
    return NULL;
}

TEST_RUNS("a refused simulation leaves the group its windows", start_clients(simulate_inside, 2, 1))
