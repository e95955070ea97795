/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates the statuses of gyre to NCCL's results, and keeps their causes.
 */
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <string.h>

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

/* The code of "2.27.7" or "22707"; 0 if the text is neither. Both parts after the first have at
 * most two digits in NCCL's numbers. */
static int version_code(const char *text)
{
    int part[3] = {0};
    int n_read = 0;
    if (strspn(text, ".0123456789") != strlen(text) || strlen(text) > strlen("2.99.99"))
        return 0;
    if (sscanf(text, "%1d.%2d.%2d%n", &part[0], &part[1], &part[2], &n_read) != 3 &&
        (sscanf(text, "%1d%2d%2d%n", &part[0], &part[1], &part[2], &n_read) != 3 ||
         strchr(text, '.') != NULL))
        return 0;
    return text[n_read] == '\0' && part[0] == NCCL_MAJOR ? NCCL_VERSION(part[0], part[1], part[2])
                                                         : 0;
}

NCCL_EXPORT ncclResult_t pncclGetVersion(int *version)
{
    char text[256] = "";
    if (version == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    const ncclResult_t result =
        nccl_result_of(gyre_get_variable("GYRE_NCCL_VERSION", text, sizeof(text)));
    if (result != ncclSuccess)
        return result;
    const int code = text[0] == '\0' ? NCCL_VERSION_CODE : version_code(text);
    if (code == 0) {
        char cause[400];
        snprintf(cause, sizeof(cause),
                 "GYRE_NCCL_VERSION=%s is not legal: expected a version of NCCL %d, as 2.27.7 or "
                 "22707",
                 text, NCCL_MAJOR);
        return nccl_refuse(ncclInvalidArgument, cause);
    }
    *version = code;
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
