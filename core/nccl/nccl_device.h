/* SPDX-License-Identifier: Apache-2.0
 *
 * Host functions of NCCL's device API up to 2.32, but ncclDevCommCreate, and properties.
 */
#ifndef GYRE_NCCL_DEVICE_H
#define GYRE_NCCL_DEVICE_H

#include "core/nccl/nccl.h"

#include <stdbool.h>
#include <stdint.h>

/* Passed by value: the layout is ABI. */
typedef struct ncclTeam {
    int nRanks;
    int rank;
    int stride;
} ncclTeam_t;

/* Of a team's buffers; passed by value. */
typedef struct ncclMultimemHandle {
    void *mcBasePtr;
} ncclMultimemHandle_t;

typedef uint32_t ncclCftLeId;
typedef enum {
    NCCL_CFT_TEAM_FLAT,
    NCCL_CFT_TEAM_HIER_MULTIMEM,
    NCCL_CFT_TEAM_HIER_LSA
} ncclCftTeamMode_t;

/* Callers of 2.29 to 2.31 know fewer fields. */
typedef struct ncclCommProperties {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int rank;
    int nRanks;
    int cudaDev;
    int nvmlDev;
    bool deviceApiSupport;
    bool multimemSupport;
    int ginType; /* of the device API; 0 is none */
    int nLsaTeams;
    bool hostRmaSupport;
    int railedGinType;
    uint64_t commHash;
    int ginMinStride;
    int ginConnectionType;
    bool ginSupport[64];
    size_t devCommRuntimeVersionSize;
    bool cftSupport;
    bool cftMulticastSupport;
    bool cftCountedSupport;
} ncclCommProperties_t;

/* X(return type, name, parameters). Handles and requirements are opaque here. */
#define NCCL_PROPERTY_FUNCTIONS(X) \
    X(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t * props))

#define NCCL_DEVICE_FUNCTIONS(X)                                                                \
    X(ncclResult_t, GetLsaMultimemDevicePointer,                                                \
      (ncclWindow_t window, size_t offset, void **outPtr))                                      \
    X(ncclResult_t, GetMultimemDevicePointer,                                                   \
      (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **outPtr))       \
    X(ncclResult_t, GetLsaDevicePointer,                                                        \
      (ncclWindow_t window, size_t offset, int lsaRank, void **outPtr))                         \
    X(ncclResult_t, GetPeerDevicePointer,                                                       \
      (ncclWindow_t window, size_t offset, int peer, void **outPtr))                            \
    X(ncclResult_t, GetMultimemDeviceLeInfo,                                                    \
      (ncclWindow_t window, size_t offset, ncclCftLeId * leId, size_t * leOffset))              \
    X(ncclResult_t, GetCftDeviceLeInfo,                                                         \
      (ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId *leId,  \
       size_t *leOffset))                                                                       \
    X(ncclResult_t, GetPeerDeviceLeInfo,                                                        \
      (ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId *leId, size_t *leOffset)) \
    X(ncclTeam_t, TeamCft, (ncclComm_t comm, ncclCftTeamMode_t mode))                           \
    X(ncclTeam_t, TeamCftMultimem, (ncclComm_t comm))                                           \
    X(ncclResult_t, CftBarrierCreateRequirement,                                                \
      (ncclTeam_t team, int nBarriers, void *outHandle, void *outReq))                          \
    X(ncclResult_t, GinOutboxCreateRequirement,                                                 \
      (int nBlocks, int size_log2, void *outHandle, void *outReq))                              \
    X(ncclResult_t, GinInboxA2ACreateRequirement,                                               \
      (ncclTeam_t peers, int nBlocks, int size_log2, void *outHandle, void *outReq))            \
    X(ncclTeam_t, TeamWorld, (ncclComm_t comm))                                                 \
    X(ncclTeam_t, TeamLsa, (ncclComm_t comm))                                                   \
    X(ncclTeam_t, TeamRail, (ncclComm_t comm))                                                  \
    X(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))                       \
    X(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))                         \
    X(ncclResult_t, LsaBarrierCreateRequirement,                                                \
      (ncclTeam_t team, int nBarriers, void *outHandle, void *outReq))                          \
    X(ncclResult_t, GinBarrierCreateRequirement,                                                \
      (ncclComm_t comm, ncclTeam_t team, int nBarriers, void *outHandle, void *outReq))         \
    X(int, LLA2ACalcSlots, (int maxElts, int maxEltSize))                                       \
    X(ncclResult_t, LLA2ACreateRequirement,                                                     \
      (int nBlocks, int nSlots, void *outHandle, void *outReq))

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_DECLARE(type, name, parameters) \
    type nccl##name parameters;              \
    type pnccl##name parameters;
NCCL_PROPERTY_FUNCTIONS(NCCL_DECLARE)
NCCL_DEVICE_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif

#endif
