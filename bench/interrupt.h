/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM. They end the process, as everywhere, except while a sweep asks after every
 * size: then the first one ends the sweep with the rows so far, the second one the process.
 */
#ifndef GYRE_BENCH_INTERRUPT_H
#define GYRE_BENCH_INTERRUPT_H

#include <stdbool.h>

/** bench_interrupt_open - until bench_interrupt_close() the first of these signals only makes
 * bench_is_interrupted() true. Once there was one, does nothing. By one thread of the process. */
void bench_interrupt_open(void);
void bench_interrupt_close(void);

/** bench_is_interrupted - has there been one since the process began? By any thread. */
bool bench_is_interrupted(void);

#endif
