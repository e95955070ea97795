/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl_device.h"
#include "core/nccl/nccl_later.h"
#include "tests/nccl/clients.h"

static void check_sum(ncclComm_t comm, int rank, int n_ranks)
{
    float data[16];
    for (int i = 0; i < 16; i++)
        data[i] = (float)(rank + i);
    NCCL_OK(ncclAllReduce(data, data, 16, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    for (int i = 0; i < 16; i++)
        CHECK_MSG(data[i] == (float)(n_ranks * (n_ranks - 1) / 2 + n_ranks * i), "%g",
                  (double)data[i]);
}

static ncclUniqueId growth_id;

static void *join_growth(void *argument)
{
    ncclComm_t comm = NULL;
    (void)argument;
    NCCL_OK(ncclCommGrow(NULL, 3, &growth_id, 2, &comm, NULL));
    check_sum(comm, 2, 3);
    NCCL_OK(ncclCommDestroy(comm));
    return NULL;
}

TEST_CLIENT(grow)
{
    ncclComm_t grown = NULL;
    pthread_t newcomer;
    int rank = -1;
    const int is_root = client->rank == 0;
    CHECK(ncclCommGrow(comm, 3, NULL, 0, &grown, NULL) == ncclInvalidArgument && grown == NULL);
    CHECK_HAS(ncclGetLastError(NULL), "passes -1");
    CHECK(wait_for(comm) == ncclSuccess); /* the other rank is being told */
    CHECK(ncclCommGrow(NULL, 3, NULL, 0, &grown, NULL) == ncclInvalidArgument);
    if (is_root) {
        NCCL_OK(ncclCommGetUniqueId(comm, &growth_id));
        pthread_create(&newcomer, NULL, join_growth, NULL);
    }
    const ncclResult_t result =
        ncclCommGrow(comm, 3, is_root ? &growth_id : NULL, -1, &grown, NULL);
    CHECK(result == (client->blocking ? ncclSuccess : ncclInProgress));
    if (result == ncclInProgress)
        CHECK(wait_for(grown) == ncclSuccess && wait_for(comm) == ncclSuccess);
    CHECK(ncclCommUserRank(grown, &rank) == ncclSuccess && rank == client->rank);
    check_sum(grown, client->rank, 3);
    check_sum(comm, client->rank, 2);
    NCCL_OK(ncclCommDestroy(grown));
    if (is_root)
        pthread_join(newcomer, NULL);
}

TEST_CASE("a communicator grows by a new rank")
{
    start_clients(grow, 2, 1);
    start_clients(grow, 2, 0);
}

static void *join_refused_growth(void *argument)
{
    ncclComm_t comm = NULL;
    (void)argument;
    CHECK(ncclCommGrow(NULL, 3, &growth_id, 2, &comm, NULL) == ncclRemoteError && comm == NULL);
    CHECK_HAS(ncclGetLastError(NULL), "passes -1");
    return NULL;
}

/* The shim refuses rank 1's arguments before it calls gyre. */
TEST_CLIENT(grow_wrongly)
{
    ncclConfig_t wrong = NCCL_CONFIG_INITIALIZER;
    ncclComm_t grown = NULL;
    pthread_t newcomer;
    const int errs = client->rank == 1;
    wrong.netName = "carrier pigeons";
    if (client->rank == 0) {
        NCCL_OK(ncclCommGetUniqueId(comm, &growth_id));
        pthread_create(&newcomer, NULL, join_refused_growth, NULL);
    }
    NCCL_FAILS(ncclCommGrow(comm, 3, errs ? NULL : &growth_id, errs ? 1 : -1, &grown, NULL),
               ncclInvalidArgument, "passes -1");
    if (client->rank == 0)
        pthread_join(newcomer, NULL);
    NCCL_FAILS(ncclCommGrow(comm, 3, NULL, -1, errs ? NULL : &grown, NULL), ncclInvalidArgument,
               "NULL");
    CHECK(ncclCommGrow(comm, 3, NULL, -1, &grown, errs ? &wrong : NULL) != ncclSuccess);
    CHECK_HAS(ncclGetLastError(NULL), "carrier pigeons");
    CHECK(ncclCommSplit(comm, 0, 0, &grown, errs ? &wrong : NULL) != ncclSuccess);
    CHECK_HAS(ncclGetLastError(NULL), "carrier pigeons");
    NCCL_FAILS(ncclCommSplit(comm, 0, 0, errs ? NULL : &grown, NULL), ncclInvalidArgument, "NULL");
    CHECK(grown == NULL);
    check_sum(comm, client->rank, 2);
}

TEST_CASE("a wrong argument of one rank ends the growth and the split of all ranks")
{
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "20", 1);
    start_clients(grow_wrongly, 2, 1);
}

static void *init_wrongly(void *argument)
{
    const struct client *client = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    if (client->rank == 1)
        config.netName = "carrier pigeons";
    CHECK(ncclCommInitRankConfig(&comm, 2, client->id, client->rank, &config) ==
          (client->rank == 1 ? ncclInvalidUsage : ncclRemoteError));
    CHECK_HAS(ncclGetLastError(NULL), "carrier pigeons");
    return NULL;
}

TEST_CASE("a wrong argument of one rank ends the init of all ranks")
{
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "20", 1);
    start_clients(init_wrongly, 2, 1);
}

static pthread_barrier_t call_is_made;

TEST_CLIENT(revoke_and_shrink)
{
    ncclComm_t next = NULL;
    ncclResult_t state = ncclInProgress;
    float one = 1.0F;
    NCCL_FAILS(ncclCommRevoke(comm, 1), ncclInvalidArgument, "NCCL_REVOKE_DEFAULT");
    if (client->rank == 0)
        NCCL_OK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, comm, NULL));
    pthread_barrier_wait(&call_is_made);
    NCCL_OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    if (client->rank == 0) /* the call ends, with an error of its stream */
        CHECK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST) != GYRE_SUCCESS);
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess);
    CHECK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, comm, NULL) != ncclSuccess);
    CHECK(ncclCommSplit(comm, 0, 0, &next, NULL) == ncclInvalidUsage && next == NULL);
    CHECK_HAS(ncclGetLastError(NULL), "ncclCommShrink");
    NCCL_OK(ncclCommShrink(comm, NULL, 0, &next, NULL, NCCL_SHRINK_DEFAULT));
    check_sum(next, client->rank, 2);
    NCCL_OK(ncclCommDestroy(next));
}

TEST_CASE("a revoked communicator is quiet and can be shrunk")
{
    pthread_barrier_init(&call_is_made, NULL, 2);
    start_clients(revoke_and_shrink, 2, 1);
}

TEST_ON_CLIENTS("properties and memory can be asked for", 2)
{
    ncclCommProperties_t props;
    uint64_t n_bytes = 1;
    memset(&props, 0xff, sizeof(props));
    props.size = offsetof(ncclCommProperties_t, commHash); /* of 2.29 */
    props.magic = NCCL_API_MAGIC;
    props.version = 22907;
    NCCL_OK(ncclCommQueryProperties(comm, &props));
    CHECK(props.rank == client->rank && props.nRanks == 2 && props.cudaDev == -1);
    CHECK(!props.deviceApiSupport && !props.multimemSupport && props.ginType == 0);
    CHECK(props.nLsaTeams == 1 && props.version == 22907);
    CHECK(props.commHash == UINT64_MAX); /* not of the caller's version */
    props.size = sizeof(props);
    NCCL_OK(ncclCommQueryProperties(comm, &props));
    CHECK(props.commHash != UINT64_MAX && props.commHash != 0 && !props.cftSupport);
    props.magic = 0;
    NCCL_FAILS(ncclCommQueryProperties(comm, &props), ncclInvalidArgument,
               "NCCL_COMM_PROPERTIES_INITIALIZER");
    NCCL_OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &n_bytes));
    CHECK(n_bytes == 0); /* the host device has no GPU memory */
    CHECK(ncclCommMemStats(comm, (ncclCommMemStat_t)4, &n_bytes) == ncclInvalidArgument);
    NCCL_FAILS(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidUsage, "ncclCommSuspend");
    NCCL_FAILS(ncclCommResume(comm), ncclInvalidUsage, "ncclCommResume");
}

TEST_ON_CLIENTS("a window tells its buffer", 2)
{
    ncclWindow_t window = NULL;
    void *memory = NULL;
    void *found = NULL;
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    NCCL_OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(ncclWinGetUserPtr(comm, window, &found) == ncclSuccess && found == memory);
    NCCL_FAILS(ncclWinGetUserPtr(comm, NULL, &found), ncclInvalidArgument, "window 0");
    NCCL_OK(ncclCommWindowDeregister(comm, window));
    NCCL_OK(ncclMemFree(memory));
}

TEST_CLIENT(put)
{
    ncclWindow_t window = NULL;
    float *memory = NULL;
    const float values[2] = {3, 4};
    ncclWaitSignalDesc_t wait = {1, 0, 7, 3};
    NCCL_OK(ncclMemAlloc((void **)&memory, 4096));
    memory[0] = memory[1] = memory[2] = 0;
    NCCL_OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    if (client->rank == 0) {
        NCCL_FAILS(ncclPutSignal(values, 2, ncclFloat, 1, window, 4, 8, 0, 0, comm, NULL),
                   ncclInvalidArgument, "signal 8 of context 0");
        CHECK(ncclPutSignal(values, 2, ncclFloat, 1, window, 4, 0, 0, 1, comm, NULL) ==
              ncclInvalidArgument);
        NCCL_OK(ncclPutSignal(values, 2, ncclFloat, 1, window, 4, 7, 3, 0, comm, NULL));
        wait = (ncclWaitSignalDesc_t){1, 1, 0, 0};
    }
    NCCL_OK(ncclWaitSignal(1, &wait, comm, NULL));
    wait_for_stream();
    if (client->rank == 1) {
        CHECK(memory[0] == 0 && memory[1] == 3 && memory[2] == 4);
        NCCL_OK(ncclSignal(0, 0, 0, 0, comm, NULL));
        wait_for_stream();
    }
    CHECK(ncclWaitSignal(1, NULL, comm, NULL) == ncclInvalidArgument);
    NCCL_OK(ncclCommWindowDeregister(comm, window));
    NCCL_OK(ncclMemFree(memory));
}

TEST_RUNS("a put arrives with its signal", start_clients(put, 2, 1))

TEST_CASE("so it does between ranks without common memory")
{
    setenv("GYRE_P2P_DISABLE", "1", 1);
    setenv("GYRE_SHM_DISABLE", "1", 1);
    start_clients(put, 2, 1);
}

TEST_ON_CLIENTS("a call takes its own config", 2)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    float in[2] = {1, 2}, out[2] = {0, 0};
    const ncclCollConfig_t *const configs[] = {NULL, &config};
    config.algSelection = "ring";
    config.maxCTAs = 1;
    config.userProfilerTag = 7;
    for (int i = 0; i < 2; i++) {
        const ncclCollConfig_t *c = configs[i];
        NCCL_OK(ncclAllReduceConfig(in, out, 2, ncclFloat, ncclSum, comm, NULL, c));
        wait_for_stream();
        CHECK(out[0] == 2 && out[1] == 4);
        NCCL_OK(ncclBroadcastConfig(in, out, 1, ncclFloat, 0, comm, NULL, c));
        NCCL_OK(ncclReduceConfig(in, out, 1, ncclFloat, ncclSum, 0, comm, NULL, c));
        NCCL_OK(ncclAllGatherConfig(in, out, 1, ncclFloat, comm, NULL, c));
        wait_for_stream();
        CHECK(out[0] == 1 && out[1] == 1);
        NCCL_OK(ncclReduceScatterConfig(in, out, 1, ncclFloat, ncclSum, comm, NULL, c));
        wait_for_stream();
        CHECK(out[0] == (client->rank == 0 ? 2 : 4));
    }
    config.algSelection = "nvls_tree";
    NCCL_FAILS(ncclAllReduceConfig(in, out, 2, ncclFloat, ncclSum, comm, NULL, &config),
               ncclInvalidArgument, "nvls_tree");
    config.forceAlgSelection = 0;
    NCCL_OK(ncclAllReduceConfig(in, out, 2, ncclFloat, ncclSum, comm, NULL, &config));
    config.algSelection = NULL;
    NCCL_OK(ncclAlltoAllConfig(in, out, 1, ncclFloat, comm, NULL, &config));
    NCCL_OK(ncclGatherConfig(in, out, 1, ncclFloat, 0, comm, NULL, &config));
    NCCL_OK(ncclScatterConfig(in, out, 1, ncclFloat, 0, comm, NULL, &config));
    wait_for_stream();
    CHECK(out[0] == (client->rank == 0 ? 1 : 2));
    config.magic = 0;
    NCCL_FAILS(ncclAllReduceConfig(in, out, 2, ncclFloat, ncclSum, comm, NULL, &config),
               ncclInvalidArgument, "NCCL_COLLCONFIG_INITIALIZER");
}

TEST_CASE("parameters are gyre's variables")
{
    ncclParamHandle_t handle = NULL;
    const char **keys = NULL;
    const char *text = NULL;
    char bytes[8];
    int n = 0, n_bytes = 0;
    int8_t small = 0;
    int64_t large = 0;
    uint8_t unsigned_small = 0;
    setenv("GYRE_BUFFSIZE", "4M", 1);
    setenv("GYRE_IB_TC", "200", 1);
    NCCL_OK(ncclParamBind(&handle, "NCCL_BUFFSIZE"));
    CHECK(ncclParamGetI64(handle, &large) == ncclSuccess && large == 4 << 20);
    CHECK(ncclParamGetI8(handle, &small) == ncclInvalidArgument && small == 0);
    CHECK_HAS(ncclGetLastError(NULL), "no number of -128..127");
    CHECK(ncclParamGetStr(handle, &text) == ncclSuccess && strcmp(text, "4M") == 0);
    CHECK(ncclParamGet(handle, bytes, 8, &n_bytes) == ncclSuccess && n_bytes == 3);
    CHECK(ncclParamGet(handle, bytes, 2, &n_bytes) == ncclInvalidArgument);
    NCCL_OK(ncclParamBind(&handle, "IB_TC"));
    CHECK(ncclParamGetU8(handle, &unsigned_small) == ncclSuccess && unsigned_small == 200);
    CHECK(ncclParamGetI8(handle, &small) == ncclInvalidArgument);
    CHECK(ncclParamGetParameter("GYRE_IB_TC", &text, &n) == ncclSuccess && n == 3);
    NCCL_FAILS(ncclParamBind(&handle, "NCCL_NO_SUCH"), ncclInvalidArgument, "NCCL_NO_SUCH");
    CHECK(ncclParamGetAllParameterKeys(&keys, &n) == ncclSuccess && n > 40);
    for (int i = 0; i < n; i++)
        NCCL_OK(ncclParamGetParameter(keys[i], &text, &n_bytes));
}

TEST_CASE("encryption is refused and plain text accepted")
{
    ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
    NCCL_OK(ncclSetEncryption(&config));
    config.mode = NCCL_ENCRYPTION_MODE_PSK;
    config.psk = "secret";
    NCCL_FAILS(ncclSetEncryption(&config), ncclInvalidUsage, "does not encrypt");
    config.magic = 0;
    CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
}

TEST_CASE("the later device API is refused by name")
{
    const ncclTeam_t team = {2, 1, 1};
    const ncclMultimemHandle_t multimem = {NULL};
    void *at = NULL;
    ncclCftLeId id = 0;
    size_t offset = 0;
#define REFUSED(name, ...)                                  \
    do {                                                    \
        CHECK(nccl##name(__VA_ARGS__) == ncclInvalidUsage); \
        CHECK_HAS(ncclGetLastError(NULL), "nccl" #name);    \
    } while (0)
    REFUSED(GetLsaMultimemDevicePointer, NULL, 0, &at);
    REFUSED(GetMultimemDevicePointer, NULL, 0, multimem, &at);
    REFUSED(GetLsaDevicePointer, NULL, 0, 0, &at);
    REFUSED(GetPeerDevicePointer, NULL, 0, 0, &at);
    REFUSED(GetMultimemDeviceLeInfo, NULL, 0, &id, &offset);
    REFUSED(GetCftDeviceLeInfo, NULL, 0, 0, team, &id, &offset);
    REFUSED(GetPeerDeviceLeInfo, NULL, 0, 0, &id, &offset);
    REFUSED(CftBarrierCreateRequirement, team, 1, NULL, NULL);
    REFUSED(GinOutboxCreateRequirement, 1, 1, NULL, NULL);
    REFUSED(GinInboxA2ACreateRequirement, team, 1, 1, NULL, NULL);
    CHECK(ncclTeamCft(NULL, NCCL_CFT_TEAM_FLAT).nRanks == 0);
    CHECK_HAS(ncclGetLastError(NULL), "ncclTeamCft");
    CHECK(ncclTeamCftMultimem(NULL).nRanks == 0);
    CHECK_HAS(ncclGetLastError(NULL), "ncclTeamCftMultimem");
}
