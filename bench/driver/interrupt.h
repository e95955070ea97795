/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM. They end the process, as everywhere, except while a sweep asks after every
 * size: then the first one ends the sweep with the rows so far, within seconds, and the second one
 * ends the process at once. In each case the parent sees a process that the signal has ended.
 */
#ifndef GYRE_BENCH_INTERRUPT_H
#define GYRE_BENCH_INTERRUPT_H

#include <stdbool.h>

/** bench_interrupt_open - until bench_interrupt_close() the first of these signals only makes
 * bench_interrupt_number() true, and starts a clock: a few seconds later the process ends by the
 * signal, wherever it is. A signal that was ignored when the process began stays ignored. Once
 * there was one, does nothing. By one thread of the process. */
void bench_interrupt_open(void);
void bench_interrupt_close(void);

/** bench_interrupt_number - the signal that came since the process began; 0 = none. By any thread.
 */
int bench_interrupt_number(void);

/** bench_interrupt_exit - end the process by the signal that came, if one did: what starts benches
 * (a shell, mpirun, a scheduler) then knows that the run is not whole. Everything is flushed by
 * now. Returns when there was none. */
void bench_interrupt_exit(void);

#endif
