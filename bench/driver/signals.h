/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM end the process as usual. While a table runs, the first signal ends the table
 * after the current size, and the rows so far are reported. If that takes more than a few seconds,
 * or a second signal comes, the process ends at once. In each case the parent sees that the signal
 * ended it.
 *
 * SIGUSR1: the process prints on standard error where the ranks are in their calls, and goes on.
 */
#ifndef GYRE_BENCH_SIGNALS_H
#define GYRE_BENCH_SIGNALS_H

#include "core/gyre.h"

#include <stdbool.h>

/** bench_interrupt_open / close - between these calls the first signal only sets
 * bench_interrupt_number() and starts the alarm that ends the process. After a first signal open
 * does nothing. Called by one thread of the process. */
void bench_interrupt_open(void);
void bench_interrupt_close(void);

/** bench_interrupt_number - 0 = none. Any thread. */
int bench_interrupt_number(void);

/** bench_interrupt_exit - end the process by the signal that came, so that shells, mpirun and
 * schedulers know that the run is incomplete. All output must be flushed before. Returns if no
 * signal came. */
void bench_interrupt_exit(void);

struct bench_dump;

/** bench_dump_open / close - from open on SIGUSR1 no longer ends the process, also after close. A
 * thread waits for the signal, so a dump comes also while all ranks wait. Called by one thread of
 * the process. Errors: SYSTEM (no thread). */
gyre_status bench_dump_open(struct bench_dump **dump_out);
void bench_dump_close(struct bench_dump *dump);

/** bench_dump_set - NULL: no communicator, which is printed. Waits for a dump that is being
 * printed, so that the old communicator can be destroyed. @dump: or NULL. */
void bench_dump_set(struct bench_dump *dump, gyre_comm *comm);

#endif
