/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"

TEST_ON_CLIENTS("a group with a failed call launches nothing", 2)
{
    float one = 1.0F;
    float result = -1.0F;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    for (int turn = 0; turn < 2; turn++) {
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclGroupStart());
        CHECK(ncclAllReduce(NULL, &result, 1, ncclFloat, ncclSum, comm, NULL) ==
              ncclInvalidArgument);
        NCCL_OK(ncclGroupEnd());
        CHECK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, NULL, NULL) ==
              ncclInvalidArgument);
        NCCL_OK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, comm, NULL));
        CHECK((turn == 0 ? ncclGroupEnd() : ncclGroupSimulateEnd(&info)) == ncclInvalidArgument);
        CHECK_HAS(ncclGetLastError(NULL), "send buffer is NULL");
        wait_for_stream();
        CHECK(result == -1.0F);
    }
    CHECK(info.estimatedTime < 0);
    NCCL_OK(ncclGroupStart()); /* the failure went with its group */
    NCCL_OK(ncclAllReduce(&one, &result, 1, ncclFloat, ncclSum, comm, NULL));
    NCCL_OK(ncclGroupEnd());
    wait_for_stream();
    CHECK(result == 2.0F);
}

TEST_CASE("an init that fails in a group is no longer in progress")
{
    ncclComm_t comms[2] = {NULL, NULL};
    ncclUniqueId id;
    int rank = -1;
    NCCL_OK(ncclGetUniqueId(&id));
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        NCCL_OK(ncclCommInitRank(&comms[i], 2, id, 0));
    const ncclResult_t ended = ncclGroupEnd();
    CHECK(ended != ncclSuccess && ended != ncclInProgress);
    for (int i = 0; i < 2; i++) {
        ncclResult_t result = ncclInProgress;
        CHECK(ncclCommGetAsyncError(comms[i], &result) == ncclSuccess && result == ended);
        CHECK(ncclCommUserRank(comms[i], &rank) == ended);
        CHECK_HAS(ncclGetLastError(NULL), "failed");
        NCCL_OK(ncclCommDestroy(comms[i]));
    }
}

TEST_CASE("a handle may go before its group ends")
{
    for (int aborts = 0; aborts < 2; aborts++) {
        ncclComm_t comms[2] = {NULL, NULL};
        ncclUniqueId id;
        NCCL_OK(ncclGetUniqueId(&id));
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < 2; i++)
            NCCL_OK(ncclCommInitRank(&comms[i], 2, id, i));
        CHECK((aborts ? ncclCommAbort(comms[0]) : ncclCommDestroy(comms[0])) == ncclSuccess);
        NCCL_OK(ncclGroupEnd());
        NCCL_OK(ncclCommAbort(comms[1]));
    }
}

TEST_ON_CLIENTS("a group makes any number of windows", 2)
{
    enum { N_WINDOWS = 70 };
    ncclWindow_t windows[N_WINDOWS] = {NULL};
    char *memory = NULL;
    NCCL_OK(ncclMemAlloc((void **)&memory, 4096));
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < N_WINDOWS; i++)
        NCCL_OK(
            ncclCommWindowRegister(comm, memory + i * 8, 8, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    NCCL_OK(ncclGroupEnd());
    for (int i = 0; i < N_WINDOWS; i++) {
        CHECK(windows[i] != NULL);
        NCCL_OK(ncclCommWindowDeregister(comm, windows[i]));
    }
    NCCL_OK(ncclMemFree(memory));
}

TEST_ON_CLIENTS("a communicator that ends in a group takes its windows along", 2)
{
    ncclWindow_t windows[3] = {NULL};
    char *memory = NULL;
    NCCL_OK(ncclMemAlloc((void **)&memory, 4096));
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++)
        NCCL_OK(
            ncclCommWindowRegister(comm, memory + i * 8, 8, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    NCCL_OK(ncclCommAbort(comm));
    NCCL_OK(ncclGroupEnd());
    for (int i = 0; i < 3; i++)
        CHECK(windows[i] == NULL);
    NCCL_OK(ncclMemFree(memory));
    client->has_ended = true;
}

TEST_ON_CLIENTS("a failed window is not lost behind progress", 2)
{
    ncclComm_t alone = NULL;
    ncclWindow_t window = NULL;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    NCCL_OK(ncclGetUniqueId(&id));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommInitRankConfig(&alone, 1, id, 0, &config));
    NCCL_OK(ncclCommWindowRegister(comm, NULL, 64, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(window == NULL && wait_for(alone) == ncclSuccess);
    NCCL_OK(ncclCommDestroy(alone));
}

TEST_ON_CLIENTS("a refused simulation leaves the group its windows", 2)
{
    ncclWindow_t window = NULL;
    void *memory = NULL;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    NCCL_OK(ncclGroupStart());
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    NCCL_OK(ncclGroupEnd());
    NCCL_OK(ncclGroupEnd());
    CHECK(window != NULL);
    NCCL_OK(ncclCommDestroy(comm));
    NCCL_OK(ncclMemFree(memory));
    client->has_ended = true;
}
