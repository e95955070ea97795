/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters are gyre's variables: keys are GYRE_X, NCCL_X or X; handles point to their names.
 */
#include "core/nccl/nccl_shim.h"

#include "core/foundation/base/text.h"
#include "core/nccl/nccl_later.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[NCCL_CAUSE_MAX_BYTES];

ncclResult_t nccl_refuse(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%.*s", NCCL_CAUSE_MAX_BYTES - 1, text);
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
    if (status == GYRE_IN_PROGRESS && nccl_group_depth() > 0)
        return ncclSuccess;
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        snprintf(last_error, sizeof(last_error), "%s", gyre_last_error());
    return nccl_translate(status);
}

/* "2.27.7" or "22707"; 0 = neither. Later parts have at most two digits. */
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

/* The communicator does not matter, as in NCCL. */
NCCL_EXPORT const char *pncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

/* The log's settings are final. */
NCCL_EXPORT void pncclResetDebugInit(void) {}

NCCL_RESULT_FUNCTIONS(NCCL_ALIAS)

enum { MAX_KEYS = 256, VALUE_BYTES = 1024 };

/* NULL with a last error = unknown. */
static const char *find(const char *key)
{
    char text[160];
    const char *bare = key;
    const char *name = NULL;
    if (key == NULL) {
        nccl_refuse(ncclInvalidArgument, "the parameter's key is NULL");
        return NULL;
    }
    if (strncmp(key, "GYRE_", 5) == 0 || strncmp(key, "NCCL_", 5) == 0)
        bare = key + 5;
    for (int i = 0; (name = gyre_get_variable_name(i)) != NULL; i++)
        if (strcmp(name + 5, bare) == 0)
            return name;
    snprintf(text, sizeof(text), "gyre has no parameter %.80s (ncclParamGetAllParameterKeys)", key);
    nccl_refuse(ncclInvalidArgument, text);
    return NULL;
}

/* NULL = not from ncclParamBind(). */
static const char *name_of(ncclParamHandle_t handle)
{
    const char *name = NULL;
    for (int i = 0; (name = gyre_get_variable_name(i)) != NULL; i++)
        if (name == (const char *)handle)
            break;
    return name;
}

static ncclResult_t read_text(const char *name, char text_out[VALUE_BYTES])
{
    if (name == NULL)
        return nccl_refuse(ncclInvalidArgument,
                           "the parameter's handle is not one that ncclParamBind made");
    return nccl_result_of(gyre_get_variable(name, text_out, VALUE_BYTES));
}

NCCL_EXPORT ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key)
{
    if (out == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclParamBind: out is NULL");
    const char *name = find(key);
    if (name == NULL)
        return ncclInvalidArgument;
    *out = (ncclParamHandle_t)(uintptr_t)name;
    return ncclSuccess;
}

/* Decimal, with K, M or G (1024), or yes or no in a word. 0 = none. */
static int parse(const char *text, int64_t *value_out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    char *end = NULL;
    int shift = 0;
    for (int i = 0; i < 6; i++)
        if (gyre_text_same(text, words[i])) {
            *value_out = i % 2;
            return 1;
        }
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return 0;
    if (*end != '\0')
        shift = gyre_text_same(end, "K")   ? 10
                : gyre_text_same(end, "M") ? 20
                : gyre_text_same(end, "G") ? 30
                                           : -1;
    if (shift < 0 || value > INT64_MAX >> shift || value < INT64_MIN >> shift)
        return 0;
    *value_out = (int64_t)value * ((int64_t)1 << shift);
    return 1;
}

static ncclResult_t read_number(ncclParamHandle_t handle, int64_t lowest, uint64_t highest,
                                const void *out, int64_t *value_out)
{
    char text[VALUE_BYTES] = "";
    char cause[VALUE_BYTES + 160];
    const char *name = name_of(handle);
    if (out == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclParamGet: out is NULL");
    const ncclResult_t result = read_text(name, text);
    if (result != ncclSuccess)
        return result;
    if (parse(text, value_out) && *value_out >= lowest &&
        (*value_out < 0 || (uint64_t)*value_out <= highest))
        return ncclSuccess;
    snprintf(cause, sizeof(cause), "%s is \"%s\", no number of %" PRId64 "..%" PRIu64, name, text,
             lowest, highest);
    return nccl_refuse(ncclInvalidArgument, cause);
}

#define GET_NUMBER(name, type, lowest, highest)                                   \
    NCCL_EXPORT ncclResult_t pncclParamGet##name(ncclParamHandle_t h, type *out)  \
    {                                                                             \
        int64_t value = 0;                                                        \
        const ncclResult_t result = read_number(h, lowest, highest, out, &value); \
        if (result == ncclSuccess)                                                \
            *out = (type)value;                                                   \
        return result;                                                            \
    }

GET_NUMBER(I8, int8_t, INT8_MIN, INT8_MAX)
GET_NUMBER(I16, int16_t, INT16_MIN, INT16_MAX)
GET_NUMBER(I32, int32_t, INT32_MIN, INT32_MAX)
GET_NUMBER(I64, int64_t, INT64_MIN, INT64_MAX)
GET_NUMBER(U8, uint8_t, 0, UINT8_MAX)
GET_NUMBER(U16, uint16_t, 0, UINT16_MAX)
GET_NUMBER(U32, uint32_t, 0, UINT32_MAX)
GET_NUMBER(U64, uint64_t, 0, UINT64_MAX)

NCCL_EXPORT ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out)
{
    static _Thread_local char text[VALUE_BYTES];
    if (out == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclParamGetStr: out is NULL");
    const ncclResult_t result = read_text(name_of(h), text);
    if (result == ncclSuccess)
        *out = text;
    return result;
}

NCCL_EXPORT ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len)
{
    char text[VALUE_BYTES] = "";
    if (out == NULL || len == NULL || maxLen < 0)
        return nccl_refuse(ncclInvalidArgument, "ncclParamGet: out or len is NULL, or maxLen < 0");
    const ncclResult_t result = read_text(name_of(h), text);
    if (result != ncclSuccess)
        return result;
    const size_t n_bytes = strlen(text) + 1;
    if (n_bytes > (size_t)maxLen)
        return nccl_refuse(ncclInvalidArgument, "ncclParamGet: maxLen is too small for the value");
    memcpy(out, text, n_bytes);
    *len = (int)n_bytes;
    return ncclSuccess;
}

NCCL_EXPORT ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen)
{
    static _Thread_local char text[VALUE_BYTES];
    if (value == NULL || valueLen == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclParamGetParameter: value or valueLen is NULL");
    const char *name = find(key);
    const ncclResult_t result = name == NULL ? ncclInvalidArgument : read_text(name, text);
    if (result != ncclSuccess)
        return result;
    *value = text;
    *valueLen = (int)strlen(text);
    return ncclSuccess;
}

NCCL_EXPORT ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen)
{
    static _Thread_local const char *keys[MAX_KEYS];
    int n = 0;
    if (table == NULL || tableLen == NULL)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclParamGetAllParameterKeys: table or tableLen is NULL");
    while (n < MAX_KEYS && (keys[n] = gyre_get_variable_name(n)) != NULL)
        n++;
    *table = keys;
    *tableLen = n;
    return ncclSuccess;
}

/* gyre.h cannot log, so standard error. */
NCCL_EXPORT void pncclParamDumpAll(void)
{
    char text[VALUE_BYTES];
    const char *name;
    for (int i = 0; (name = gyre_get_variable_name(i)) != NULL; i++)
        if (gyre_get_variable(name, text, sizeof(text)) == GYRE_SUCCESS)
            fprintf(stderr, "%s=%s\n", name, text);
}

NCCL_PARAM_FUNCTIONS(NCCL_ALIAS)
