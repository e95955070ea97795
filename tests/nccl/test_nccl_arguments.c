/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl_device.h"
#include "core/nccl/nccl_later.h"
#include "tests/nccl/clients.h"

#include <limits.h>
#include <stdint.h>

static float numbers[64];
static int number;
static uint64_t wide;
static void *place;
static ncclComm_t child;
static ncclResult_t error;
static ncclRedOp_t made_op;
static ncclWindow_t window;
static ncclUniqueId unique_id;
static ncclCommProperties_t properties = {
    .size = sizeof(properties), .magic = NCCL_API_MAGIC, .version = NCCL_VERSION_CODE};
static ncclWaitSignalDesc_t wait_for_one = {1, 0, 0, 0};

#define SEND_RECV_COUNT numbers, numbers, 1, ncclFloat
/* X(function, arguments): takes a communicator, and is not refused as a whole. */
#define CALLS_WITH_COMM(X)                                                                 \
    X(CommFinalize, (comm))                                                                \
    X(CommDestroy, (comm))                                                                 \
    X(CommAbort, (comm))                                                                   \
    X(CommRevoke, (comm, NCCL_REVOKE_DEFAULT))                                             \
    X(CommSplit, (comm, 0, 0, &child, NULL))                                               \
    X(CommShrink, (comm, NULL, 0, &child, NULL, NCCL_SHRINK_DEFAULT))                      \
    X(CommGetAsyncError, (comm, &error))                                                   \
    X(CommCount, (comm, &number))                                                          \
    X(CommCuDevice, (comm, &number))                                                       \
    X(CommUserRank, (comm, &number))                                                       \
    X(CommRegister, (comm, numbers, sizeof(numbers), &place))                              \
    X(CommDeregister, (comm, NULL))                                                        \
    X(CommWindowRegister, (comm, numbers, sizeof(numbers), &window, 0))                    \
    X(CommWindowDeregister, (comm, NULL))                                                  \
    X(RedOpCreatePreMulSum, (&made_op, numbers, ncclFloat, ncclScalarHostImmediate, comm)) \
    X(RedOpDestroy, (ncclMaxRedOp, comm))                                                  \
    X(Reduce, (SEND_RECV_COUNT, ncclSum, 0, comm, NULL))                                   \
    X(Bcast, (numbers, 1, ncclFloat, 0, comm, NULL))                                       \
    X(Broadcast, (SEND_RECV_COUNT, 0, comm, NULL))                                         \
    X(AllReduce, (SEND_RECV_COUNT, ncclSum, comm, NULL))                                   \
    X(ReduceScatter, (SEND_RECV_COUNT, ncclSum, comm, NULL))                               \
    X(AllGather, (SEND_RECV_COUNT, comm, NULL))                                            \
    X(AlltoAll, (SEND_RECV_COUNT, comm, NULL))                                             \
    X(Gather, (SEND_RECV_COUNT, 0, comm, NULL))                                            \
    X(Scatter, (SEND_RECV_COUNT, 0, comm, NULL))                                           \
    X(Send, (numbers, 1, ncclFloat, 0, comm, NULL))                                        \
    X(Recv, (numbers, 1, ncclFloat, 0, comm, NULL))                                        \
    X(CommGetUniqueId, (comm, &unique_id))                                                 \
    X(CommGrow, (comm, 2, &unique_id, -1, &child, NULL))                                   \
    X(CommMemStats, (comm, ncclStatGpuMemTotal, &wide))                                    \
    X(CommQueryProperties, (comm, &properties))                                            \
    X(WinGetUserPtr, (comm, NULL, &place))                                                 \
    X(PutSignal, (numbers, 1, ncclFloat, 0, NULL, 0, 0, 0, 0, comm, NULL))                 \
    X(Signal, (0, 0, 0, 0, comm, NULL))                                                    \
    X(WaitSignal, (1, &wait_for_one, comm, NULL))                                          \
    X(AllReduceConfig, (SEND_RECV_COUNT, ncclSum, comm, NULL, NULL))                       \
    X(BroadcastConfig, (SEND_RECV_COUNT, 0, comm, NULL, NULL))                             \
    X(ReduceConfig, (SEND_RECV_COUNT, ncclSum, 0, comm, NULL, NULL))                       \
    X(AllGatherConfig, (SEND_RECV_COUNT, comm, NULL, NULL))                                \
    X(ReduceScatterConfig, (SEND_RECV_COUNT, ncclSum, comm, NULL, NULL))                   \
    X(AlltoAllConfig, (SEND_RECV_COUNT, comm, NULL, NULL))                                 \
    X(GatherConfig, (SEND_RECV_COUNT, 0, comm, NULL, NULL))                                \
    X(ScatterConfig, (SEND_RECV_COUNT, 0, comm, NULL, NULL))

#define DEFINE_CALL(name, arguments)                 \
    static ncclResult_t call_##name(ncclComm_t comm) \
    {                                                \
        return nccl##name arguments;                 \
    }
CALLS_WITH_COMM(DEFINE_CALL)

static void refuse_handle(ncclComm_t handle, const char *what)
{
    static const struct {
        const char *name;
        ncclResult_t (*call)(ncclComm_t comm);
    } rows[] = {
#define ROW(name, arguments) {"nccl" #name, call_##name},
        CALLS_WITH_COMM(ROW)};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int may_be_null = rows[i].call == call_CommDestroy ||
                                rows[i].call == call_CommAbort || rows[i].call == call_CommGrow;
        if (handle == NULL && may_be_null) /* a new rank grows NULL */
            continue;
        const ncclResult_t result = rows[i].call(handle);
        CHECK_MSG(result == ncclInvalidArgument, "%s of %s: %d", rows[i].name, what, (int)result);
        CHECK_MSG(strncmp(ncclGetLastError(NULL), rows[i].name, strlen(rows[i].name)) == 0 &&
                      strstr(ncclGetLastError(NULL),
                             handle == NULL
                                 ? ": the communicator is NULL"
                                 : "is no communicator: it was destroyed or aborted") != NULL,
                  "%s of %s: \"%s\"", rows[i].name, what, ncclGetLastError(NULL));
    }
    NCCL_OK(ncclGroupStart());
    CHECK(ncclAllReduce(numbers, numbers, 1, ncclFloat, ncclSum, handle, NULL) ==
          ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(strncmp(ncclGetLastError(NULL), "ncclAllReduce: ", 15) == 0);
}

static ncclComm_t make_alone(void)
{
    ncclComm_t comm = NULL;
    CHECK(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess && comm != NULL);
    return comm;
}

TEST_CASE("a handle that is none is refused by every call")
{
    ncclComm_t live = make_alone(), destroyed = make_alone(), aborted = make_alone();
    NCCL_OK(ncclCommDestroy(destroyed));
    NCCL_OK(ncclCommAbort(aborted));
    ncclComm_t next = make_alone(); /* in the memory of one that has ended */
    const struct {
        ncclComm_t handle;
        const char *what;
    } rows[] = {
        {NULL, "NULL"},
        {destroyed, "a destroyed one"},
        {aborted, "an aborted one"},
        {(ncclComm_t)((uintptr_t)live + 1), "a misaligned one"},
        {(ncclComm_t)((uintptr_t)live + sizeof(void *)), "one that points beside it"},
        {(ncclComm_t)(uintptr_t)1, "1"},
        {(ncclComm_t)UINTPTR_MAX, "all ones"},
        {(ncclComm_t)(void *)numbers, "memory of something else"},
        {(ncclComm_t)(uintptr_t)&ncclCommDestroy, "a function"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        refuse_handle(rows[i].handle, rows[i].what);
    CHECK(ncclCommDestroy(NULL) == ncclSuccess && ncclCommAbort(NULL) == ncclSuccess);
    CHECK(ncclCommCount(live, &number) == ncclSuccess && number == 1);
    CHECK(ncclCommDestroy(live) == ncclSuccess && ncclCommDestroy(next) == ncclSuccess);
}

TEST_CASE("a communicator ends once")
{
    ncclComm_t comm = make_alone();
    NCCL_OK(ncclCommFinalize(comm));
    NCCL_FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "was finalized or revoked before");
    CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
    NCCL_OK(ncclCommCount(comm, &number));
    CHECK(ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclSuccess);
    NCCL_OK(ncclCommDestroy(comm));
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
    CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
    comm = make_alone();
    NCCL_OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
    NCCL_OK(ncclCommAbort(comm));
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
    comm = make_alone();
    NCCL_OK(ncclCommSplit(comm, 0, 0, &child, NULL));
    NCCL_OK(ncclCommDestroy(comm)); /* a child outlives its parent */
    CHECK(ncclCommCount(child, &number) == ncclSuccess && number == 1);
    NCCL_OK(ncclCommDestroy(child));
}

TEST_CASE("a forked child is refused its parent's handles")
{
    static ncclResult_t (*const calls[])(ncclComm_t comm) = {
        call_CommCount, call_CommGetAsyncError, call_CommFinalize, call_CommRevoke,
        call_AllReduce, call_CommSplit,         call_CommDestroy,  call_CommAbort};
    int status = 1;
    ncclComm_t comm = make_alone(), destroyed = make_alone();
    NCCL_OK(ncclCommDestroy(destroyed));
    const pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            CHECK_MSG(calls[i](comm) == ncclInvalidUsage, "call %zu", i);
            CHECK_HAS(ncclGetLastError(NULL), "process that this one was forked from");
        }
        refuse_handle(destroyed, "the parent's destroyed one");
        _exit(test_n_failures == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(ncclCommCount(comm, &number) == ncclSuccess && ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("wrong arguments of every call are refused")
{
    ncclComm_t comm = make_alone();
    ncclComm_t comms[2];
    ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
    ncclCollConfig_t settings = NCCL_COLLCONFIG_INITIALIZER;
    ncclEncryptionConfig_t encryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
    ncclCommProperties_t props = properties;
    ncclWaitSignalDesc_t bad_wait = {1, 0, 99, 0};
    ncclParamHandle_t parameter;
    int8_t small;
    const char *text, **texts;
    sim.version = encryption.version = settings.version = props.version = 99999999;
    NCCL_OK(ncclGetUniqueId(&unique_id));
    NCCL_OK(ncclMemAlloc(&place, 4096)); /* one-sided calls need a window */
    NCCL_OK(ncclCommWindowRegister(comm, place, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    void *const memory = place;
    ncclWindow_t const made_window = window;
#define SELF_TYPE numbers, numbers, 1
#define REFUSED(name, ...)                                                                     \
    do {                                                                                       \
        const ncclResult_t result_ = nccl##name(__VA_ARGS__);                                  \
        CHECK_MSG(result_ == ncclInvalidArgument, "%s(%s): %d", #name, #__VA_ARGS__, result_); \
    } while (0)
    REFUSED(GetVersion, NULL);
    REFUSED(GetUniqueId, NULL);
    REFUSED(CommInitRank, NULL, 1, unique_id, 0);
    REFUSED(CommInitRank, &child, 0, unique_id, 0);
    REFUSED(CommInitRank, &child, -1, unique_id, 0);
    REFUSED(CommInitRank, &child, 1, unique_id, 1);
    REFUSED(CommInitRank, &child, 1, unique_id, -1);
    REFUSED(CommInitRankScalable, &child, 1, 0, 0, &unique_id, NULL);
    REFUSED(CommInitRankScalable, &child, 1, 0, 2, &unique_id, NULL);
    REFUSED(CommInitRankScalable, &child, 1, 0, 1, NULL, NULL);
    REFUSED(CommInitRankScalable, NULL, 1, 0, 1, &unique_id, NULL);
    REFUSED(CommInitAll, NULL, 1, NULL);
    REFUSED(CommInitAll, comms, 0, NULL);
    REFUSED(CommInitAll, comms, -1, NULL);
    REFUSED(CommRevoke, comm, 1);
    REFUSED(CommSplit, comm, -2, 0, &child, NULL);
    REFUSED(CommSplit, comm, 0, 0, NULL, NULL);
    REFUSED(CommShrink, comm, NULL, 0, NULL, NULL, 0);
    REFUSED(CommShrink, comm, NULL, 1, &child, NULL, 0);
    REFUSED(CommShrink, comm, NULL, -1, &child, NULL, 0);
    REFUSED(CommShrink, comm, &(int){0}, 1, &child, NULL, 0); /* itself */
    REFUSED(CommShrink, comm, &(int){7}, 1, &child, NULL, 0);
    REFUSED(CommShrink, comm, NULL, 0, &child, NULL, 99);
    REFUSED(CommGetAsyncError, comm, NULL);
    REFUSED(CommCount, comm, NULL);
    REFUSED(CommCuDevice, comm, NULL);
    REFUSED(CommUserRank, comm, NULL);
    REFUSED(CommRegister, comm, NULL, 4, &place);
    REFUSED(CommRegister, comm, numbers, 0, &place);
    REFUSED(CommRegister, comm, numbers, 4, NULL);
    REFUSED(CommDeregister, comm, numbers);
    for (int flags = NCCL_WIN_DEFAULT; flags <= NCCL_WIN_COLL_SYMMETRIC; flags++) {
        REFUSED(CommWindowRegister, comm, NULL, 4096, &window, flags);
        REFUSED(CommWindowRegister, comm, numbers, 0, &window, flags);
        REFUSED(CommWindowRegister, comm, numbers, 4, NULL, flags);
    }
    REFUSED(CommWindowDeregister, comm, (ncclWindow_t)(void *)numbers);
    REFUSED(MemAlloc, NULL, 4096);
    REFUSED(MemFree, numbers);
    REFUSED(MemFree, (char *)memory + 1);
    REFUSED(RedOpCreatePreMulSum, NULL, numbers, ncclFloat, ncclScalarDevice, comm);
    REFUSED(RedOpCreatePreMulSum, &made_op, NULL, ncclFloat, ncclScalarDevice, comm);
    REFUSED(RedOpCreatePreMulSum, &made_op, numbers, ncclNumTypes, ncclScalarDevice, comm);
    REFUSED(RedOpCreatePreMulSum, &made_op, numbers, ncclFloat, (ncclScalarResidence_t)2, comm);
    REFUSED(AllReduce, SELF_TYPE, ncclNumTypes, ncclSum, comm, NULL);
    REFUSED(AllReduce, SELF_TYPE, (ncclDataType_t)-1, ncclSum, comm, NULL);
    REFUSED(AllReduce, numbers, numbers, SIZE_MAX, ncclFloat, ncclSum, comm, NULL);
    REFUSED(AllReduce, NULL, numbers, 1, ncclFloat, ncclSum, comm, NULL);
    REFUSED(AllReduce, numbers, NULL, 1, ncclFloat, ncclSum, comm, NULL);
    REFUSED(Reduce, SEND_RECV_COUNT, ncclSum, 1, comm, NULL);
    REFUSED(Reduce, SEND_RECV_COUNT, ncclSum, -1, comm, NULL);
    REFUSED(Bcast, numbers, 1, ncclFloat, 1, comm, NULL);
    REFUSED(Broadcast, SEND_RECV_COUNT, -1, comm, NULL);
    REFUSED(Gather, SEND_RECV_COUNT, 1, comm, NULL);
    REFUSED(Scatter, SEND_RECV_COUNT, 1, comm, NULL);
    REFUSED(Send, numbers, 1, ncclFloat, 1, comm, NULL);
    REFUSED(Recv, numbers, 1, ncclFloat, -1, comm, NULL);
    REFUSED(GroupSimulateEnd, NULL);
    REFUSED(GroupSimulateEnd, &sim);
    REFUSED(CommGetUniqueId, comm, NULL);
    REFUSED(CommGrow, NULL, 2, NULL, 1, &child, NULL);
    REFUSED(CommGrow, comm, 2, &unique_id, 0, &child, NULL);
    REFUSED(CommGrow, comm, 2, &unique_id, -1, NULL, NULL);
    REFUSED(CommMemStats, comm, (ncclCommMemStat_t)4, &wide);
    REFUSED(CommMemStats, comm, ncclStatGpuMemTotal, NULL);
    REFUSED(CommQueryProperties, comm, NULL);
    REFUSED(CommQueryProperties, comm, &props);
    REFUSED(SetEncryption, NULL);
    REFUSED(SetEncryption, &encryption);
    REFUSED(WinGetUserPtr, comm, NULL, &place);
    REFUSED(WinGetUserPtr, comm, (ncclWindow_t)(void *)numbers, &place);
    REFUSED(WinGetUserPtr, comm, NULL, NULL);
    REFUSED(PutSignal, numbers, 1, ncclFloat, 0, (ncclWindow_t)(void *)numbers, 0, 0, 0, 0, comm,
            NULL);
    REFUSED(Signal, 1, 0, 0, 0, comm, NULL);
    REFUSED(Signal, 0, 0, 0, 1, comm, NULL);
    REFUSED(WaitSignal, -1, &wait_for_one, comm, NULL);
    REFUSED(WaitSignal, 1, NULL, comm, NULL);
    REFUSED(WaitSignal, 1, &bad_wait, comm, NULL);
    REFUSED(AllReduceConfig, SEND_RECV_COUNT, ncclSum, comm, NULL, &settings);
    REFUSED(ParamBind, NULL, "DEBUG");
    REFUSED(ParamBind, &parameter, NULL);
    REFUSED(ParamBind, &parameter, "NO_SUCH_PARAMETER");
    REFUSED(ParamGetI8, NULL, &small);
    REFUSED(ParamGetI8, (ncclParamHandle_t)(void *)numbers, &small);
    REFUSED(ParamGetStr, (ncclParamHandle_t)(void *)numbers, &text);
    REFUSED(ParamGetStr, NULL, NULL);
    REFUSED(ParamGet, (ncclParamHandle_t)(void *)numbers, numbers, 4, &number);
    REFUSED(ParamGetParameter, NULL, &text, &number);
    REFUSED(ParamGetAllParameterKeys, &texts, NULL);
    NCCL_OK(ncclCommWindowDeregister(comm, made_window));
    REFUSED(CommWindowDeregister, comm, made_window);
    NCCL_OK(ncclMemFree(memory));
    REFUSED(MemFree, memory);
    NCCL_OK(ncclCommDestroy(comm));
}

TEST_CASE("an operation that does not exist is named by its number")
{
    const int ops[] = {5, 6, 15, 16, 17, 99, 4711, INT_MAX, -1, -7, INT_MIN};
    ncclComm_t comm = make_alone(), other = make_alone();
    char words[40];
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        const ncclRedOp_t op = (ncclRedOp_t)ops[i];
        snprintf(words, sizeof(words), " op %d is neither", ops[i]);
        NCCL_FAILS(ncclAllReduce(SEND_RECV_COUNT, op, comm, NULL), ncclInvalidArgument, words);
        NCCL_FAILS(ncclReduceConfig(SEND_RECV_COUNT, op, 0, comm, NULL, NULL), ncclInvalidArgument,
                   words);
        snprintf(words, sizeof(words), " %d is not an operation", ops[i]);
        NCCL_FAILS(ncclRedOpDestroy(op, comm), ncclInvalidArgument, words);
    }
    NCCL_FAILS(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, " 0 is not an operation");
    NCCL_OK(ncclRedOpCreatePreMulSum(&made_op, numbers, ncclFloat, ncclScalarHostImmediate, comm));
    CHECK((int)made_op >= (int)ncclNumOps);
    snprintf(words, sizeof(words), " op %d ", (int)made_op);
    NCCL_FAILS(ncclAllReduce(SEND_RECV_COUNT, made_op, other, NULL), ncclInvalidArgument, words);
    NCCL_FAILS(ncclAllReduce(numbers, numbers, 1, ncclInt, made_op, comm, NULL),
               ncclInvalidArgument, words);
    NCCL_OK(ncclRedOpDestroy(made_op, comm));
    NCCL_FAILS(ncclRedOpDestroy(made_op, comm), ncclInvalidArgument, words + 3);
    CHECK(ncclCommDestroy(comm) == ncclSuccess && ncclCommDestroy(other) == ncclSuccess);
}
