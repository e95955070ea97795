/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives with settings of their own (ncclCollConfig_t). Algorithms are named as in GYRE_ALGO.
 * A NULL config is the plain call.
 */
#include "core/nccl/nccl_later.h"
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <string.h>

#define MAX_CHANNELS 64

static int channels_of(int n_ctas)
{
    if (n_ctas == NCCL_CONFIG_UNDEF_INT)
        return 0;
    return n_ctas < MAX_CHANNELS ? n_ctas : MAX_CHANNELS;
}

/* Translates a config. Fields that describe NCCL's own kernels (nvlsCTAs, cgaClusterSize,
 * CTAPolicy), the profiler's tag and vendors' options do not matter to gyre. */
static ncclResult_t take_config(const ncclCollConfig_t *given, gyre_call_args *args,
                                int *is_forced_out)
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
    *is_forced_out = config.forceAlgSelection != 0;
    return ncclSuccess;
}

static ncclResult_t call(gyre_call_args *args, ncclDataType_t dtype, int op, ncclComm_t comm,
                         cudaStream_t stream, const ncclCollConfig_t *config, const char *name)
{
    ncclResult_t result;
    int is_forced = 1;
    gyre_comm *own = nccl_usable(comm, name, &result);
    if (own != NULL && config != NULL)
        result = take_config(config, args, &is_forced);
    if (result != ncclSuccess)
        return nccl_group_note(result);
    args->dtype = (gyre_dtype)dtype;
    args->op = (gyre_op)op;
    const int is_own_group = nccl_profile_enter(comm);
    gyre_status status = gyre_collective(args, own, stream);
    /* The same refusal comes on all ranks, so all of them let gyre choose. */
    if (!is_forced && args->algorithm != NULL &&
        (status == GYRE_ERROR_INVALID_ARGUMENT || status == GYRE_ERROR_INVALID_USAGE ||
         status == GYRE_ERROR_UNSUPPORTED)) {
        args->algorithm = NULL;
        status = gyre_collective(args, own, stream);
    }
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
