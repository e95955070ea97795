/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM. Outside of a table of sizes both signals end the process as usual. While a
 * table runs, the first signal ends it after the current size, and the rows so far are reported. If
 * that takes more than a few seconds, or if a second signal comes, the process ends at once. In
 * each case the parent process sees that the signal ended this process.
 */
#ifndef GYRE_BENCH_INTERRUPT_H
#define GYRE_BENCH_INTERRUPT_H

#include <stdbool.h>

/** bench_interrupt_open / close - between these calls the first signal only sets
 * bench_interrupt_number() and starts an alarm of a few seconds. The alarm ends the process by the
 * signal. A signal that was ignored when the process began stays ignored. After a first signal
 * bench_interrupt_open() does nothing. Called by one thread of the process. */
void bench_interrupt_open(void);
void bench_interrupt_close(void);

/** bench_interrupt_number - the signal that came since the process began; 0 = none. Any thread may
 * call it. */
int bench_interrupt_number(void);

/** bench_interrupt_exit - end the process by the signal that came. Shells, mpirun and schedulers
 * then know that the run is incomplete. All output must be flushed before. Returns if no signal
 * came. */
void bench_interrupt_exit(void);

#endif
