/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials: every way to carry out one call (algorithm, protocol, channels, tile), timed in turns in
 * one run. --predict and tune are built on them.
 */
#ifndef GYRE_BENCH_TRIALS_H
#define GYRE_BENCH_TRIALS_H

#include "bench/driver/rank.h"
#include "core/engine/plan/plan.h"

#define BENCH_MAX_TRIALS 2048

struct bench_trial {
    struct bench_case what;
    struct gyre_choice choice;
    bool is_tuned;   /* the tuner's own choice; the first trial of its case */
    bool is_dropped; /* too slow for more rounds; `us` is then from the first calls only */
    double us;       /* median over the rounds of each round's median; a call counts as long as its
                        slowest rank */
    double predicted_us; /* 0 = no prediction */
};

struct bench_trials {
    struct bench_trial trials[BENCH_MAX_TRIALS];
    int n_trials;
    /* A trial is dropped if its first calls are at least this many times as slow as the fastest
     * trial of its case. The tuner's own choice is never dropped. 0 = drop none. */
    double most_slowness;
};

/** bench_add_trials - add the trials of one case: the tuner's choice, then for each algorithm and
 * protocol that the communicator may use a few numbers of channels and sizes of tiles. No choice is
 * added twice. Calls are planned as if their results lay in no window. All ranks add the same
 * trials.
 * Errors: INVALID_ARGUMENT (the table of trials is full), or the reason why the tuner has no
 * choice. */
gyre_status bench_add_trials(const struct bench_rank *rank, const struct bench_case *what,
                             struct bench_trials *trials);

/** bench_time_trials - time all trials and fill in `us`. Collective; all ranks get the same result.
 * Each call is waited for, or the calls are captured in a graph (-G). Where a call has a root, and
 * ranks could run ahead of each other, a small all-reduce outside of the timed part keeps them
 * together. Afterwards the communicator plans as before. */
gyre_status bench_time_trials(struct bench_rank *rank, struct bench_trials *trials);

#endif
