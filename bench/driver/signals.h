/* SPDX-License-Identifier: Apache-2.0
 *
 * After the first SIGINT or SIGTERM a running table ends with the current size and is reported. If
 * that takes more than a few seconds, or a second signal comes, the process ends at once. The
 * parent always sees that a signal ended it.
 *
 * SIGUSR1 prints on standard error where the ranks are in their calls.
 */
#ifndef GYRE_BENCH_SIGNALS_H
#define GYRE_BENCH_SIGNALS_H

#include "core/gyre.h"

#include <signal.h>
#include <stdbool.h>

/** Between these calls the first signal only sets bench_interrupt_number() and starts the alarm
 * that ends the process. No effect after a signal. One thread calls them. */
void bench_interrupt_open(void);
void bench_interrupt_close(void);

/* 0 = none. Written by the signal handler only. */
extern volatile sig_atomic_t bench_interrupt_number;

/** Ends the process by its signal, so that shells, mpirun and schedulers see an incomplete run.
 * Output must be flushed before. Returns without a signal. */
void bench_interrupt_exit(void);

/** SIGUSR1 no longer ends the process from open on, even after close. A thread waits for it, so it
 * works while all ranks wait. One thread calls them. Errors: SYSTEM (no thread). */
gyre_status bench_dump_open(void);
void bench_dump_close(void);

/** The communicator to print, or NULL. Waits for a running dump, so that the old one can be
 * destroyed. */
void bench_dump_set(gyre_comm *comm);

#endif
