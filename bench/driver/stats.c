/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics by sorting.
 */
#include "bench/driver/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median_of(double *samples, size_t n)
{
    if (n == 0)
        return 0;
    qsort(samples, n, sizeof(*samples), ascending);
    return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

struct bench_stats bench_stats_of(double *samples, size_t n)
{
    struct bench_stats stats = {.n_samples = n};
    if (n == 0)
        return stats;
    stats.median = bench_median_of(samples, n);
    for (size_t i = 0; i < n; i++)
        stats.mean += samples[i] / (double)n;
    stats.min = samples[0];
    stats.max = samples[n - 1];
    stats.p99 = samples[(size_t)ceil(0.99 * (double)n) - 1];
    return stats;
}

double bench_median_of_row(const double *samples, double *scratch, size_t n)
{
    memcpy(scratch, samples, n * sizeof(*scratch));
    return bench_median_of(scratch, n);
}
