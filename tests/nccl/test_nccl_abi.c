/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/clients.h"

_Static_assert(sizeof(ncclConfig_t) == 80, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, blocking) == 16, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, netName) == 32, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, commName) == 48, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, nvlinkCentricSched) == 76, "of NCCL 2.28");
_Static_assert(sizeof(ncclUniqueId) == 128, "passed by value");
_Static_assert(sizeof(ncclSimInfo_t) == 24, "of NCCL 2.22");
_Static_assert(ncclBfloat16 == 9 && ncclFloat8e5m2 == 11 && ncclAvg == 4 && ncclInProgress == 7,
               "values are ABI");

static void use_windows(ncclComm_t comm, int rank, int n)
{
    float *data = NULL;
    ncclWindow_t windows[2] = {NULL, NULL};
    NCCL_OK(ncclMemAlloc((void **)&data, 64 * sizeof(*data)));
    for (int i = 0; i < 64; i++)
        data[i] = (float)(i + rank);
    NCCL_OK(ncclCommWindowRegister(comm, data, 128, &windows[0], NCCL_WIN_DEFAULT));
    CHECK(windows[0] == NULL);
    NCCL_OK(ncclCommWindowRegister(comm, data, 128, &windows[0], NCCL_WIN_COLL_SYMMETRIC));
    CHECK(windows[0] != NULL);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommWindowRegister(comm, data + 32, 128, &windows[1], NCCL_WIN_COLL_SYMMETRIC));
    CHECK(windows[1] == NULL);
    NCCL_OK(ncclGroupEnd());
    CHECK(windows[1] != NULL && windows[1] != windows[0]);
    NCCL_OK(ncclAllReduce(data, data, 32, ncclFloat, ncclSum, comm, NULL));
    NCCL_OK(ncclAllReduce(data + 40, data + 40, 8, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    for (int i = 0; i < 64; i++)
        CHECK(data[i] == (i < 32 || (i >= 40 && i < 48) ? (float)(n * i + n * (n - 1) / 2)
                                                        : (float)(i + rank)));
    for (int i = 0; i < 2; i++)
        NCCL_OK(ncclCommWindowDeregister(comm, windows[i]));
    NCCL_OK(ncclCommWindowDeregister(comm, NULL));
    NCCL_FAILS(ncclCommWindowDeregister(comm, windows[0]), ncclInvalidArgument,
               "none of this communicator");
    NCCL_OK(ncclMemFree(data));
}

TEST_CLIENT(run_client)
{
    const int n = client->n_ranks;
    float in[64];
    float out[64 * 4];
    for (int i = 0; i < 64; i++)
        in[i] = (float)(client->rank + i);
    NCCL_OK(ncclAllReduce(in, out, 64, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    CHECK(out[5] == (float)(5 * n + n * (n - 1) / 2));
    NCCL_OK(ncclAllGather(in, out, 64, ncclFloat, comm, NULL));
    wait_for_stream();
    CHECK(out[(n - 1) * 64 + 3] == (float)(n - 1 + 3));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(in, 64, ncclFloat, (client->rank + 1) % n, comm, NULL));
    NCCL_OK(ncclRecv(out, 64, ncclFloat, (client->rank + n - 1) % n, comm, NULL));
    NCCL_OK(ncclGroupEnd());
    wait_for_stream();
    CHECK(out[0] == (float)((client->rank + n - 1) % n));
    NCCL_OK(ncclAlltoAll(in, out, 64 / 4, ncclFloat, comm, NULL));
    wait_for_stream();
    CHECK(out[0] == (float)(client->rank * 16));
    ncclRedOp_t op;
    float half = 0.5F;
    NCCL_OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm));
    CHECK((int)op >= ncclNumOps);
    NCCL_OK(ncclAllReduce(in, out, 1, ncclFloat, op, comm, NULL));
    wait_for_stream();
    CHECK(out[0] == (float)(n * (n - 1) / 2) * 0.5F);
    NCCL_OK(ncclRedOpDestroy(op, comm));
    NCCL_FAILS(ncclAllReduce(NULL, out, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument,
               "send buffer is NULL");
    NCCL_FAILS(ncclDevCommCreate(comm, NULL, NULL), ncclInvalidUsage, "device API");
    void *buffer = in;
    void *handle = NULL;
    void *again = NULL;
    CHECK(ncclCommRegister(comm, buffer, sizeof(in), &handle) == ncclSuccess && handle != NULL);
    CHECK(ncclCommRegister(comm, buffer, sizeof(in), &again) == ncclSuccess && again == handle);
    NCCL_OK(ncclCommDeregister(comm, handle));
    NCCL_OK(ncclCommDeregister(comm, handle));
    NCCL_FAILS(ncclCommDeregister(comm, handle), ncclInvalidArgument, "not a registration");
    use_windows(comm, client->rank, n);
    ncclResult_t result = ncclCommFinalize(comm);
    CHECK(result == (client->blocking ? ncclSuccess : ncclInProgress));
    while (result == ncclInProgress)
        NCCL_OK(ncclCommGetAsyncError(comm, &result));
    CHECK(result == ncclSuccess);
}

TEST_RUNS("an NCCL program runs on the host device", start_clients(run_client, 4, 1))
TEST_RUNS("a communicator that does not block is polled", start_clients(run_client, 4, 0))

static void sum_ones(ncclComm_t comm, int n_ranks)
{
    float one = 1.0F;
    int count = 0;
    CHECK(ncclCommCount(comm, &count) == ncclSuccess && count == n_ranks);
    NCCL_OK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    CHECK(one == (float)n_ranks);
}

/* No rank may abort the parent before all splits ended. */
static pthread_barrier_t splits_have_ended;

TEST_CLIENT(make_children)
{
    ncclComm_t half = NULL;
    ncclComm_t rest = NULL;
    int excluded[] = {1};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = client->blocking;
    const ncclResult_t expected = client->blocking ? ncclSuccess : ncclInProgress;
    CHECK(ncclCommSplit(comm, client->rank % 2, 0, &half, &config) == expected);
    CHECK(half != NULL && wait_for(comm) == ncclSuccess && wait_for(half) == ncclSuccess);
    sum_ones(half, 2);
    NCCL_OK(ncclCommDestroy(half));
    half = comm;
    CHECK(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &half, NULL) == expected && half == NULL);
    CHECK(wait_for(comm) == ncclSuccess);
    pthread_barrier_wait(&splits_have_ended);
    for (int flags = NCCL_SHRINK_DEFAULT; flags <= NCCL_SHRINK_ABORT && client->rank != 1;
         flags++) {
        CHECK(ncclCommShrink(comm, excluded, 1, &rest, &config, flags) == expected);
        CHECK_MSG(rest != NULL && wait_for(rest) == ncclSuccess, "%s", ncclGetLastError(rest));
        sum_ones(rest, client->n_ranks - 1);
        NCCL_OK(ncclCommDestroy(rest));
    }
    if (client->rank != 1)
        CHECK(wait_for(comm) != ncclSuccess);
}

TEST_CASE("communicators split and shrink")
{
    pthread_barrier_init(&splits_have_ended, NULL, 4);
    start_clients(make_children, 4, 1);
    start_clients(make_children, 4, 0);
}

TEST_CASE("a group makes communicators")
{
    enum { N = 3 };
    for (int blocking = 0; blocking <= 1; blocking++) {
        ncclComm_t comms[N];
        ncclComm_t children[N];
        ncclUniqueId id;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        const ncclResult_t expected = blocking ? ncclSuccess : ncclInProgress;
        config.blocking = blocking;
        NCCL_OK(ncclGetUniqueId(&id));
        NCCL_OK(ncclGroupStart());
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclCommInitRankConfig(&comms[rank], N, id, rank, &config));
        CHECK(ncclGroupEnd() == expected);
        for (int rank = 0; rank < N; rank++)
            CHECK(wait_for(comms[rank]) == ncclSuccess);
        NCCL_OK(ncclGroupStart());
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclCommSplit(comms[rank], 0, -rank, &children[rank], NULL));
        CHECK(ncclGroupEnd() == expected);
        for (int rank = 0; rank < N; rank++) {
            int own = -1;
            CHECK(wait_for(children[rank]) == ncclSuccess);
            CHECK(ncclCommUserRank(children[rank], &own) == ncclSuccess && own == N - 1 - rank);
        }
        float data[N][32];
        ncclWindow_t windows[N];
        NCCL_OK(ncclGroupStart());
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclCommWindowRegister(comms[rank], data[rank], sizeof(data[rank]),
                                           &windows[rank], NCCL_WIN_COLL_SYMMETRIC));
        NCCL_OK(ncclGroupEnd());
        for (int rank = 0; rank < N; rank++) /* this thread would wait for itself */
            CHECK(windows[rank] == NULL);
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER, blank = {0};
        float value = 0;
        NCCL_OK(ncclGroupStart());
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, children[rank], NULL));
        CHECK(ncclGroupSimulateEnd(&blank) == ncclInvalidArgument);
        CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess && info.estimatedTime > 0);
        CHECK(ncclGroupEnd() == ncclInvalidUsage); /* that was the group's end */
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclCommDestroy(children[rank]));
        for (int rank = 0; rank < N; rank++)
            NCCL_OK(ncclCommDestroy(comms[rank]));
    }
}

TEST_CASE("an init that nobody joins is aborted")
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    int rank = 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    NCCL_OK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress);
    CHECK(ncclCommUserRank(comm, &rank) == ncclInvalidUsage);
    NCCL_OK(ncclCommAbort(comm));
}

TEST_CASE("the version is the one that callers were built for")
{
    int version = 0;
    NCCL_OK(ncclGetVersion(&version));
    CHECK(version == 22809);
    CHECK(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
}

TEST_CASE("a variable sets the reported version")
{
    static const struct {
        const char *text;
        int code; /* 0: refused */
    } texts[] = {{"2.27.7", 22707}, {"22707", 22707}, {"2.30.12", 23012}, {"", 22809},
                 {"2.27", 0},       {"3.1.1", 0},     {"2.28.9x", 0},     {"2.-1.3", 0},
                 {"2.2707", 0},     {"222809", 0},    {"2 .27.7", 0},     {"newest", 0}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int version = 0;
        CHECK(setenv("GYRE_NCCL_VERSION", texts[i].text, 1) == 0);
        const ncclResult_t result = ncclGetVersion(&version);
        CHECK_MSG(result == (texts[i].code != 0 ? ncclSuccess : ncclInvalidArgument), "%s",
                  texts[i].text);
        CHECK_MSG(version == texts[i].code, "%s gave %d", texts[i].text, version);
        if (texts[i].code == 0)
            CHECK_HAS(ncclGetLastError(NULL), "GYRE_NCCL_VERSION");
    }
}
