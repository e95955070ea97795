/* SPDX-License-Identifier: Apache-2.0
 *
 * The function that detects a failure writes the cause with the values that matter, its callers
 * only what it could not know. Each thread keeps its cause until its next failure.
 */
#ifndef GYRE_BASE_STATUS_H
#define GYRE_BASE_STATUS_H

#include "core/gyre.h"

#include <stdbool.h>

#define GYRE_CAUSE_MAX_BYTES 1024

gyre_status gyre_fail(gyre_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Adds ": strerror (errno N)", and a remedy for descriptors. SYSTEM, OUT_OF_MEMORY or TIMEOUT. */
gyre_status gyre_fail_errno(int error_number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Puts "text: " before the cause. Returns `status`. */
gyre_status gyre_fail_context(gyre_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Did descriptors, memory or buffers run out? Then waiting for other ranks does not help. */
bool gyre_cause_is_limit(gyre_status status);

/** "" = none. */
const char *gyre_cause(void);

/** For a text recorded elsewhere. */
void gyre_set_cause(const char *text);

#define GYRE_TRY(expr)                          \
    do {                                        \
        const gyre_status try_status_ = (expr); \
        if (try_status_ != GYRE_SUCCESS)        \
            return try_status_;                 \
    } while (0)

#define GYRE_TRY_GOTO(status, expr, label) \
    do {                                   \
        (status) = (expr);                 \
        if ((status) != GYRE_SUCCESS)      \
            goto label;                    \
    } while (0)

#endif
