/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends a run in which no rank goes on, after it has printed where every rank and every thread is.
 * Each process has one; they agree through the shared memory, and print one after the other.
 */
#ifndef GYRE_TESTS_FUZZ_WATCHDOG_H
#define GYRE_TESTS_FUZZ_WATCHDOG_H

#include "tests/fuzz/rank.h"

/** fuzz_watchdog_start - watch this process's ranks until the process ends. Signals that end a
 * process print a backtrace from here on. @ranks: they live as long as the process. */
void fuzz_watchdog_start(struct fuzz_rank *ranks, int n_ranks);

/** fuzz_watchdog_newest_ns - when a rank of the run last went on; 0: none has begun, or all are
 * done. */
uint64_t fuzz_watchdog_newest_ns(void);

#endif
