/* SPDX-License-Identifier: Apache-2.0
 *
 * How failures travel: whoever detects one formats the cause with the values that matter
 * (gyre_fail), whoever passes it on adds only what the callee could not know (gyre_fail_context).
 * The cause text lives in the thread until the next failure on it.
 */
#ifndef GYRE_BASE_STATUS_H
#define GYRE_BASE_STATUS_H

#include "core/gyre.h"

#define GYRE_CAUSE_MAX_BYTES 1024

/** gyre_fail - record a cause on this thread and return `status`, for `return gyre_fail(...)`. A
 * newline at its end is left out. */
gyre_status gyre_fail(gyre_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** gyre_fail_errno - as gyre_fail(GYRE_ERROR_SYSTEM), with ": strerror (errno N)" appended;
 * ENOMEM becomes OUT_OF_MEMORY and ETIMEDOUT becomes TIMEOUT. */
gyre_status gyre_fail_errno(int error_number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** gyre_fail_context - put "text: " before the cause already recorded; returns `status`. */
gyre_status gyre_fail_context(gyre_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** gyre_cause - this thread's cause text; "" if none. */
const char *gyre_cause(void);

/** gyre_set_cause - take over a cause recorded elsewhere (another thread, a communicator). */
void gyre_set_cause(const char *text);

/** Return from the calling function if `expr` fails. */
#define GYRE_TRY(expr)                          \
    do {                                        \
        const gyre_status try_status_ = (expr); \
        if (try_status_ != GYRE_SUCCESS)        \
            return try_status_;                 \
    } while (0)

/** Go to `label` if `expr` fails, with the status in the variable `status`. */
#define GYRE_TRY_GOTO(status, expr, label) \
    do {                                   \
        (status) = (expr);                 \
        if ((status) != GYRE_SUCCESS)      \
            goto label;                    \
    } while (0)

#endif
