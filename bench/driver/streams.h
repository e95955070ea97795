/* SPDX-License-Identifier: Apache-2.0
 *
 * The standard streams of a program, at its start and at its end.
 */
#ifndef GYRE_BENCH_STREAMS_H
#define GYRE_BENCH_STREAMS_H

#include "core/foundation/base/status.h"

/** bench_streams_open - closed standard streams on /dev/null: otherwise the next socket would get
 * the number, and printed text would go to a peer. Call it first in main(). */
void bench_streams_open(void);

/** bench_streams_flush - Errors: SYSTEM. */
gyre_status bench_streams_flush(void);

/** bench_streams_close - call it last in main(). Returns @exit_status, or 1 in place of 0 if output
 * was lost, which is printed on standard error. */
int bench_streams_close(const char *program, int exit_status);

#endif
