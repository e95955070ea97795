/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing and checking one call, on all ranks together.
 */
#ifndef GYRE_BENCH_MEASURE_H
#define GYRE_BENCH_MEASURE_H

#include "bench/driver/rank.h"
#include "core/engine/plan/plan.h"

struct bench_stats {
    size_t n_samples; /* 0: all other fields are 0 */
    double min;
    double median;
    double mean;
    double p99; /* by nearest rank */
    double max;
};

/** bench_stats_of - sorts the samples. Pure. */
struct bench_stats bench_stats_of(double *samples, size_t n);

/** bench_median_of - sorts the samples; 0 = none. Pure. */
double bench_median_of(double *samples, size_t n);

/** bench_median_of_row - keeps the order. Pure. @scratch: room for n samples. */
double bench_median_of_row(const double *samples, double *scratch, size_t n);

struct bench_timing {
    double time_us; /* mean over iterations, over ranks as -a says */
    double algbw;   /* GB/s */
    double busbw;
    int64_t n_wrong;       /* wrong elements on all ranks; -1 = not checked */
    double host_us;        /* time of the enqueue alone, over ranks as -a says; 0 = not measured */
    double launch_us;      /* -C on GPUs: time to launch an empty kernel; 0 = not measured */
    struct bench_stats us; /* of single calls, each of its slowest rank */
};

/** bench_time_graph - capture n_iters iterations of a call and time the -G replays. Local to the
 * rank. The call must have run before. @us_out: of one operation. */
gyre_status bench_time_graph(const struct bench_rank *rank, const struct bench_call *call,
                             int n_iters, double *us_out);

/** bench_measure - warm up, time and check one call, and time single calls if samples are wanted.
 * Collective; all ranks get the same result. */
gyre_status bench_measure(struct bench_rank *rank, const struct bench_call *call,
                          bool wants_samples, struct bench_timing *timing_out);

/** bench_plan_of - zero if unknown. It may simulate the call, which takes memory and time, so only
 * rank 0 asks. */
struct gyre_plan_summary bench_plan_of(const struct bench_rank *rank,
                                       const struct bench_call *call);

/** bench_max_over_ranks - of each of n values. Collective. */
gyre_status bench_max_over_ranks(struct bench_rank *rank, double *values, size_t n);

/** bench_is_checked - not with -c 0, and not in place where that result is undefined. Pure. */
bool bench_is_checked(const struct bench_rank *rank, const struct bench_call *call);

/** bench_check_all - carry the call out by @run on new inputs, and count the wrong elements on all
 * ranks. Collective. */
gyre_status bench_check_all(struct bench_rank *rank, const struct bench_call *call,
                            gyre_status (*run)(void *context, const struct bench_call *call),
                            void *context, int64_t *n_wrong_out);

#endif
