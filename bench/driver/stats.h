/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics of measured times. Pure.
 */
#ifndef GYRE_BENCH_STATS_H
#define GYRE_BENCH_STATS_H

#include <stddef.h>

struct bench_stats {
    size_t n_samples; /* 0: nothing was sampled, the rest is 0 */
    double min;
    double median;
    double mean;
    double p99; /* nearest rank: the largest sample when there are fewer than 100 */
    double max;
};

/** bench_stats_of - @samples: n values, sorted by this call. */
struct bench_stats bench_stats_of(double *samples, size_t n);

/** bench_median_of - @samples: sorted by this call; 0 for none. */
double bench_median_of(double *samples, size_t n);

#endif
