/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's public ABI as documented for 2.28: names, enum values and struct layouts. A test compares
 * them with NCCL's own header, which programs may use instead.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>

/* Legal C11 and C++ beside the CUDA headers. */
typedef struct CUstream_st *cudaStream_t;

#define NCCL_MAJOR                        2
#define NCCL_MINOR                        28
#define NCCL_PATCH                        9
#define NCCL_SUFFIX                       ""
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE                 NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

#define NCCL_WIN_DEFAULT            0x00
#define NCCL_WIN_COLL_SYMMETRIC     0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_COMM_NULL              NULL

#define NCCL_UNIQUE_ID_BYTES        128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT      INT_MIN
#define NCCL_UNDEF_FLOAT           (-1.0F)
#define NCCL_CONFIG_UNDEF_PTR      NULL
#define NCCL_SPLIT_NOCOLOR         (-1)
#define NCCL_SHRINK_DEFAULT        0x00
#define NCCL_SHRINK_ABORT          0x01
#define NCCL_REVOKE_DEFAULT        0x00
#define NCCL_CTA_POLICY_DEFAULT    0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO       0x02

typedef struct ncclConfig_v22800 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_MAGIC 0xcafebeefU
#define NCCL_CONFIG_INITIALIZER                                                            \
    {                                                                                      \
        sizeof(ncclConfig_t), NCCL_CONFIG_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,           \
            NCCL_CONFIG_UNDEF_INT                                                          \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime; /* microseconds */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_MAGIC 0x74685283U
#define NCCL_SIM_INFO_INITIALIZER                                                       \
    {                                                                                   \
        sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT \
    }

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* X(return type, name, parameters): every function, so that each has its pnccl twin. A table a
 * file. */
#define NCCL_RESULT_FUNCTIONS(X)                           \
    X(ncclResult_t, GetVersion, (int *version))            \
    X(const char *, GetErrorString, (ncclResult_t result)) \
    X(const char *, GetLastError, (ncclComm_t comm))       \
    X(void, ResetDebugInit, (void))

#define NCCL_COMM_FUNCTIONS(X)                                                                    \
    X(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId))                                       \
    X(ncclResult_t, CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) \
    X(ncclResult_t, CommInitRankConfig,                                                           \
      (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config))       \
    X(ncclResult_t, CommInitRankScalable,                                                         \
      (ncclComm_t * comm, int nranks, int rank, int nId, ncclUniqueId *commIds,                   \
       ncclConfig_t *config))                                                                     \
    X(ncclResult_t, CommInitAll, (ncclComm_t * comms, int ndev, const int *devlist))              \
    X(ncclResult_t, CommFinalize, (ncclComm_t comm))                                              \
    X(ncclResult_t, CommDestroy, (ncclComm_t comm))                                               \
    X(ncclResult_t, CommAbort, (ncclComm_t comm))                                                 \
    X(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags))                               \
    X(ncclResult_t, CommSplit,                                                                    \
      (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config))           \
    X(ncclResult_t, CommShrink,                                                                   \
      (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,        \
       ncclConfig_t *config, int shrinkFlags))                                                    \
    X(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * asyncError))              \
    X(ncclResult_t, CommCount, (const ncclComm_t comm, int *count))                               \
    X(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int *device))                           \
    X(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank))

#define NCCL_MEMORY_FUNCTIONS(X)                                                                   \
    X(ncclResult_t, CommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle)) \
    X(ncclResult_t, CommDeregister, (const ncclComm_t comm, void *handle))                         \
    X(ncclResult_t, CommWindowRegister,                                                            \
      (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))                 \
    X(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))                     \
    X(ncclResult_t, DevCommCreate, (ncclComm_t comm, const void *requirements, void *devComm))     \
    X(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const void *devComm))                        \
    X(ncclResult_t, MemAlloc, (void **ptr, size_t size))                                           \
    X(ncclResult_t, MemFree, (void *ptr))

#define NCCL_OP_FUNCTIONS(X)                                                                     \
    X(ncclResult_t, RedOpCreatePreMulSum,                                                        \
      (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, \
       ncclComm_t comm))                                                                         \
    X(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))

#define NCCL_CALL_FUNCTIONS(X)                                                                 \
    X(ncclResult_t, Reduce,                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,            \
       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream))                        \
    X(ncclResult_t, Bcast,                                                                     \
      (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,           \
       cudaStream_t stream))                                                                   \
    X(ncclResult_t, Broadcast,                                                                 \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,  \
       ncclComm_t comm, cudaStream_t stream))                                                  \
    X(ncclResult_t, AllReduce,                                                                 \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,            \
       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))                                  \
    X(ncclResult_t, ReduceScatter,                                                             \
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,        \
       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))                                  \
    X(ncclResult_t, AllGather,                                                                 \
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,        \
       ncclComm_t comm, cudaStream_t stream))                                                  \
    X(ncclResult_t, AlltoAll,                                                                  \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,            \
       ncclComm_t comm, cudaStream_t stream))                                                  \
    X(ncclResult_t, Gather,                                                                    \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,  \
       ncclComm_t comm, cudaStream_t stream))                                                  \
    X(ncclResult_t, Scatter,                                                                   \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,  \
       ncclComm_t comm, cudaStream_t stream))                                                  \
    X(ncclResult_t, Send,                                                                      \
      (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, \
       cudaStream_t stream))                                                                   \
    X(ncclResult_t, Recv,                                                                      \
      (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,       \
       cudaStream_t stream))

#define NCCL_GROUP_FUNCTIONS(X)         \
    X(ncclResult_t, GroupStart, (void)) \
    X(ncclResult_t, GroupEnd, (void))   \
    X(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo))

#define NCCL_FUNCTIONS(X)    \
    NCCL_RESULT_FUNCTIONS(X) \
    NCCL_COMM_FUNCTIONS(X)   \
    NCCL_MEMORY_FUNCTIONS(X) \
    NCCL_OP_FUNCTIONS(X)     \
    NCCL_CALL_FUNCTIONS(X)   \
    NCCL_GROUP_FUNCTIONS(X)

#define NCCL_DECLARE(type, name, parameters) \
    type nccl##name parameters;              \
    type pnccl##name parameters;
NCCL_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif

#endif
