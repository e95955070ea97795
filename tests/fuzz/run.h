/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that all ranks share, how a failure is reported, and the watchdog that ends a run in
 * which no rank goes on.
 */
#ifndef GYRE_TESTS_FUZZ_RUN_H
#define GYRE_TESTS_FUZZ_RUN_H

#include "tests/fuzz/options.h"
#include "tests/fuzz/rank.h"

struct fuzz_shared {
    /* World communicator i, from 1 on, is made with ids[i % 2]; its rank 0 writes n_ids = i once
     * the id is there. When number i + 2 overwrites ids[i % 2], no rank reads it: all have joined
     * number i + 1. */
    gyre_unique_id ids[2];
    atomic_long n_ids;
    /* When the rank last made progress, in CLOCK_MONOTONIC; 0 = not begun, or done. */
    _Atomic uint64_t progress_ns[FUZZ_MAX_RANKS];
    /* Of the first failure, which its finder reports. */
    atomic_int verdict;
    /* At a hang, one after the other prints. */
    atomic_int is_printing, n_printed, n_running;
    atomic_int n_done; /* ranks that have destroyed all their communicators */
    atomic_long n_elems, n_rank_calls, n_comms, n_windows, n_graphs;
};
extern struct fuzz_shared *fuzz_shared;

/** CLOCK_MONOTONIC. */
uint64_t fuzz_now_ns(void);

extern const char *const fuzz_collective_names[FUZZ_N_COLLECTIVES];

/** Ends the process with `verdict`. The first rank to fail prints everything; a later one prints a
 * line, because its failure may be a consequence. @rank: NULL when no rank has begun. */
_Noreturn void fuzz_fail(const struct fuzz_rank *rank, enum fuzz_exit verdict, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));

/** Else the run fails with gyre's cause. */
#define FUZZ_TRY(rank, expression)                                                               \
    do {                                                                                         \
        const gyre_status status_ = (expression);                                                \
        if (status_ != GYRE_SUCCESS)                                                             \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s: %s", #expression, gyre_status_name(status_), \
                      gyre_last_error());                                                        \
    } while (0)

/** For a function of the device's table. */
#define FUZZ_TRY_DEVICE(rank, expression)                                    \
    do {                                                                     \
        const char *failure_ = (expression);                                 \
        if (failure_ != NULL)                                                \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s", #expression, failure_); \
    } while (0)

/** A call in one line. */
void fuzz_describe(const struct fuzz_rank *rank, const struct fuzz_call *call, char *text_out,
                   size_t n_bytes);

/** To stderr. */
void fuzz_print_command(void);

/** Until the process ends. Signals that end a process then print a backtrace. @ranks: live as long
 * as the process. */
void fuzz_watchdog_start(struct fuzz_rank *ranks, int n_ranks);

/** 0: none has begun, or all are done. */
uint64_t fuzz_watchdog_newest_ns(void);

/** Returns the status to exit with. */
int fuzz_ranks_run(void);

#endif
