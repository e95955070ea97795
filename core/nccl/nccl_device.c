/* SPDX-License-Identifier: Apache-2.0
 *
 * The host helpers of NCCL's device API (core/nccl/nccl_device.h). They exist so that programs
 * which need the names can be loaded. They refuse every call, because gyre does not have the device
 * API.
 */
#include "core/nccl/nccl_device.h"

#include "core/nccl/nccl_shim.h"

/* The result of functions whose type is not ncclResult_t. */
static const ncclTeam_t no_team = {0, 0, 0};

NCCL_EXPORT ncclTeam_t pncclTeamWorld(ncclComm_t comm)
{
    (void)comm;
    nccl_unsupported("gyre does not have NCCL's device API (ncclTeamWorld)");
    return no_team;
}

NCCL_EXPORT ncclTeam_t pncclTeamLsa(ncclComm_t comm)
{
    (void)comm;
    nccl_unsupported("gyre does not have NCCL's device API (ncclTeamLsa)");
    return no_team;
}

NCCL_EXPORT ncclTeam_t pncclTeamRail(ncclComm_t comm)
{
    (void)comm;
    nccl_unsupported("gyre does not have NCCL's device API (ncclTeamRail)");
    return no_team;
}

NCCL_EXPORT int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank)
{
    (void)comm;
    (void)team;
    (void)rank;
    nccl_unsupported("gyre does not have NCCL's device API (ncclTeamRankToWorld)");
    return -1;
}

NCCL_EXPORT int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank)
{
    (void)comm;
    (void)team;
    (void)rank;
    nccl_unsupported("gyre does not have NCCL's device API (ncclTeamRankToLsa)");
    return -1;
}

NCCL_EXPORT ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                                          void *outHandle, void *outReq)
{
    (void)team;
    (void)nBarriers;
    (void)outHandle;
    (void)outReq;
    return nccl_unsupported(
        "gyre does not have NCCL's device API (ncclLsaBarrierCreateRequirement)");
}

NCCL_EXPORT ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team,
                                                          int nBarriers, void *outHandle,
                                                          void *outReq)
{
    (void)comm;
    (void)team;
    (void)nBarriers;
    (void)outHandle;
    (void)outReq;
    return nccl_unsupported(
        "gyre does not have NCCL's device API (ncclGinBarrierCreateRequirement)");
}

NCCL_EXPORT int pncclLLA2ACalcSlots(int maxElts, int maxEltSize)
{
    (void)maxElts;
    (void)maxEltSize;
    nccl_unsupported("gyre does not have NCCL's device API (ncclLLA2ACalcSlots)");
    return 0;
}

NCCL_EXPORT ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, void *outHandle,
                                                     void *outReq)
{
    (void)nBlocks;
    (void)nSlots;
    (void)outHandle;
    (void)outReq;
    return nccl_unsupported("gyre does not have NCCL's device API (ncclLLA2ACreateRequirement)");
}

NCCL_DEVICE_FUNCTIONS(NCCL_ALIAS)
