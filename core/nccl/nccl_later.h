/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs that begin with their size grow at the end.
 */
#ifndef GYRE_NCCL_LATER_H
#define GYRE_NCCL_LATER_H

#include "core/nccl/nccl.h"

#include <stdint.h>

typedef struct CUevent_st *cudaEvent_t;

#define NCCL_API_MAGIC           0xcafebeefU
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_SUSPEND_MEM         0x01

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

/* A vendor's; ignored. */
typedef struct ncclConfigExt {
    struct ncclConfigExt *next;
    struct {
        int vendorId;
        int optionId;
    } key;
    union {
        int i;
        const char *s;
        void *raw;
    } val;
} ncclConfigExt_t;

typedef struct ncclCollConfig_v23200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    ncclConfigExt_t *ext;
    int minCTAs;
    int maxCTAs;
    int nvlsCTAs;
    int cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection;
    int CTAPolicy;
    uint64_t userProfilerTag;
    cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                                         \
    {                                                                                       \
        sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,            \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, 1, NCCL_CONFIG_UNDEF_INT, 0,      \
            NCCL_CONFIG_UNDEF_PTR                                                           \
    }

typedef enum { NCCL_ENCRYPTION_MODE_NONE = 0, NCCL_ENCRYPTION_MODE_PSK = 1 } ncclEncryptionMode_t;

typedef struct ncclEncryptionConfig_v23200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int mode;
    const char *psk;
} ncclEncryptionConfig_t;

#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                 \
    {                                                                      \
        sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, \
            NCCL_ENCRYPTION_MODE_NONE, NCCL_CONFIG_UNDEF_PTR               \
    }

typedef struct ncclParamHandle *ncclParamHandle_t;

#define NCCL_LATER_COMM_FUNCTIONS(X)                                                             \
    X(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId * uniqueId))                 \
    X(ncclResult_t, CommGrow,                                                                    \
      (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, \
       ncclConfig_t *config))                                                                    \
    X(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags))                                   \
    X(ncclResult_t, CommResume, (ncclComm_t comm))                                               \
    X(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t * value))   \
    X(ncclResult_t, SetEncryption, (const ncclEncryptionConfig_t *config))

#define NCCL_SIGNAL_FUNCTIONS(X)                                                                 \
    X(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr))       \
    X(ncclResult_t, PutSignal,                                                                   \
      (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,                   \
       ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,      \
       ncclComm_t comm, cudaStream_t stream))                                                    \
    X(ncclResult_t, Signal,                                                                      \
      (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) \
    X(ncclResult_t, WaitSignal,                                                                  \
      (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream))

#define NCCL_CONFIG_CALL_FUNCTIONS(X)                                                         \
    X(ncclResult_t, AllReduceConfig,                                                          \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,           \
       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) \
    X(ncclResult_t, BroadcastConfig,                                                          \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))                 \
    X(ncclResult_t, ReduceConfig,                                                             \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,           \
       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,                        \
       const ncclCollConfig_t *config))                                                       \
    X(ncclResult_t, AllGatherConfig,                                                          \
      (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,       \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))                 \
    X(ncclResult_t, ReduceScatterConfig,                                                      \
      (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,       \
       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)) \
    X(ncclResult_t, AlltoAllConfig,                                                           \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,           \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))                 \
    X(ncclResult_t, GatherConfig,                                                             \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))                 \
    X(ncclResult_t, ScatterConfig,                                                            \
      (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, \
       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))

#define NCCL_PARAM_FUNCTIONS(X)                                                              \
    X(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char *key))                   \
    X(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t * out))                         \
    X(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t * out))                       \
    X(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t * out))                       \
    X(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t * out))                       \
    X(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t * out))                        \
    X(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t * out))                      \
    X(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t * out))                      \
    X(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t * out))                      \
    X(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char **out))                    \
    X(ncclResult_t, ParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len))        \
    X(ncclResult_t, ParamGetParameter, (const char *key, const char **value, int *valueLen)) \
    X(ncclResult_t, ParamGetAllParameterKeys, (const char ***table, int *tableLen))          \
    X(void, ParamDumpAll, (void))

#define NCCL_LATER_FUNCTIONS(X)   \
    NCCL_LATER_COMM_FUNCTIONS(X)  \
    NCCL_SIGNAL_FUNCTIONS(X)      \
    NCCL_CONFIG_CALL_FUNCTIONS(X) \
    NCCL_PARAM_FUNCTIONS(X)

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_DECLARE(type, name, parameters) \
    type nccl##name parameters;              \
    type pnccl##name parameters;
NCCL_LATER_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif

#endif
