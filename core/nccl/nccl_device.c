/* SPDX-License-Identifier: Apache-2.0
 *
 * The host helpers of NCCL's device API (core/nccl/nccl_device.h). They exist so that programs
 * which need the names can be loaded. They refuse every call, because gyre does not have the device
 * API.
 */
#include "core/nccl/nccl_device.h"

#include "core/nccl/nccl_shim.h"

/* The result of a refused function, by its type. A team of no ranks and a negative number cannot be
 * taken for an answer. */
static const ncclTeam_t no_team = {0, 0, 0};
#define RESULT_ncclTeam_t(refusal)   ((void)(refusal), no_team)
#define RESULT_ncclResult_t(refusal) (refusal)
#define RESULT_int(refusal)          ((void)(refusal), -1)

/* A function of NCCL_DEVICE_FUNCTIONS. It uses none of its arguments. */
#define REFUSE(type, name, parameters)                                                 \
    NCCL_EXPORT type pnccl##name parameters                                            \
    {                                                                                  \
        return RESULT_##type(                                                          \
            nccl_unsupported("gyre does not have NCCL's device API (nccl" #name ")")); \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NCCL_DEVICE_FUNCTIONS(REFUSE)
NCCL_DEVICE_FUNCTIONS(NCCL_ALIAS)
