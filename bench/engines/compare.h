/* SPDX-License-Identifier: Apache-2.0
 *
 * Another engine beside gyre: the same calls over the same buffers in the same run, in turns. An
 * engine is one table; each lives in one file, the only one that includes that engine's header.
 */
#ifndef GYRE_BENCH_COMPARE_H
#define GYRE_BENCH_COMPARE_H

#include "bench/engines/engine.h"

struct bench_comparison {
    bool is_present;
    double gyre_us; /* median over rounds of the round's median */
    int n_modes;
    const char *mode_names[BENCH_MAX_MODES];
    double mode_us[BENCH_MAX_MODES]; /* as gyre_us */
    int mode;                        /* of the reference: the fastest; what follows is of it */
    double reference_us;
    double ratio;     /* median over rounds of reference / gyre: above 1, gyre is faster */
    double ratio_low; /* about 95 % confidence, by the order of the rounds' ratios */
    double ratio_high;
    double gyre_min_us;
    double reference_min_us;
    double gyre_p99_us; /* of all samples of all rounds */
    double reference_p99_us;
    int n_rounds;
    int n_calls; /* samples of one engine in one round */
    int n_batch; /* calls of a sample: 1, or as many as one wait covers */
};

/** bench_comparison_judge - the reference is the mode with the lowest median, so that having
 * several never flatters gyre; then the ratios. Pure.
 * @medians: us; rows of comparison->n_rounds: gyre's, one for each of comparison->n_modes, and one
 * of scratch. Sorted afterwards.
 * @comparison: times, mode and ratios are filled in. */
void bench_comparison_judge(double *medians, struct bench_comparison *comparison);

/** bench_compare - collective; the result is the same on all ranks. Samples are timed, each until
 * it is done, and count as the longest over the ranks: a call, or -n of them on a stream, or (-G)
 * replays of a graph of -n of them, as many as a millisecond has, whatever -G says. Errors:
 * UNSUPPORTED (the engine cannot run this), INTERNAL (the engine's own result is wrong). */
gyre_status bench_compare(struct bench_rank *rank, const struct bench_engine *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out);

#endif
