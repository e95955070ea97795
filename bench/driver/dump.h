/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGUSR1: the process prints on standard error where the ranks are in their calls, and goes on.
 */
#ifndef GYRE_BENCH_DUMP_H
#define GYRE_BENCH_DUMP_H

#include "core/gyre.h"

struct bench_dump;

/** bench_dump_open / close - from open on SIGUSR1 no longer ends the process, also after close. A
 * thread waits for the signal, so a dump comes also while all ranks wait. If the signal was ignored
 * when the process began, it stays ignored. Called by one thread of the process.
 * Errors: SYSTEM (no thread). */
gyre_status bench_dump_open(struct bench_dump **dump_out);
void bench_dump_close(struct bench_dump *dump);

/** bench_dump_set - the communicator that is asked. NULL: none, which is printed. Waits for a dump
 * that is being printed, so that the old communicator can be destroyed. @dump: or NULL. */
void bench_dump_set(struct bench_dump *dump, gyre_comm *comm);

#endif
