/* SPDX-License-Identifier: Apache-2.0
 *
 * Every way to carry out one call, timed in turns in one run: what --predict and tune stand on.
 */
#ifndef GYRE_BENCH_TRIALS_H
#define GYRE_BENCH_TRIALS_H

#include "bench/driver/rank.h"
#include "core/plan/plan.h"

#define BENCH_MAX_TRIALS 2048

struct bench_trial {
    struct bench_case what;
    struct gyre_choice choice;
    bool is_tuned;       /* the tuner's; the first of its case */
    bool is_dropped;     /* after a first look, which is all that `us` stands on */
    double us;           /* median over rounds of the round's median; of a call, the longest rank */
    double predicted_us; /* 0 = no prediction */
};

struct bench_trials {
    struct bench_trial trials[BENCH_MAX_TRIALS];
    int n_trials;
    /* Others than the tuner's that are at least so many times as slow as the fastest of their case
     * at two first looks are dropped; 0 = none are. */
    double most_slowness;
};

/** bench_add_trials - of one case: the tuner's choice, then for each algorithm and protocol that
 * the communicator may use (GYRE_ALGO, GYRE_PROTO and GYRE_PATH count) a few channels and tiles,
 * none of them twice, as if results lay in no window. The same on all ranks.
 * Errors: INVALID_ARGUMENT (there is no more room), or why the tuner has no choice. */
gyre_status bench_add_trials(const struct bench_rank *rank, const struct bench_case *what,
                             struct bench_trials *trials);

/** bench_time_trials - fill in us; collective; the same result on all ranks. Calls are waited for
 * one by one, or captured (-G); of those waited for, where a call does not make all ranks wait for
 * each other (there is a root), something else does in between. The communicator is as tuned
 * afterwards. */
gyre_status bench_time_trials(struct bench_rank *rank, struct bench_trials *trials);

#endif
