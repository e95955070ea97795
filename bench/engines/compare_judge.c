/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a comparison: times, the fastest mode, and the ratio of the engines with its
 * interval, from the times of the rounds.
 */
#include "bench/engines/compare.h"

#include "bench/driver/measure.h"

void bench_comparison_judge(double *turns, struct bench_comparison *comparison)
{
    const size_t n_rounds = (size_t)comparison->n_rounds;
    double *ratios = turns + (size_t)(1 + comparison->n_modes) * n_rounds;
    comparison->mode = 0;
    for (int i = 0; i < comparison->n_modes; i++) {
        const double *row = turns + (size_t)(1 + i) * n_rounds;
        comparison->mode_us[i] = bench_median_of_row(row, ratios, n_rounds);
        if (comparison->mode_us[i] < comparison->mode_us[comparison->mode])
            comparison->mode = i;
    }
    comparison->reference_us = comparison->mode_us[comparison->mode];
    const double *reference = turns + (size_t)(1 + comparison->mode) * n_rounds;
    for (size_t round = 0; round < n_rounds; round++)
        ratios[round] = reference[round] / turns[round];
    comparison->ratio = bench_median_of(ratios, n_rounds);
    size_t spread = 0; /* 1.96 standard deviations of the median's rank, on both sides */
    while ((double)(spread * spread) < 3.84 * (double)n_rounds)
        spread++;
    const size_t low = spread < n_rounds ? (n_rounds - spread) / 2 : 0;
    comparison->ratio_low = ratios[low]; /* bench_median_of() has sorted the ratios */
    comparison->ratio_high = ratios[n_rounds - 1 - low];
    comparison->gyre_us = bench_median_of(turns, n_rounds);
}
