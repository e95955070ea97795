/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaving: gyre, reference, gyre, reference, ... so that whatever drifts (clocks, neighbours)
 * hits both; a ratio per round, then the median of the ratios.
 */
#include "bench/compare.h"

#include "bench/graph.h"
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
#ifdef GYRE_BENCH_WITH_NCCL
    if (strcmp(name, bench_reference_nccl.name) == 0) {
        *ops_out = &bench_reference_nccl;
        return GYRE_SUCCESS;
    }
#endif
    (void)ops_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare %s: this bench was built without it", name);
}

/* A sample: n_batch calls of one engine, then one wait. @graph: the same calls captured, or NULL.
 */
struct batch {
    const struct bench_reference *engine; /* NULL = gyre */
    const struct bench_call *call;
    int n_batch;
    struct bench_graph *graph;
};

static gyre_status enqueue_batch(struct bench_rank *rank, const struct batch *batch)
{
    for (int i = 0; i < batch->n_batch; i++)
        GYRE_TRY(batch->engine == NULL
                     ? bench_enqueue(rank, batch->call)
                     : batch->engine->ops->run(batch->engine->state, batch->call));
    return GYRE_SUCCESS;
}

static gyre_status run_batch(struct bench_rank *rank, const struct batch *batch)
{
    GYRE_TRY(batch->graph != NULL ? bench_graph_launch(batch->graph, rank->stream)
                                  : enqueue_batch(rank, batch));
    const bool is_done = batch->engine != NULL && !batch->engine->ops->is_on_stream;
    return is_done ? GYRE_SUCCESS : bench_wait(rank);
}

static gyre_status capture_batch(struct bench_rank *rank, struct batch *batch)
{
    GYRE_TRY(enqueue_batch(rank, batch)); /* what is loaded on first use cannot be captured */
    GYRE_TRY(bench_wait(rank));
    GYRE_TRY(bench_graph_begin(rank->stream));
    const gyre_status status = enqueue_batch(rank, batch);
    const gyre_status ended = bench_graph_end(rank->stream, &batch->graph);
    GYRE_TRY(status);
    GYRE_TRY(ended);
    return run_batch(rank, batch); /* the first launch uploads it */
}

/* One engine's turn: n samples; us[i] becomes the longest over the ranks. */
static gyre_status take_turn(struct bench_rank *rank, const struct batch *batch, double *us,
                             size_t n)
{
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(bench_team_barrier(&rank->member));
    for (size_t i = 0; i < n && status == GYRE_SUCCESS; i++) {
        const uint64_t start_ns = gyre_now_ns();
        status = run_batch(rank, batch);
        us[i] = (double)(gyre_now_ns() - start_ns) / 1e3 / batch->n_batch;
    }
    GYRE_TRY(bench_rank_agree(rank, status));
    return bench_longest(rank, us, n);
}

/* Warm both up and see how many calls fill a turn; the same number on all ranks. */
static gyre_status choose_n_calls(struct bench_rank *rank, const struct batch *batches,
                                  int *n_calls_out)
{
    double us[PROBE_CALLS];
    double slower_us = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first pass only warms */
        for (int i = 0; i < 2; i++) {
            GYRE_TRY(take_turn(rank, &batches[i], us, PROBE_CALLS));
            const double median = bench_median_of(us, PROBE_CALLS);
            slower_us = pass == 0 || median > slower_us ? median : slower_us;
        }
    }
    const double n_calls = TURN_US / batches->n_batch / (slower_us > 0.1 ? slower_us : 0.1);
    *n_calls_out = n_calls > MAX_CALLS ? MAX_CALLS : n_calls < MIN_CALLS ? MIN_CALLS : (int)n_calls;
    return GYRE_SUCCESS;
}

struct run_context {
    const struct bench_rank *rank;
    const struct bench_reference *reference;
};

static gyre_status run_reference(void *context, const struct bench_call *call)
{
    const struct run_context *run = context;
    GYRE_TRY(run->reference->ops->run(run->reference->state, call));
    return run->reference->ops->is_on_stream ? bench_wait(run->rank) : GYRE_SUCCESS;
}

/* A comparison with an engine that computes something else would mean nothing. */
static gyre_status check_reference(struct bench_rank *rank, const struct bench_reference *reference,
                                   const struct bench_call *call)
{
    struct run_context run = {rank, reference};
    int64_t n_wrong = 0;
    if (rank->options->n_checks == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(bench_check_all(rank, call, run_reference, &run, &n_wrong));
    if (n_wrong > 0)
        return gyre_fail(GYRE_ERROR_INTERNAL, "%s itself gave %lld wrong values",
                         reference->ops->name, (long long)n_wrong);
    return GYRE_SUCCESS;
}

static gyre_status run_rounds(struct bench_rank *rank, const struct batch *batches, double *samples,
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
        GYRE_TRY(take_turn(rank, &batches[0], at, n_calls));
        memcpy(turn, at, n_calls * sizeof(*turn));
        medians[round] = bench_median_of(turn, n_calls);
        at = reference_us + round * n_calls;
        GYRE_TRY(take_turn(rank, &batches[1], at, n_calls));
        memcpy(turn, at, n_calls * sizeof(*turn));
        medians[n_rounds + round] = bench_median_of(turn, n_calls);
        medians[2 * n_rounds + round] = medians[n_rounds + round] / medians[round];
    }
    result->gyre_us = bench_median_of(medians, n_rounds);
    result->reference_us = bench_median_of(medians + n_rounds, n_rounds);
    result->ratio = bench_median_of(medians + 2 * n_rounds, n_rounds);
    size_t spread = 0; /* 1.96 standard deviations of the median's rank, twice */
    while ((double)(spread * spread) < 3.84 * (double)n_rounds)
        spread++;
    const size_t low = spread < n_rounds ? (n_rounds - spread) / 2 : 0;
    result->ratio_low = medians[2 * n_rounds + low]; /* bench_median_of() sorted them */
    result->ratio_high = medians[3 * n_rounds - 1 - low];
    const struct bench_stats ours = bench_stats_of(gyre_us, n_rounds * n_calls);
    const struct bench_stats theirs = bench_stats_of(reference_us, n_rounds * n_calls);
    result->gyre_p99_us = ours.p99;
    result->gyre_min_us = ours.min;
    result->reference_p99_us = theirs.p99;
    result->reference_min_us = theirs.min;
    return GYRE_SUCCESS;
}

/* Samples are allocated once it is known how many. */
static gyre_status compare_batches(struct bench_rank *rank, const struct batch *batches,
                                   struct bench_comparison *result)
{
    GYRE_TRY(choose_n_calls(rank, batches, &result->n_calls));
    const size_t n_calls = (size_t)result->n_calls;
    const size_t n_rounds = (size_t)result->n_rounds;
    double *samples = calloc(2 * n_rounds * n_calls + 3 * n_rounds + n_calls, sizeof(*samples));
    gyre_status status =
        samples == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu samples", 2 * n_rounds * n_calls)
                        : GYRE_SUCCESS;
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS)
        status = run_rounds(rank, batches, samples, result);
    free(samples);
    return status;
}

gyre_status bench_compare(struct bench_rank *rank, const struct bench_reference *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out)
{
    const bool is_on_stream = reference->ops->is_on_stream;
    const int n_batch = is_on_stream ? rank->options->n_iters : 1;
    struct bench_comparison result = {
        .is_present = true, .n_rounds = rank->options->n_rounds, .n_batch = n_batch};
    struct batch batches[] = {{NULL, call, n_batch, NULL}, {reference, call, n_batch, NULL}};
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    gyre_status status = reference->ops->check(reference->state, call);
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(check_reference(rank, reference, call));
    for (int i = 0; i < 2 && rank->options->n_graph_launches > 0 && is_on_stream; i++) {
        if (status == GYRE_SUCCESS)
            status = capture_batch(rank, &batches[i]);
        status = bench_rank_agree(rank, status);
    }
    if (status == GYRE_SUCCESS)
        status = compare_batches(rank, batches, &result);
    for (int i = 0; i < 2; i++)
        bench_graph_close(batches[i].graph);
    if (status == GYRE_SUCCESS)
        *comparison_out = result;
    return status;
}
