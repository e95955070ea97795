/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics of measured times. Pure.
 */
#ifndef GYRE_BENCH_STATS_H
#define GYRE_BENCH_STATS_H

#include <stddef.h>

struct bench_stats {
    size_t n_samples; /* 0: there were no samples, and all other fields are 0 */
    double min;
    double median;
    double mean;
    double p99; /* by nearest rank: the largest sample if there are fewer than 100 */
    double max;
};

/** bench_stats_of - the statistics of n samples.
 * @samples: sorted by this call. */
struct bench_stats bench_stats_of(double *samples, size_t n);

/** bench_median_of - the median of n samples; 0 if there are none.
 * @samples: sorted by this call. */
double bench_median_of(double *samples, size_t n);

/** bench_median_of_row - the median of n samples, which keep their order.
 * @scratch: room for n samples. */
double bench_median_of_row(const double *samples, double *scratch, size_t n);

#endif
