/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates the statuses of gyre to NCCL's results, and keeps their causes.
 */
#include "core/nccl/nccl_shim.h"

#include <stdio.h>

static _Thread_local char last_error[NCCL_CAUSE_MAX_BYTES];

ncclResult_t nccl_refuse(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return result;
}

ncclResult_t nccl_unsupported(const char *text)
{
    return nccl_refuse(ncclInvalidUsage, text);
}

ncclResult_t nccl_translate(gyre_status status)
{
    switch (status) {
    case GYRE_SUCCESS:
        return ncclSuccess;
    case GYRE_IN_PROGRESS:
        return ncclInProgress;
    case GYRE_ERROR_INVALID_ARGUMENT:
        return ncclInvalidArgument;
    case GYRE_ERROR_INVALID_USAGE:
    case GYRE_ERROR_UNSUPPORTED:
    case GYRE_ERROR_ABORTED:
        return ncclInvalidUsage;
    case GYRE_ERROR_DEVICE:
        return ncclUnhandledCudaError;
    case GYRE_ERROR_OUT_OF_MEMORY:
    case GYRE_ERROR_SYSTEM:
        return ncclSystemError;
    case GYRE_ERROR_REMOTE:
    case GYRE_ERROR_TIMEOUT:
        return ncclRemoteError;
    case GYRE_ERROR_INTERNAL:
        break;
    }
    return ncclInternalError;
}

ncclResult_t nccl_result_of(gyre_status status)
{
    if (status == GYRE_IN_PROGRESS && nccl_group_is_open())
        return ncclSuccess;
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        snprintf(last_error, sizeof(last_error), "%s", gyre_last_error());
    return nccl_translate(status);
}

NCCL_EXPORT ncclResult_t pncclGetVersion(int *version)
{
    if (version == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

NCCL_EXPORT const char *pncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case ncclNumResults:
        break;
    }
    return "unknown result code";
}

/* As in NCCL, the communicator does not matter; it may be gone. */
NCCL_EXPORT const char *pncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

/* The log keeps what the process's first communicator found in the environment. */
NCCL_EXPORT void pncclResetDebugInit(void) {}

NCCL_RESULT_FUNCTIONS(NCCL_ALIAS)
