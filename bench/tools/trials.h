/* SPDX-License-Identifier: Apache-2.0
 *
 * Every way to carry out one call (algorithm, protocol, channels, tile), timed in turns in one run.
 * --predict and tune are built on them.
 */
#ifndef GYRE_BENCH_TRIALS_H
#define GYRE_BENCH_TRIALS_H

#include "bench/driver/rank.h"
#include "core/engine/plan/plan.h"

#define BENCH_MAX_TRIALS 2048

struct bench_trial {
    struct bench_case what;
    struct gyre_choice choice;
    bool is_tuned;       /* the tuner's own choice; first of its case */
    bool is_dropped;     /* too slow; `us` is from the first calls only */
    double us;           /* median over rounds of medians; the slowest rank counts */
    double predicted_us; /* 0 = no prediction */
};

struct bench_trials {
    struct bench_trial trials[BENCH_MAX_TRIALS];
    int n_trials;
    /* Drop a trial if its first calls are so many times as slow as the fastest trial of its case,
     * unless it is the tuner's choice. 0 = drop none. */
    double most_slowness;
};

/** bench_add_trials - the tuner's choice, then for each possible algorithm and protocol a few
 * numbers of channels and sizes of tiles, each choice once. All ranks add the same trials. Errors:
 * INVALID_ARGUMENT (the table of trials is full), or the reason why the tuner has no choice. */
gyre_status bench_add_trials(const struct bench_rank *rank, const struct bench_case *what,
                             struct bench_trials *trials);

/** bench_time_trials - the same `us` on all ranks. Collective. Each call is waited for, or the
 * calls are captured in a graph (-G). Where ranks could run ahead of a call with a root, a small
 * all-reduce keeps them together. Afterwards the communicator plans as before. */
gyre_status bench_time_trials(struct bench_rank *rank, struct bench_trials *trials);

/** bench_predict - --predict: for every size the predicted time, the measured time, and the fastest
 * of the other choices. Rank 0 prints. Collective. */
gyre_status bench_predict(struct bench_rank *rank);

#endif
