/* SPDX-License-Identifier: Apache-2.0
 *
 * The cause text of each thread, and the names of statuses.
 */
#include "core/base/status.h"

#include "core/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char cause[GYRE_CAUSE_MAX_BYTES];

gyre_status gyre_fail(gyre_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gyre_text_vformat(cause, sizeof(cause), format, args);
    va_end(args);
    /* A cause is one line. The messages of some libraries (libxml2, json-c) end with a newline. */
    const size_t n_cause = strlen(cause);
    if (n_cause > 0 && cause[n_cause - 1] == '\n')
        cause[n_cause - 1] = '\0';
    return status;
}

gyre_status gyre_fail_errno(int error_number, const char *format, ...)
{
    char text[GYRE_CAUSE_MAX_BYTES - 96];
    va_list args;
    va_start(args, format);
    gyre_text_vformat(text, sizeof(text), format, args);
    va_end(args);
    const char *words = gyre_text_error(error_number);
    const gyre_status status = error_number == ENOMEM      ? GYRE_ERROR_OUT_OF_MEMORY
                               : error_number == ETIMEDOUT ? GYRE_ERROR_TIMEOUT
                                                           : GYRE_ERROR_SYSTEM;
    return gyre_fail(status, "%s: %s (errno %d)", text, words, error_number);
}

gyre_status gyre_fail_context(gyre_status status, const char *format, ...)
{
    char context[GYRE_CAUSE_MAX_BYTES / 2];
    char before[GYRE_CAUSE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    gyre_text_vformat(context, sizeof(context), format, args);
    va_end(args);
    memcpy(before, cause, sizeof(before));
    /* A cause too long to keep whole loses its end, never its context. */
    const size_t n_context = strlen(context);
    snprintf(cause, sizeof(cause), "%s: %.*s", context, (int)(sizeof(cause) - n_context - 3),
             before);
    return status;
}

const char *gyre_cause(void)
{
    return cause;
}

void gyre_set_cause(const char *text)
{
    snprintf(cause, sizeof(cause), "%s", text);
}

const char *gyre_last_error(void)
{
    return cause;
}

const char *gyre_status_name(gyre_status status)
{
    switch (status) {
    case GYRE_SUCCESS:
        return "success";
    case GYRE_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case GYRE_ERROR_INVALID_USAGE:
        return "invalid usage";
    case GYRE_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case GYRE_ERROR_SYSTEM:
        return "system error";
    case GYRE_ERROR_DEVICE:
        return "device error";
    case GYRE_ERROR_REMOTE:
        return "remote error";
    case GYRE_ERROR_TIMEOUT:
        return "timeout";
    case GYRE_ERROR_UNSUPPORTED:
        return "unsupported";
    case GYRE_ERROR_ABORTED:
        return "aborted";
    case GYRE_ERROR_INTERNAL:
        return "internal error";
    case GYRE_IN_PROGRESS:
        return "in progress";
    }
    return "unknown status";
}
