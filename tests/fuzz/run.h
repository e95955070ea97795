/* SPDX-License-Identifier: Apache-2.0
 *
 * A run: the memory that all ranks share, whether they are threads or processes, how a failure is
 * reported, and the watchdog that ends a run in which no rank goes on, after it has printed where
 * every rank and thread is.
 */
#ifndef GYRE_TESTS_FUZZ_RUN_H
#define GYRE_TESTS_FUZZ_RUN_H

#include "core/gyre.h"
#include "tests/fuzz/options.h"
#include "tests/fuzz/rank.h"

#include <stdatomic.h>

struct fuzz_shared {
    /* World communicator number i, from 1 on, is made with ids[i % 2]; its rank 0 writes n_ids = i
     * once the id is there. No rank still reads ids[i % 2] when number i + 2 overwrites it: all
     * ranks have joined number i + 1 then. */
    gyre_unique_id ids[2];
    atomic_long n_ids;
    /* By rank of the job: when the rank last made progress, in CLOCK_MONOTONIC; 0 = it has not
     * begun, or is done. */
    _Atomic uint64_t progress_ns[FUZZ_MAX_RANKS];
    /* The status of the first failure: its finder reports it in full. */
    atomic_int verdict;
    /* At a hang, processes print one after the other. */
    atomic_int is_printing, n_printed, n_running;
    atomic_int n_done; /* ranks that have destroyed all their communicators */
    atomic_long n_elems, n_rank_calls, n_comms, n_windows, n_graphs;
};
extern struct fuzz_shared *fuzz_shared;

/** fuzz_now_ns - CLOCK_MONOTONIC. */
uint64_t fuzz_now_ns(void);

extern const char *const fuzz_collective_names[FUZZ_N_COLLECTIVES];

/** fuzz_fail - report a failure and end the process with `verdict`. The first rank to fail prints
 * everything; a later one prints a line, because its failure may be a consequence.
 * @rank: NULL when no rank has begun. */
_Noreturn void fuzz_fail(const struct fuzz_rank *rank, enum fuzz_exit verdict, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));

/** The call succeeds; else the run fails with gyre's cause. */
#define FUZZ_TRY(rank, expression)                                                               \
    do {                                                                                         \
        const gyre_status status_ = (expression);                                                \
        if (status_ != GYRE_SUCCESS)                                                             \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s: %s", #expression, gyre_status_name(status_), \
                      gyre_last_error());                                                        \
    } while (0)

/** The same for a function of the device's table. */
#define FUZZ_TRY_DEVICE(rank, expression)                                    \
    do {                                                                     \
        const char *failure_ = (expression);                                 \
        if (failure_ != NULL)                                                \
            fuzz_fail((rank), FUZZ_FAILED, "%s: %s", #expression, failure_); \
    } while (0)

/** fuzz_describe - a call in one line. */
void fuzz_describe(const struct fuzz_rank *rank, const struct fuzz_call *call, char *text_out,
                   size_t n_bytes);

/** fuzz_print_rank - where the rank is, and the calls of its round, to stderr. */
void fuzz_print_rank(const struct fuzz_rank *rank);

/** fuzz_print_command - how to repeat the run, to stderr. */
void fuzz_print_command(void);

/** fuzz_watchdog_start - watch this process's ranks until the process ends. Signals that end a
 * process print a backtrace from here on. @ranks: they live as long as the process. */
void fuzz_watchdog_start(struct fuzz_rank *ranks, int n_ranks);

/** fuzz_watchdog_newest_ns - when a rank of the run last went on; 0: none has begun, or all are
 * done. */
uint64_t fuzz_watchdog_newest_ns(void);

/** fuzz_ranks_run - run them all. Returns the status to exit with. */
int fuzz_ranks_run(void);

#endif
