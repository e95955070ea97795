/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaving: gyre, reference, gyre, reference, ... so that whatever drifts (clocks, neighbours)
 * hits both; a ratio per round, then the median of the ratios.
 */
#include "bench/compare.h"

#include "bench/measure.h"
#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>

/* One engine's turn of a round lasts about this long: long enough that a scheduler tick of 4 ms is
 * a small part of it. */
#define TURN_US     20000.0
#define MAX_CALLS   2000
#define MIN_CALLS   3
#define PROBE_CALLS 3

gyre_status bench_reference_find(const char *name, const struct bench_reference_ops **ops_out)
{
#ifdef GYRE_BENCH_WITH_MPI
    if (strcmp(name, bench_reference_mpi.name) == 0) {
        *ops_out = &bench_reference_mpi;
        return GYRE_SUCCESS;
    }
#endif
    (void)ops_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare %s: this bench was built without it", name);
}

static gyre_status call_gyre(struct bench_rank *rank, const struct bench_call *call)
{
    GYRE_TRY(bench_enqueue(rank, call));
    return bench_wait(rank);
}

/* One engine's turn: n calls, each timed; us[i] becomes the longest over the ranks. */
static gyre_status take_turn(struct bench_rank *rank, const struct bench_reference *engine,
                             const struct bench_call *call, double *us, size_t n)
{
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(bench_team_barrier(&rank->member));
    for (size_t i = 0; i < n && status == GYRE_SUCCESS; i++) {
        const uint64_t start_ns = gyre_now_ns();
        status = engine == NULL ? call_gyre(rank, call) : engine->ops->run(engine->state, call);
        us[i] = (double)(gyre_now_ns() - start_ns) / 1e3;
    }
    GYRE_TRY(bench_rank_agree(rank, status));
    return bench_longest(rank, us, n);
}

/* Warm both up and see how many calls fill a turn; the same number on all ranks. */
static gyre_status choose_n_calls(struct bench_rank *rank, const struct bench_reference *reference,
                                  const struct bench_call *call, int *n_calls_out)
{
    double us[PROBE_CALLS];
    double slower_us = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first pass only warms */
        const struct bench_reference *const engines[] = {NULL, reference};
        for (int i = 0; i < 2; i++) {
            GYRE_TRY(take_turn(rank, engines[i], call, us, PROBE_CALLS));
            const double median = bench_median_of(us, PROBE_CALLS);
            slower_us = pass == 0 || median > slower_us ? median : slower_us;
        }
    }
    const double n_calls = TURN_US / (slower_us > 0.1 ? slower_us : 0.1);
    *n_calls_out = n_calls > MAX_CALLS ? MAX_CALLS : n_calls < MIN_CALLS ? MIN_CALLS : (int)n_calls;
    return GYRE_SUCCESS;
}

struct run_context {
    const struct bench_reference *reference;
};

static gyre_status run_reference(void *context, const struct bench_call *call)
{
    const struct run_context *run = context;
    return run->reference->ops->run(run->reference->state, call);
}

/* A comparison with an engine that computes something else would mean nothing. */
static gyre_status check_reference(struct bench_rank *rank, const struct bench_reference *reference,
                                   const struct bench_call *call)
{
    struct run_context run = {reference};
    int64_t n_wrong = 0;
    if (rank->options->n_checks == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(bench_check_all(rank, call, run_reference, &run, &n_wrong));
    if (n_wrong > 0)
        return gyre_fail(GYRE_ERROR_INTERNAL, "%s itself gave %lld wrong values",
                         reference->ops->name, (long long)n_wrong);
    return GYRE_SUCCESS;
}

static gyre_status run_rounds(struct bench_rank *rank, const struct bench_reference *reference,
                              const struct bench_call *call, double *samples,
                              struct bench_comparison *result)
{
    const size_t n_rounds = (size_t)result->n_rounds;
    const size_t n_calls = (size_t)result->n_calls;
    double *gyre_us = samples;
    double *reference_us = gyre_us + n_rounds * n_calls;
    double *medians = reference_us + n_rounds * n_calls; /* gyre, reference, ratio by round */
    double *turn = medians + 3 * n_rounds;
    for (size_t round = 0; round < n_rounds; round++) {
        double *at = gyre_us + round * n_calls;
        GYRE_TRY(take_turn(rank, NULL, call, at, n_calls));
        memcpy(turn, at, n_calls * sizeof(*turn));
        medians[round] = bench_median_of(turn, n_calls);
        at = reference_us + round * n_calls;
        GYRE_TRY(take_turn(rank, reference, call, at, n_calls));
        memcpy(turn, at, n_calls * sizeof(*turn));
        medians[n_rounds + round] = bench_median_of(turn, n_calls);
        medians[2 * n_rounds + round] = medians[n_rounds + round] / medians[round];
    }
    result->gyre_us = bench_median_of(medians, n_rounds);
    result->reference_us = bench_median_of(medians + n_rounds, n_rounds);
    result->ratio = bench_median_of(medians + 2 * n_rounds, n_rounds);
    result->gyre_p99_us = bench_stats_of(gyre_us, n_rounds * n_calls).p99;
    result->reference_p99_us = bench_stats_of(reference_us, n_rounds * n_calls).p99;
    return GYRE_SUCCESS;
}

gyre_status bench_compare(struct bench_rank *rank, const struct bench_reference *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out)
{
    struct bench_comparison result = {.is_present = true, .n_rounds = rank->options->n_rounds};
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    gyre_status status = reference->ops->check(reference->state, call);
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(check_reference(rank, reference, call));
    GYRE_TRY(choose_n_calls(rank, reference, call, &result.n_calls));
    const size_t n_calls = (size_t)result.n_calls;
    const size_t n_rounds = (size_t)result.n_rounds;
    double *samples = calloc(2 * n_rounds * n_calls + 3 * n_rounds + n_calls, sizeof(*samples));
    status = samples == NULL
                 ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu samples", 2 * n_rounds * n_calls)
                 : GYRE_SUCCESS;
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS)
        status = run_rounds(rank, reference, call, samples, &result);
    free(samples);
    if (status == GYRE_SUCCESS)
        *comparison_out = result;
    return status;
}
