/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing and checking one call, on all ranks together.
 */
#ifndef GYRE_BENCH_MEASURE_H
#define GYRE_BENCH_MEASURE_H

#include "bench/driver/rank.h"
#include "bench/driver/stats.h"

struct bench_timing {
    double time_us; /* mean over iterations, then over ranks as -a says */
    double algbw;   /* GB/s */
    double busbw;
    int64_t n_wrong;       /* over all ranks; -1 = not checked */
    double launch_us;      /* with -C, on GPUs: a launch of an empty kernel; 0 = not known */
    struct bench_stats us; /* of single calls, each the longest over the ranks */
};

/** bench_time_graph - so many iterations of a call, captured once; what is timed, per operation, is
 * the -G replays. What the call loads on first use is loaded. Local. */
gyre_status bench_time_graph(const struct bench_rank *rank, const struct bench_call *call,
                             int n_iters, double *us_out);

/** bench_measure - warm up, time, sample and check one call; collective; the result is the same on
 * all ranks.
 * @wants_samples: also time single calls. */
gyre_status bench_measure(struct bench_rank *rank, const struct bench_call *call,
                          bool wants_samples, struct bench_timing *timing_out);

/** bench_max_over_ranks - in place: each of n values becomes its maximum over the ranks.
 * Collective. */
gyre_status bench_max_over_ranks(struct bench_rank *rank, double *values, size_t n);

/** bench_check_all - fill, run once with @run, and count wrong elements over all ranks. */
gyre_status bench_check_all(struct bench_rank *rank, const struct bench_call *call,
                            gyre_status (*run)(void *context, const struct bench_call *call),
                            void *context, int64_t *n_wrong_out);

#endif
