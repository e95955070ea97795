/* SPDX-License-Identifier: Apache-2.0
 *
 * A program's standard streams.
 */
#ifndef GYRE_BENCH_STREAMS_H
#define GYRE_BENCH_STREAMS_H

#include "core/foundation/base/status.h"

/** Opens closed standard streams on /dev/null, as the next socket would get their number and send
 * printed text to a peer. First in main(). */
void bench_streams_open(void);

/** Errors: SYSTEM. */
gyre_status bench_streams_flush(void);

/** Last in main(). Returns @exit_status, or 1 for 0 if output was lost, after printing so. */
int bench_streams_close(const char *program, int exit_status);

#endif
