/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's operations, collectives, sends and receives.
 */
#include "core/nccl/nccl_shim.h"

#include <assert.h>

/* Built-in operations have the same values, and gyre's own ones lie behind NCCL's built-in ones, so
 * that a refusal names the number that the caller gave. */
static_assert(GYRE_SUM == (int)ncclSum && GYRE_PROD == (int)ncclProd && GYRE_MAX == (int)ncclMax &&
                  GYRE_MIN == (int)ncclMin && GYRE_AVG == (int)ncclAvg &&
                  GYRE_FIRST_USER_OP >= (int)ncclNumOps,
              "operations are handed on as they are");

NCCL_EXPORT ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
                                                   ncclDataType_t datatype,
                                                   ncclScalarResidence_t residence, ncclComm_t comm)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    if (op == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
    /* gyre reads either kind during the call. */
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
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    return own == NULL ? result : nccl_result_of(gyre_op_destroy((gyre_op)op, own));
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
