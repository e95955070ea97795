/* SPDX-License-Identifier: Apache-2.0
 *
 * A child process that writes to its parent, for programs and drivers that may hang.
 */
#ifndef GYRE_BENCH_DOCTOR_CHILD_H
#define GYRE_BENCH_DOCTOR_CHILD_H

#include "core/foundation/base/status.h"

#include <sys/types.h>

struct bench_child {
    pid_t pid; /* also of its process group */
    int fd;    /* what it writes */
};

/** @run: in the child, which ends when it returns. Errors: SYSTEM. */
gyre_status bench_child_start(void (*run)(int fd, const void *argument), const void *argument,
                              struct bench_child *child_out);

/** Returns what read() does, or -1 after @timeout_ms. */
ssize_t bench_child_read(const struct bench_child *child, int timeout_ms, void *bytes_out,
                         size_t n_bytes);

/** Reads a whole record, which is below PIPE_BUF and so written at once. @what: the child's work,
 * for the message. Errors: TIMEOUT (@silence), REMOTE. */
gyre_status bench_child_take(const struct bench_child *child, int timeout_ms, const char *silence,
                             const char *what, void *record_out, size_t record_bytes);

/** In the child, to the parent's bench_child_take(). */
void bench_child_tell(int fd, const void *record, size_t record_bytes);

/** Ends its process group. A child that hangs in a driver may outlive that and is left alone. */
void bench_child_end(const struct bench_child *child);

#endif
