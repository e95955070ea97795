/* SPDX-License-Identifier: Apache-2.0
 *
 * Times and checks one call on all ranks.
 */
#ifndef GYRE_BENCH_MEASURE_H
#define GYRE_BENCH_MEASURE_H

#include "bench/driver/rank.h"

struct bench_stats {
    size_t n_samples; /* 0 = no other field is set */
    double min;
    double median;
    double mean;
    double p99; /* nearest rank */
    double max;
};

/** Sorts the samples. Pure. */
struct bench_stats bench_stats_of(double *samples, size_t n);

/** Sorts the samples. 0 = none. Pure. */
double bench_median_of(double *samples, size_t n);

/** Keeps the order of the samples. @scratch: n samples. Pure. */
double bench_median_of_row(const double *samples, double *scratch, size_t n);

struct bench_timing {
    double time_us; /* mean over iterations, over ranks by -a */
    double algbw;   /* GB/s */
    double busbw;
    int64_t n_wrong;       /* elements on all ranks, -1 = not checked */
    double host_us;        /* of the enqueue, over ranks by -a, 0 = not measured */
    double launch_us;      /* -C on GPUs: of an empty kernel, 0 = not measured */
    struct bench_stats us; /* of single calls on their slowest ranks */
};

/** Captures n_iters iterations and times the replays of -G, on this rank alone. The call must have
 * run before. @us_out: of one operation. */
gyre_status bench_time_graph(const struct bench_rank *rank, const struct bench_call *call,
                             int n_iters, double *us_out);

/** Warms up, times and checks a call, and samples single calls on request. Collective, with one
 * result on all ranks. */
gyre_status bench_measure(struct bench_rank *rank, const struct bench_call *call,
                          bool wants_samples, struct bench_timing *timing_out);

/** The plan of the call, zero if unknown. Only rank 0 asks, as it may simulate the call. */
struct gyre_plan_summary bench_plan_of(const struct bench_rank *rank,
                                       const struct bench_call *call);

/** Each value becomes its maximum over the ranks. Collective. */
gyre_status bench_max_over_ranks(struct bench_rank *rank, double *values, size_t n);

/** False with -c 0, and where the result in place is undefined. Pure. */
bool bench_is_checked(const struct bench_rank *rank, const struct bench_call *call);

/** Runs the call by @run, NULL = gyre, on new inputs and counts wrong elements on all ranks.
 * Collective. */
gyre_status bench_check_all(struct bench_rank *rank, const struct bench_call *call,
                            gyre_status (*run)(void *context, const struct bench_call *call),
                            void *context, int64_t *n_wrong_out);

/* Calls captured once and replayed. Without CUDA all functions return UNSUPPORTED. */
struct bench_graph;

/** Captures the stream until bench_graph_end(). Calls must have run before, since loading and
 * allocating cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** Needed after a failed call too, before the stream can be used. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** The launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
