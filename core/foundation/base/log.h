/* SPDX-License-Identifier: Apache-2.0
 *
 * A line is "host:pid:tid [rank] GYRE LEVEL text".
 */
#ifndef GYRE_BASE_LOG_H
#define GYRE_BASE_LOG_H

#include "core/foundation/base/status.h"

/* clang-format off */
#define GYRE_LOG_SUBSYS_TABLE(X)                                                          \
    X(INIT) X(COLL) X(P2P) X(SHM) X(NET) X(GRAPH) X(TUNING) X(ENV) X(ALLOC) X(CALL)      \
    X(PROXY) X(BOOTSTRAP) X(REG) X(DESTROY)
/* clang-format on */

/* The last words are NCCL's; they select nothing. */
#define GYRE_LOG_SUBSYS_WORD(name) #name " "
#define GYRE_LOG_SUBSYS_WORDS \
    GYRE_LOG_SUBSYS_TABLE(GYRE_LOG_SUBSYS_WORD) "ALL ALLOC_HOST NVLS PROFILE RAS"

enum gyre_log_subsys {
#define GYRE_LOG_SUBSYS_ENUM(name) GYRE_LOG_##name,
    GYRE_LOG_SUBSYS_TABLE(GYRE_LOG_SUBSYS_ENUM)
#undef GYRE_LOG_SUBSYS_ENUM
        GYRE_LOG_N_SUBSYS
};

enum gyre_log_level {
    GYRE_LOG_NONE,
    GYRE_LOG_VERSION,
    GYRE_LOG_WARN,
    GYRE_LOG_INFO,
    GYRE_LOG_TRACE
};

bool gyre_log_enabled(enum gyre_log_level level, enum gyre_log_subsys subsys);

/** Keeps this thread's cause text and errno. */
void gyre_log(enum gyre_log_level level, enum gyre_log_subsys subsys, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Once for the process. @file: NULL or "" = stderr; expands %h and %p. */
gyre_status gyre_log_configure(const char *level, const char *subsystems, const char *file);

/** For this thread's lines; -1 = none. */
void gyre_log_set_rank(int rank);

#define GYRE_WARN(...)         gyre_log(GYRE_LOG_WARN, GYRE_LOG_INIT, __VA_ARGS__)
#define GYRE_INFO(subsys, ...) gyre_log(GYRE_LOG_INFO, GYRE_LOG_##subsys, __VA_ARGS__)

#endif
