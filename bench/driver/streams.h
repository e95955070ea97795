/* SPDX-License-Identifier: Apache-2.0
 *
 * The standard streams of a program, at its start and at its end.
 */
#ifndef GYRE_BENCH_STREAMS_H
#define GYRE_BENCH_STREAMS_H

#include "core/base/status.h"

/** bench_streams_open - first thing in main(): a standard stream that is closed becomes /dev/null.
 * Else the next socket would take its number, and what is printed would go to a peer. Writing past
 * the limit of a file's size becomes an error of that write. */
void bench_streams_open(void);

/** bench_streams_flush - write what was printed so far. Errors: SYSTEM. */
gyre_status bench_streams_flush(void);

/** bench_streams_close - last thing in main(): what was printed is lost unless all of it was
 * written, and says so on standard error.
 * Returns the exit status: @exit_status, or 1 in place of 0 if output was lost. */
int bench_streams_close(const char *program, int exit_status);

#endif
