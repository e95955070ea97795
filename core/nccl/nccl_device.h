/* SPDX-License-Identifier: Apache-2.0
 *
 * The host functions that NCCL 2.28 exports for its device API, besides ncclDevCommCreate. NCCL
 * declares them in separate headers (nccl_device/). Callers are compiled with NCCL's headers.
 */
#ifndef GYRE_NCCL_DEVICE_H
#define GYRE_NCCL_DEVICE_H

#include "core/nccl/nccl.h"

/* Passed by value, so its layout is part of the ABI. */
typedef struct ncclTeam {
    int nRanks;
    int rank;
    int stride;
} ncclTeam_t;

/* X(return type, name, parameters), as in nccl.h. Handles and requirements are opaque here. */
#define NCCL_DEVICE_FUNCTIONS(X)                                                        \
    X(ncclTeam_t, TeamWorld, (ncclComm_t comm))                                         \
    X(ncclTeam_t, TeamLsa, (ncclComm_t comm))                                           \
    X(ncclTeam_t, TeamRail, (ncclComm_t comm))                                          \
    X(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))               \
    X(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))                 \
    X(ncclResult_t, LsaBarrierCreateRequirement,                                        \
      (ncclTeam_t team, int nBarriers, void *outHandle, void *outReq))                  \
    X(ncclResult_t, GinBarrierCreateRequirement,                                        \
      (ncclComm_t comm, ncclTeam_t team, int nBarriers, void *outHandle, void *outReq)) \
    X(int, LLA2ACalcSlots, (int maxElts, int maxEltSize))                               \
    X(ncclResult_t, LLA2ACreateRequirement,                                             \
      (int nBlocks, int nSlots, void *outHandle, void *outReq))

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_DECLARE(type, name, parameters) \
    type nccl##name parameters;              \
    type pnccl##name parameters;
NCCL_DEVICE_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif

#endif
