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

#define CALL(expression)                                                         \
    ncclResult_t result;                                                         \
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);                      \
    const int is_own_group = own != NULL && nccl_profile_enter(comm);            \
    result = nccl_group_note(own == NULL ? result : nccl_result_of(expression)); \
    return nccl_profile_exit(is_own_group, result)

NCCL_EXPORT ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                     ncclDataType_t datatype, ncclRedOp_t op, int root,
                                     ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_reduce(sendbuff, recvbuff, count, (gyre_dtype)datatype, (gyre_op)op, root, own,
                     stream));
}

NCCL_EXPORT ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                                    ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_broadcast(buff, buff, count, (gyre_dtype)datatype, root, own, stream));
}

NCCL_EXPORT ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                        ncclDataType_t datatype, int root, ncclComm_t comm,
                                        cudaStream_t stream)
{
    CALL(gyre_broadcast(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

NCCL_EXPORT ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                        ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream)
{
    CALL(
        gyre_all_reduce(sendbuff, recvbuff, count, (gyre_dtype)datatype, (gyre_op)op, own, stream));
}

NCCL_EXPORT ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                            ncclDataType_t datatype, ncclRedOp_t op,
                                            ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_reduce_scatter(sendbuff, recvbuff, recvcount, (gyre_dtype)datatype, (gyre_op)op, own,
                             stream));
}

NCCL_EXPORT ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                        ncclDataType_t datatype, ncclComm_t comm,
                                        cudaStream_t stream)
{
    CALL(gyre_all_gather(sendbuff, recvbuff, sendcount, (gyre_dtype)datatype, own, stream));
}

NCCL_EXPORT ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream)
{
    CALL(gyre_all_to_all(sendbuff, recvbuff, count, (gyre_dtype)datatype, own, stream));
}

NCCL_EXPORT ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
                                     ncclDataType_t datatype, int root, ncclComm_t comm,
                                     cudaStream_t stream)
{
    CALL(gyre_gather(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

NCCL_EXPORT ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                      ncclDataType_t datatype, int root, ncclComm_t comm,
                                      cudaStream_t stream)
{
    CALL(gyre_scatter(sendbuff, recvbuff, count, (gyre_dtype)datatype, root, own, stream));
}

NCCL_EXPORT ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype,
                                   int peer, ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_send(sendbuff, count, (gyre_dtype)datatype, peer, own, stream));
}

NCCL_EXPORT ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                   ncclComm_t comm, cudaStream_t stream)
{
    CALL(gyre_recv(recvbuff, count, (gyre_dtype)datatype, peer, own, stream));
}

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

static ncclResult_t call(gyre_call_args *args, ncclDataType_t dtype, int op, ncclComm_t comm,
                         cudaStream_t stream, const ncclCollConfig_t *config, const char *name)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, name, &result);
    if (own != NULL && config != NULL)
        result = take_config(config, args);
    if (result != ncclSuccess)
        return nccl_group_note(result);
    args->dtype = (gyre_dtype)dtype;
    args->op = (gyre_op)op;
    const int is_own_group = nccl_profile_enter(comm);
    const gyre_status status = gyre_collective(args, own, stream);
    return nccl_profile_exit(is_own_group, nccl_group_note(nccl_result_of(status)));
}

static gyre_call_args args_of(gyre_call_kind kind, const void *send, void *recv, size_t count,
                              int root)
{
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    args.kind = (int)kind;
    args.send = send;
    args.recv = recv;
    args.count = count;
    args.root = root;
    return args;
}

NCCL_EXPORT ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                              ncclDataType_t datatype, ncclRedOp_t op,
                                              ncclComm_t comm, cudaStream_t stream,
                                              const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_ALL_REDUCE, sendbuff, recvbuff, count, 0);
    return call(&args, datatype, (int)op, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count,
                                              ncclDataType_t datatype, int root, ncclComm_t comm,
                                              cudaStream_t stream, const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_BROADCAST, sendbuff, recvbuff, count, root);
    return call(&args, datatype, (int)ncclSum, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                           ncclDataType_t datatype, ncclRedOp_t op, int root,
                                           ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_REDUCE, sendbuff, recvbuff, count, root);
    return call(&args, datatype, (int)op, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff,
                                              size_t sendcount, ncclDataType_t datatype,
                                              ncclComm_t comm, cudaStream_t stream,
                                              const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_ALL_GATHER, sendbuff, recvbuff, sendcount, 0);
    return call(&args, datatype, (int)ncclSum, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff,
                                                  size_t recvcount, ncclDataType_t datatype,
                                                  ncclRedOp_t op, ncclComm_t comm,
                                                  cudaStream_t stream,
                                                  const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, 0);
    return call(&args, datatype, (int)op, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count,
                                             ncclDataType_t datatype, ncclComm_t comm,
                                             cudaStream_t stream, const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_ALL_TO_ALL, sendbuff, recvbuff, count, 0);
    return call(&args, datatype, (int)ncclSum, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count,
                                           ncclDataType_t datatype, int root, ncclComm_t comm,
                                           cudaStream_t stream, const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_GATHER, sendbuff, recvbuff, count, root);
    return call(&args, datatype, (int)ncclSum, comm, stream, config, NCCL_CALL);
}

NCCL_EXPORT ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count,
                                            ncclDataType_t datatype, int root, ncclComm_t comm,
                                            cudaStream_t stream, const ncclCollConfig_t *config)
{
    gyre_call_args args = args_of(GYRE_CALL_SCATTER, sendbuff, recvbuff, count, root);
    return call(&args, datatype, (int)ncclSum, comm, stream, config, NCCL_CALL);
}

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
