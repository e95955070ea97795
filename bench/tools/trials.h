/* SPDX-License-Identifier: Apache-2.0
 *
 * Every way to carry out one call (algorithm, protocol, channels, tile), timed in turns, for
 * --predict and tune.
 */
#ifndef GYRE_BENCH_TRIALS_H
#define GYRE_BENCH_TRIALS_H

#include "bench/driver/rank.h"

#define BENCH_MAX_TRIALS 2048

struct bench_trial {
    struct bench_case what;
    struct gyre_choice choice;
    bool is_tuned;       /* tuner's choice, first of its case */
    bool is_dropped;     /* too slow, `us` is of first calls */
    double us;           /* median over rounds' medians, slowest rank */
    double predicted_us; /* 0 = none */
};

struct bench_trials {
    struct bench_trial trials[BENCH_MAX_TRIALS];
    int n_trials;
    /* Drops trials this many times slower than their case's fastest, never the tuner's. 0 =
     * none. */
    double most_slowness;
};

/** For each size of the options and each collective: the tuner's choice, then for each algorithm
 * and protocol some channels and tiles, each once and the same on all ranks. Errors:
 * INVALID_ARGUMENT (table full), or why the tuner has no choice. */
gyre_status bench_list_trials(const struct bench_rank *rank, const struct bench_case *wanted,
                              size_t n_wanted, struct bench_trials *trials);

/** The same `us` on all ranks. Collective. Calls are waited for, or captured (-G). A small
 * all-reduce keeps ranks together that could run ahead of a root. Afterwards the communicator plans
 * as before. */
gyre_status bench_time_trials(struct bench_rank *rank, struct bench_trials *trials);

/** --predict: each size's predicted, measured and fastest other time. Rank 0 prints. Collective. */
gyre_status bench_predict(struct bench_rank *rank);

#endif
