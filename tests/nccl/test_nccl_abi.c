/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl.h"
#include "tests/support/check.h"
#include "tests/nccl/clients.h"

#include <dlfcn.h>

_Static_assert(sizeof(ncclConfig_t) == 80, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, blocking) == 16, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, netName) == 32, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, commName) == 48, "of NCCL 2.28");
_Static_assert(offsetof(ncclConfig_t, nvlinkCentricSched) == 76, "of NCCL 2.28");
_Static_assert(sizeof(ncclUniqueId) == 128, "passed by value");
_Static_assert(sizeof(ncclSimInfo_t) == 24, "of NCCL 2.22");
_Static_assert(ncclBfloat16 == 9 && ncclFloat8e5m2 == 11 && ncclAvg == 4 && ncclInProgress == 7,
               "values are ABI");

static const char *const torch_symbols =
    "ncclAllGather ncclAllReduce ncclAlltoAll ncclBcast ncclBroadcast ncclCommAbort ncclCommCount "
    "ncclCommDeregister ncclCommDestroy ncclCommFinalize ncclCommGetAsyncError ncclCommInitAll "
    "ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommRegister "
    "ncclCommShrink ncclCommSplit ncclCommUserRank ncclCommWindowDeregister "
    "ncclCommWindowRegister ncclDevCommCreate ncclDevCommDestroy ncclGetErrorString "
    "ncclGetLastError ncclGetUniqueId ncclGetVersion ncclGroupEnd ncclGroupSimulateEnd "
    "ncclGroupStart ncclMemAlloc ncclMemFree ncclRecv ncclRedOpCreatePreMulSum ncclRedOpDestroy "
    "ncclReduce ncclReduceScatter ncclSend";
static const char *const tests_symbols = "ncclGather ncclScatter ncclCommCuDevice";

static void check_symbols(const char *list)
{
    char copy[2048];
    char twin[64];
    snprintf(copy, sizeof(copy), "%s", list);
    char *rest = NULL;
    for (char *name = strtok_r(copy, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        CHECK_MSG(dlsym(RTLD_DEFAULT, name) != NULL, "%s", name);
        snprintf(twin, sizeof(twin), "p%s", name);
        CHECK_MSG(dlsym(RTLD_DEFAULT, twin) != NULL, "%s", twin);
    }
}

TEST_CASE("every symbol that torch and nccl-tests need is there")
{
    check_symbols(torch_symbols);
    check_symbols(tests_symbols);
}

static void register_buffers(ncclComm_t comm, void *buffer, size_t n_bytes)
{
    void *handle = NULL;
    void *again = NULL;
    CHECK(ncclCommRegister(comm, buffer, n_bytes, &handle) == ncclSuccess && handle != NULL);
    CHECK(ncclCommRegister(comm, buffer, n_bytes, &again) == ncclSuccess && again == handle);
    CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
    CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
    CHECK(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "not a registration") != NULL);
}

static void use_windows(ncclComm_t comm, int rank, int n)
{
    float *data = NULL;
    ncclWindow_t windows[2] = {NULL, NULL};
    CHECK(ncclMemAlloc((void **)&data, 64 * sizeof(*data)) == ncclSuccess);
    for (int i = 0; i < 64; i++)
        data[i] = (float)(i + rank);
    CHECK(ncclCommWindowRegister(comm, data, 128, &windows[0], NCCL_WIN_DEFAULT) == ncclSuccess);
    CHECK(windows[0] == NULL);
    CHECK(ncclCommWindowRegister(comm, data, 128, &windows[0], NCCL_WIN_COLL_SYMMETRIC) ==
          ncclSuccess);
    CHECK(windows[0] != NULL);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, data + 32, 128, &windows[1], NCCL_WIN_COLL_SYMMETRIC) ==
          ncclSuccess);
    CHECK(windows[1] == NULL);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(windows[1] != NULL && windows[1] != windows[0]);
    CHECK(ncclAllReduce(data, data, 32, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    CHECK(ncclAllReduce(data + 40, data + 40, 8, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    wait_for_stream();
    for (int i = 0; i < 64; i++)
        CHECK(data[i] == (i < 32 || (i >= 40 && i < 48) ? (float)(n * i + n * (n - 1) / 2)
                                                        : (float)(i + rank)));
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommWindowDeregister(comm, windows[i]) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(comm, NULL) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(comm, windows[0]) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "none of this communicator") != NULL);
    CHECK(ncclMemFree(data) == ncclSuccess);
}

static void *run_client(void *argument)
{
    const struct client *client = argument;
    const int n = client->n_ranks;
    ncclComm_t comm = join(client);
    float in[64];
    float out[64 * 4];
    for (int i = 0; i < 64; i++)
        in[i] = (float)(client->rank + i);
    CHECK(ncclAllReduce(in, out, 64, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    wait_for_stream();
    CHECK(out[5] == (float)(5 * n + n * (n - 1) / 2));
    CHECK(ncclAllGather(in, out, 64, ncclFloat, comm, NULL) == ncclSuccess);
    wait_for_stream();
    CHECK(out[(n - 1) * 64 + 3] == (float)(n - 1 + 3));
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(in, 64, ncclFloat, (client->rank + 1) % n, comm, NULL) == ncclSuccess);
    CHECK(ncclRecv(out, 64, ncclFloat, (client->rank + n - 1) % n, comm, NULL) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    wait_for_stream();
    CHECK(out[0] == (float)((client->rank + n - 1) % n));
    CHECK(ncclAlltoAll(in, out, 64 / 4, ncclFloat, comm, NULL) == ncclSuccess);
    wait_for_stream();
    CHECK(out[0] == (float)(client->rank * 16));
    ncclRedOp_t op;
    float half = 0.5F;
    CHECK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm) ==
          ncclSuccess);
    CHECK((int)op >= ncclNumOps);
    CHECK(ncclAllReduce(in, out, 1, ncclFloat, op, comm, NULL) == ncclSuccess);
    wait_for_stream();
    CHECK(out[0] == (float)(n * (n - 1) / 2) * 0.5F);
    CHECK(ncclRedOpDestroy(op, comm) == ncclSuccess);
    CHECK(ncclAllReduce(NULL, out, 1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "send buffer is NULL") != NULL);
    CHECK(ncclDevCommCreate(comm, NULL, NULL) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "device API") != NULL);
    register_buffers(comm, in, sizeof(in));
    use_windows(comm, client->rank, n);
    ncclResult_t result = ncclCommFinalize(comm);
    CHECK(result == (client->blocking ? ncclSuccess : ncclInProgress));
    while (result == ncclInProgress)
        CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    CHECK(result == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return NULL;
}

TEST_RUNS("an NCCL program runs on the host device", start_clients(run_client, 4, 1))
TEST_RUNS("a communicator that does not block is polled", start_clients(run_client, 4, 0))

static void sum_ones(ncclComm_t comm, int n_ranks)
{
    float one = 1.0F;
    int count = 0;
    CHECK(ncclCommCount(comm, &count) == ncclSuccess && count == n_ranks);
    CHECK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
    wait_for_stream();
    CHECK(one == (float)n_ranks);
}

/* No rank may abort the parent before all splits ended. */
static pthread_barrier_t splits_have_ended;

static void *make_children(void *argument)
{
    const struct client *client = argument;
    ncclComm_t comm = join(client);
    ncclComm_t half = NULL;
    ncclComm_t rest = NULL;
    int excluded[] = {1};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = client->blocking;
    const ncclResult_t expected = client->blocking ? ncclSuccess : ncclInProgress;
    CHECK(ncclCommSplit(comm, client->rank % 2, 0, &half, &config) == expected);
    CHECK(half != NULL && wait_for(comm) == ncclSuccess && wait_for(half) == ncclSuccess);
    sum_ones(half, 2);
    CHECK(ncclCommDestroy(half) == ncclSuccess);
    half = comm;
    CHECK(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &half, NULL) == expected && half == NULL);
    CHECK(wait_for(comm) == ncclSuccess);
    pthread_barrier_wait(&splits_have_ended);
    for (int flags = NCCL_SHRINK_DEFAULT; flags <= NCCL_SHRINK_ABORT && client->rank != 1;
         flags++) {
        CHECK(ncclCommShrink(comm, excluded, 1, &rest, &config, flags) == expected);
        CHECK_MSG(rest != NULL && wait_for(rest) == ncclSuccess, "%s", ncclGetLastError(rest));
        sum_ones(rest, client->n_ranks - 1);
        CHECK(ncclCommDestroy(rest) == ncclSuccess);
    }
    if (client->rank != 1)
        CHECK(wait_for(comm) != ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    return NULL;
}

TEST_CASE("communicators split and shrink")
{
    pthread_barrier_init(&splits_have_ended, NULL, 4);
    start_clients(make_children, 4, 1);
    start_clients(make_children, 4, 0);
    pthread_barrier_destroy(&splits_have_ended);
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
        CHECK(ncclGetUniqueId(&id) == ncclSuccess);
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclCommInitRankConfig(&comms[rank], N, id, rank, &config) == ncclSuccess);
        CHECK(ncclGroupEnd() == expected);
        for (int rank = 0; rank < N; rank++)
            CHECK(wait_for(comms[rank]) == ncclSuccess);
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclCommSplit(comms[rank], 0, -rank, &children[rank], NULL) == ncclSuccess);
        CHECK(ncclGroupEnd() == expected);
        for (int rank = 0; rank < N; rank++) {
            int own = -1;
            CHECK(wait_for(children[rank]) == ncclSuccess);
            CHECK(ncclCommUserRank(children[rank], &own) == ncclSuccess && own == N - 1 - rank);
        }
        float data[N][32];
        ncclWindow_t windows[N];
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclCommWindowRegister(comms[rank], data[rank], sizeof(data[rank]),
                                         &windows[rank], NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
        for (int rank = 0; rank < N; rank++) /* this thread would wait for itself */
            CHECK(windows[rank] == NULL);
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER, blank = {0};
        float value = 0;
        CHECK(ncclGroupStart() == ncclSuccess);
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, children[rank], NULL) ==
                  ncclSuccess);
        CHECK(ncclGroupSimulateEnd(&blank) == ncclInvalidArgument);
        CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess && info.estimatedTime > 0);
        CHECK(ncclGroupEnd() == ncclInvalidUsage); /* that was the group's end */
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclCommDestroy(children[rank]) == ncclSuccess);
        for (int rank = 0; rank < N; rank++)
            CHECK(ncclCommDestroy(comms[rank]) == ncclSuccess);
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
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess && result == ncclInProgress);
    CHECK(ncclCommUserRank(comm, &rank) == ncclInvalidUsage);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("the version is the one that callers were built for")
{
    int version = 0;
    CHECK(ncclGetVersion(&version) == ncclSuccess);
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
            CHECK(strstr(ncclGetLastError(NULL), "GYRE_NCCL_VERSION") != NULL);
    }
}
