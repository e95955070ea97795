/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/status.h"

#include "core/foundation/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char cause[GYRE_CAUSE_MAX_BYTES];
static _Thread_local bool is_limit;

gyre_status gyre_fail(gyre_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gyre_text_vformat(cause, sizeof(cause), format, args);
    va_end(args);
    is_limit = false;
    /* libxml2's and json-c's messages end with a newline. */
    const size_t n_cause = strlen(cause);
    if (n_cause > 0 && cause[n_cause - 1] == '\n')
        cause[n_cause - 1] = '\0';
    return status;
}

gyre_status gyre_fail_errno(int error_number, const char *format, ...)
{
    char text[GYRE_CAUSE_MAX_BYTES - 256];
    char remedy[128] = "";
    struct rlimit files = {0, 0};
    va_list args;
    va_start(args, format);
    gyre_text_vformat(text, sizeof(text), format, args);
    va_end(args);
    const char *words = gyre_text_error(error_number);
    const gyre_status status = error_number == ENOMEM      ? GYRE_ERROR_OUT_OF_MEMORY
                               : error_number == ETIMEDOUT ? GYRE_ERROR_TIMEOUT
                                                           : GYRE_ERROR_SYSTEM;
    if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        snprintf(remedy, sizeof(remedy),
                 ": this process has all the descriptors that it may have; raise ulimit -n, which "
                 "is %llu",
                 (unsigned long long)files.rlim_cur);
    else if (error_number == ENFILE)
        snprintf(remedy, sizeof(remedy),
                 ": this host has all the descriptors that it may have; raise sysctl fs.file-max");
    gyre_fail(status, "%s: %s (errno %d)%s", text, words, error_number, remedy);
    is_limit = error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM ||
               error_number == ENOBUFS;
    return status;
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
    /* A long cause loses its end, not its context. */
    const size_t n_context = strlen(context);
    snprintf(cause, sizeof(cause), "%s: %.*s", context, (int)(sizeof(cause) - n_context - 3),
             before);
    return status;
}

bool gyre_cause_is_limit(gyre_status status)
{
    return is_limit && (status == GYRE_ERROR_SYSTEM || status == GYRE_ERROR_OUT_OF_MEMORY);
}

const char *gyre_cause(void)
{
    return cause;
}

void gyre_set_cause(const char *text)
{
    snprintf(cause, sizeof(cause), "%s", text);
    is_limit = false;
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
