/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl_shim.h"

#include "core/nccl/nccl_later.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* gyre's further operations lie behind NCCL's, so that a refusal names the caller's number. */
static_assert(GYRE_SUM == (int)ncclSum && GYRE_PROD == (int)ncclProd && GYRE_MAX == (int)ncclMax &&
                  GYRE_MIN == (int)ncclMin && GYRE_AVG == (int)ncclAvg &&
                  GYRE_FIRST_USER_OP >= (int)ncclNumOps,
              "operations are handed on as they are");

NCCL_EXPORT ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
                                                   ncclDataType_t datatype,
                                                   ncclScalarResidence_t residence, ncclComm_t comm)
{
    NCCL_USE(comm);
    if (op == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
    /* gyre reads both during the call */
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclRedOpCreatePreMulSum: residence is neither ncclScalarDevice nor "
                           "ncclScalarHostImmediate");
    gyre_op made = GYRE_SUM;
    result = nccl_result_of(gyre_op_create_premul_sum(&made, scalar, (gyre_dtype)datatype, own));
    if (result == ncclSuccess)
        *op = (ncclRedOp_t)made;
    return result;
}

NCCL_EXPORT ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    NCCL_USE(comm);
    return nccl_result_of(gyre_op_destroy((gyre_op)op, own));
}

NCCL_OP_FUNCTIONS(NCCL_ALIAS)

/* gyre's call, with the header's names of parameters. */
#define DTYPE          ((gyre_dtype)datatype)
#define OP             ((gyre_op)op)
#define GYRE_Reduce    gyre_reduce(sendbuff, recvbuff, count, DTYPE, OP, root, own, stream)
#define GYRE_Bcast     gyre_broadcast(buff, buff, count, DTYPE, root, own, stream)
#define GYRE_Broadcast gyre_broadcast(sendbuff, recvbuff, count, DTYPE, root, own, stream)
#define GYRE_AllReduce gyre_all_reduce(sendbuff, recvbuff, count, DTYPE, OP, own, stream)
#define GYRE_ReduceScatter \
    gyre_reduce_scatter(sendbuff, recvbuff, recvcount, DTYPE, OP, own, stream)
#define GYRE_AllGather gyre_all_gather(sendbuff, recvbuff, sendcount, DTYPE, own, stream)
#define GYRE_AlltoAll  gyre_all_to_all(sendbuff, recvbuff, count, DTYPE, own, stream)
#define GYRE_Gather    gyre_gather(sendbuff, recvbuff, count, DTYPE, root, own, stream)
#define GYRE_Scatter   gyre_scatter(sendbuff, recvbuff, count, DTYPE, root, own, stream)
#define GYRE_Send      gyre_send(sendbuff, count, DTYPE, peer, own, stream)
#define GYRE_Recv      gyre_recv(recvbuff, count, DTYPE, peer, own, stream)

#define CALL(type, name, parameters)                                                  \
    NCCL_EXPORT type pnccl##name parameters                                           \
    {                                                                                 \
        ncclResult_t result;                                                          \
        gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);                       \
        const int is_own_group = own != NULL && nccl_profile_enter(comm);             \
        result = nccl_group_note(own == NULL ? result : nccl_result_of(GYRE_##name)); \
        return nccl_profile_exit(is_own_group, result);                               \
    }
NCCL_CALL_FUNCTIONS(CALL)
NCCL_CALL_FUNCTIONS(NCCL_ALIAS)

/* Algorithms are named as in GYRE_ALGO. */

#define MAX_CHANNELS 64

static int channels_of(int n_ctas)
{
    if (n_ctas == NCCL_CONFIG_UNDEF_INT)
        return 0;
    return n_ctas < MAX_CHANNELS ? n_ctas : MAX_CHANNELS;
}

/* Ignored: NCCL's kernels' nvlsCTAs, cgaClusterSize and CTAPolicy, the tag, vendors' options. */
static ncclResult_t take_config(const ncclCollConfig_t *given, gyre_call_args *args)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    const ncclResult_t result =
        nccl_check_head("the call's config is not as NCCL_COLLCONFIG_INITIALIZER makes it", given,
                        NCCL_API_MAGIC, offsetof(ncclCollConfig_t, minCTAs));
    if (result != ncclSuccess)
        return result;
    memcpy(&config, given, given->size < sizeof(config) ? given->size : sizeof(config));
    if ((config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.minCTAs < 1) ||
        (config.maxCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs < 1))
        return nccl_refuse(ncclInvalidArgument, "minCTAs or maxCTAs of the call's config is < 1");
    if (config.launchCompletionEvent != NULL)
        return nccl_refuse(ncclInvalidUsage,
                           "gyre does not record launchCompletionEvent; record an event on the "
                           "stream after the call");
    args->min_channels = channels_of(config.minCTAs);
    args->max_channels = channels_of(config.maxCTAs);
    if (config.algSelection != NULL && config.algSelection[0] != '\0')
        args->algorithm = config.algSelection;
    args->prefers = config.forceAlgSelection == 0;
    return ncclSuccess;
}

static ncclResult_t call(gyre_call_args *args, ncclDataType_t dtype, ncclComm_t comm,
                         cudaStream_t stream, const ncclCollConfig_t *config, const char *name)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, name, &result);
    if (own != NULL && config != NULL)
        result = take_config(config, args);
    if (result != ncclSuccess)
        return nccl_group_note(result);
    args->dtype = (gyre_dtype)dtype;
    const int is_own_group = nccl_profile_enter(comm);
    const gyre_status status = gyre_collective(args, own, stream);
    return nccl_profile_exit(is_own_group, nccl_group_note(nccl_result_of(status)));
}

#define ARGS(kind_, count_, root_, op_)                                        \
    args.kind = GYRE_CALL_##kind_, args.send = sendbuff, args.recv = recvbuff, \
    args.count = (count_), args.root = (root_), args.op = (gyre_op)(op_)
#define ARGS_AllReduceConfig     ARGS(ALL_REDUCE, count, 0, op)
#define ARGS_BroadcastConfig     ARGS(BROADCAST, count, root, ncclSum)
#define ARGS_ReduceConfig        ARGS(REDUCE, count, root, op)
#define ARGS_AllGatherConfig     ARGS(ALL_GATHER, sendcount, 0, ncclSum)
#define ARGS_ReduceScatterConfig ARGS(REDUCE_SCATTER, recvcount, 0, op)
#define ARGS_AlltoAllConfig      ARGS(ALL_TO_ALL, count, 0, ncclSum)
#define ARGS_GatherConfig        ARGS(GATHER, count, root, ncclSum)
#define ARGS_ScatterConfig       ARGS(SCATTER, count, root, ncclSum)

#define CONFIG_CALL(type, name, parameters)                            \
    NCCL_EXPORT type pnccl##name parameters                            \
    {                                                                  \
        gyre_call_args args = GYRE_CALL_ARGS_INIT;                     \
        ARGS_##name;                                                   \
        return call(&args, datatype, comm, stream, config, NCCL_CALL); \
    }
NCCL_CONFIG_CALL_FUNCTIONS(CONFIG_CALL)
NCCL_CONFIG_CALL_FUNCTIONS(NCCL_ALIAS)

NCCL_EXPORT ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
    int rank = 0;
    NCCL_USE(comm);
    if (outUserPtr == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
    result = nccl_result_of(gyre_comm_rank(own, &rank));
    if (result != ncclSuccess)
        return result;
    return nccl_result_of(
        gyre_window_address(own, (gyre_window)(uintptr_t)win, rank, outUserPtr, NULL));
}

/* N_CONTEXTS of as many signals each. */
enum { N_CONTEXTS = 4, N_INDICES = GYRE_N_SIGNALS / N_CONTEXTS };

static ncclResult_t number_of(int index, int context, unsigned flags, int *signal_out)
{
    char text[160];
    if (flags != 0)
        return nccl_refuse(ncclInvalidArgument, "flags of a one-sided call must be 0");
    if (index < 0 || index >= N_INDICES || context < 0 || context >= N_CONTEXTS) {
        snprintf(text, sizeof(text), "signal %d of context %d: gyre has signals 0..%d of 0..%d",
                 index, context, N_INDICES - 1, N_CONTEXTS - 1);
        return nccl_refuse(ncclInvalidArgument, text);
    }
    *signal_out = context * N_INDICES + index;
    return ncclSuccess;
}

NCCL_EXPORT ncclResult_t pncclPutSignal(const void *localbuff, size_t count,
                                        ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                                        size_t peerWinOffset, int sigIdx, int ctx,
                                        unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    gyre_put_target target = {peer, (gyre_window)(uintptr_t)peerWin, peerWinOffset, 0};
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = number_of(sigIdx, ctx, flags, &target.signal);
    if (result == ncclSuccess)
        result =
            nccl_result_of(gyre_put(localbuff, count, (gyre_dtype)datatype, &target, own, stream));
    return nccl_group_note(result);
}

NCCL_EXPORT ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags,
                                     ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result;
    int signal = 0;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = number_of(sigIdx, ctx, flags, &signal);
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_signal(peer, signal, own, stream));
    return nccl_group_note(result);
}

static ncclResult_t wait_signals(int n_waits, const ncclWaitSignalDesc_t *asked, gyre_comm *own,
                                 cudaStream_t stream)
{
    if (n_waits < 0 || (n_waits > 0 && asked == NULL))
        return nccl_refuse(ncclInvalidArgument, "ncclWaitSignal: no list of descriptors");
    gyre_signal_wait *waits = calloc((size_t)n_waits + 1, sizeof(*waits));
    if (waits == NULL)
        return nccl_refuse(ncclSystemError, "out of host memory");
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n_waits && result == ncclSuccess; i++) {
        waits[i].peer = asked[i].peer;
        waits[i].count = asked[i].opCnt;
        result = number_of(asked[i].sigIdx, asked[i].ctx, 0, &waits[i].signal);
    }
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_wait_signal(waits, n_waits, own, stream));
    free(waits);
    return result;
}

NCCL_EXPORT ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs,
                                         ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = wait_signals(nDesc, signalDescs, own, stream);
    return nccl_group_note(result);
}

NCCL_SIGNAL_FUNCTIONS(NCCL_ALIAS)
