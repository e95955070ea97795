/* SPDX-License-Identifier: Apache-2.0
 *
 * The interleaving: gyre and each mode of the engine are sampled in turn, round after round, so
 * that changes of clocks or neighbours affect all of them. Each round gives one ratio, and the
 * result is the median of the ratios.
 */
#include "bench/engines/compare.h"

#include "bench/driver/measure.h"
#include "bench/engines/batch.h"

#include <stdlib.h>
#include <string.h>

/* One engine's samples of a round last about this long, so that a scheduler tick of 4 ms is a small
 * part of it. */
#define SAMPLES_US 20000.0
/* In host memory the slower engine's turn may last so long. */
#define LONGEST_TURN_US 200000.0
#define MAX_CALLS       2000
#define MIN_CALLS       3
#define PROBE_CALLS     3
/* Replays of a graph follow each other for about this long before they are waited for. Then the
 * launch, the wait and the skew of the ranks, ten microseconds or more, are a small part of a call.
 */
#define REPLAYS_US   1000.0
#define MOST_REPLAYS 50

/* The batches of a comparison in the order of their turns: gyre's, then one for each mode. */
struct batches {
    struct bench_batch list[BENCH_MAX_CONTENDERS];
    struct bench_call calls[BENCH_MAX_CONTENDERS];
    int n;
};

static int clamp(double value, int least, int most)
{
    return value > most ? most : value < least ? least : (int)value;
}

/* The time of a call in a turn. On a GPU it is the median of the samples. In host memory it is the
 * mean, because calls do not end one by one there: a rank that only sends may end many calls before
 * their data have arrived, and ranks that share a core end several calls each time they run. Most
 * calls are then short and a few are long, so that the median can be less than the links allow.
 * @us: the samples, which keep their order. @turn_us: of bench_batch_time(). */
static double time_of_turn(const struct bench_rank *rank, const double *us, size_t n,
                           double *scratch, double turn_us)
{
    return rank->device_kind == GYRE_DEVICE_HOST ? turn_us : bench_median_of_row(us, scratch, n);
}

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

static double shortest_of(const double *us, size_t n)
{
    double shortest = us[0];
    for (size_t i = 1; i < n; i++)
        shortest = us[i] < shortest ? us[i] : shortest;
    return shortest;
}

/* Warms all batches up, and finds how many replays fill a sample and how many samples fill a turn.
 * All ranks get the same numbers. The shortest sample of a batch counts: ranks that share cores do
 * not all begin a turn at once, so the first call of each turn takes long, and with few calls in a
 * turn its time would be that of the beginning. For the same reason the calls of the fastest engine
 * fill a turn, as far as the turn of the slowest one does not get too long. */
static gyre_status choose_n_calls(struct bench_rank *rank, struct batches *batches,
                                  int *n_calls_out)
{
    double us[PROBE_CALLS];
    double slowest_us = 0, fastest_us = 0, host_us = 0, turn_us = 0;
    const bool is_host = rank->device_kind == GYRE_DEVICE_HOST;
    for (int pass = 0; pass < 2; pass++) { /* the first pass only warms up */
        slowest_us = 0;
        for (int i = 0; i < batches->n; i++) {
            GYRE_TRY(
                bench_batch_time(rank, &batches->list[i], us, PROBE_CALLS, &host_us, &turn_us));
            const double call_us =
                is_host ? shortest_of(us, PROBE_CALLS) : bench_median_of(us, PROBE_CALLS);
            slowest_us = larger_of(slowest_us, call_us);
            fastest_us = i == 0 || call_us < fastest_us ? call_us : fastest_us;
        }
    }
    if (is_host)
        slowest_us = larger_of(fastest_us, slowest_us * SAMPLES_US / LONGEST_TURN_US);
    const double batch_us = batches->list[0].n_batch * (slowest_us > 0.1 ? slowest_us : 0.1);
    const bool is_captured = batches->list[0].graph != NULL;
    const int n_replays = is_captured ? clamp(REPLAYS_US / batch_us, 1, MOST_REPLAYS) : 1;
    for (int i = 0; i < batches->n; i++)
        batches->list[i].n_replays = n_replays;
    *n_calls_out = clamp(SAMPLES_US / (batch_us * n_replays), MIN_CALLS, MAX_CALLS);
    return GYRE_SUCCESS;
}

static gyre_status run_engine(void *context, const struct bench_call *call)
{
    const struct bench_engine *engine = context;
    GYRE_TRY(engine->ops->run(engine->state, call));
    return engine->ops->wait(engine->state);
}

/* A comparison with an engine that computes something else would mean nothing. All ranks know the
 * number of wrong values. Rank 0 reports it, and the other ranks only learn of the failure. */
static gyre_status check_engine(struct bench_rank *rank, const struct bench_engine *engine,
                                const struct bench_call *call)
{
    struct bench_engine run = *engine;
    int64_t n_wrong = 0;
    if (!bench_is_checked(rank, call))
        return GYRE_SUCCESS;
    GYRE_TRY(bench_check_all(rank, call, run_engine, &run, &n_wrong));
    gyre_status status = GYRE_SUCCESS;
    if (n_wrong > 0 && rank->member.rank == 0)
        status =
            gyre_fail(GYRE_ERROR_INTERNAL, "%s itself gave %lld wrong values%s", engine->ops->name,
                      (long long)n_wrong, engine->ops->wrong_value_hint(call));
    return bench_rank_agree(rank, status);
}

/* Samples of a comparison. */
struct samples {
    double *all;     /* n_rounds * n_calls for each batch */
    double *turns;   /* n_rounds for each batch, and one row more */
    double *scratch; /* n_calls: scratch space */
    double *pair;    /* three rows of n_rounds: scratch space */
};

static void fill_extremes(const struct samples *samples, int reference,
                          struct bench_comparison *result)
{
    const size_t n_samples = (size_t)result->n_rounds * (size_t)result->n_calls;
    const struct bench_stats ours = bench_stats_of(samples->all, n_samples);
    const struct bench_stats theirs =
        bench_stats_of(samples->all + (size_t)reference * n_samples, n_samples);
    result->gyre_p99_us = ours.p99;
    result->gyre_min_us = ours.min;
    result->reference_p99_us = theirs.p99;
    result->reference_min_us = theirs.min;
}

/* Judges each contender by itself, against the first. @results: of all contenders but the first. */
static void judge_contenders(const struct samples *samples, const struct batches *batches,
                             struct bench_comparison *results)
{
    const size_t n_rounds = (size_t)results->n_rounds;
    for (int i = 1; i < batches->n; i++) {
        struct bench_comparison *result = &results[i - 1];
        *result = results[0];
        result->n_modes = 1;
        result->mode_names[0] = batches->list[i].contender->name;
        memcpy(samples->pair, samples->turns, n_rounds * sizeof(double));
        memcpy(samples->pair + n_rounds, samples->turns + (size_t)i * n_rounds,
               n_rounds * sizeof(double));
        bench_comparison_judge(samples->pair, result);
        fill_extremes(samples, i, result);
    }
}

static gyre_status run_rounds(struct bench_rank *rank, const struct batches *batches,
                              const struct samples *samples, struct bench_comparison *result)
{
    const size_t n_rounds = (size_t)result->n_rounds;
    const size_t n_calls = (size_t)result->n_calls;
    double host_us[BENCH_MAX_CONTENDERS] = {0};
    for (size_t round = 0; round < n_rounds; round++)
        for (int i = 0; i < batches->n; i++) {
            double *at = samples->all + ((size_t)i * n_rounds + round) * n_calls;
            double turn_us;
            GYRE_TRY(bench_batch_time(rank, &batches->list[i], at, n_calls, &host_us[i], &turn_us));
            samples->turns[(size_t)i * n_rounds + round] =
                time_of_turn(rank, at, n_calls, samples->scratch, turn_us);
        }
    if (batches->list[0].contender != NULL) {
        judge_contenders(samples, batches, result);
        return GYRE_SUCCESS;
    }
    bench_comparison_judge(samples->turns, result);
    fill_extremes(samples, 1 + result->mode, result);
    GYRE_TRY(bench_max_over_ranks(rank, host_us, (size_t)batches->n));
    const double n_enqueued = (double)(n_rounds * n_calls) * batches->list[0].n_batch;
    result->gyre_host_us = host_us[0] / n_enqueued;
    result->reference_host_us = host_us[1 + result->mode] / n_enqueued;
    return GYRE_SUCCESS;
}

/* Allocates the samples once their number is known, and runs the rounds. */
static gyre_status compare_batches(struct bench_rank *rank, struct batches *batches,
                                   struct bench_comparison *result)
{
    GYRE_TRY(choose_n_calls(rank, batches, &result->n_calls));
    result->n_batch = batches->list[0].n_batch * batches->list[0].n_replays;
    const size_t n_calls = (size_t)result->n_calls;
    const size_t n_rounds = (size_t)result->n_rounds;
    const size_t n_engines = (size_t)batches->n;
    const size_t n_turns = (n_engines + 1) * n_rounds;
    double *memory =
        calloc(n_engines * n_rounds * n_calls + n_turns + n_calls + 3 * n_rounds, sizeof(double));
    gyre_status status = memory == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu samples",
                                         n_engines * n_rounds * n_calls)
                             : GYRE_SUCCESS;
    status = bench_rank_agree(rank, status);
    if (status == GYRE_SUCCESS) {
        double *turns = memory + n_engines * n_rounds * n_calls;
        const struct samples samples = {.all = memory,
                                        .turns = turns,
                                        .scratch = turns + n_turns,
                                        .pair = turns + n_turns + n_calls};
        status = run_rounds(rank, batches, &samples, result);
    }
    free(memory);
    return status;
}

/* Lists gyre's call, and the same case over the buffers of each mode. */
static void list_batches(const struct bench_rank *rank, const struct bench_engine *engine,
                         const struct bench_call *call, struct batches *batches_out,
                         struct bench_comparison *result)
{
    struct bench_mode modes[BENCH_MAX_MODES];
    const int n_batch = engine->ops->is_on_stream ? rank->options->n_iters : 1;
    result->n_modes = engine->ops->modes(engine->state, modes);
    *batches_out = (struct batches){.calls = {*call}, .n = 1 + result->n_modes};
    for (int i = 0; i < result->n_modes; i++) {
        const struct bench_buffers *own = modes[i].buffers;
        result->mode_names[i] = modes[i].name;
        batches_out->calls[1 + i] =
            own == NULL ? *call : bench_call_of(rank, own, &call->what, call->is_in_place);
    }
    for (int i = 0; i < batches_out->n; i++)
        batches_out->list[i] = (struct bench_batch){.engine = i == 0 ? NULL : engine,
                                                    .call = &batches_out->calls[i],
                                                    .n_batch = n_batch,
                                                    .n_replays = 1};
}

/* Captures graphs where -G asks for them, and compares. */
static gyre_status capture_and_compare(struct bench_rank *rank, struct batches *batches,
                                       bool can_capture, struct bench_comparison *result)
{
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < batches->n && rank->options->n_graph_launches > 0 && can_capture; i++) {
        if (status == GYRE_SUCCESS)
            status = bench_batch_capture(rank, &batches->list[i]);
        status = bench_rank_agree(rank, status);
    }
    if (status == GYRE_SUCCESS)
        status = compare_batches(rank, batches, result);
    for (int i = 0; i < batches->n; i++)
        bench_graph_close(batches->list[i].graph);
    return status;
}

gyre_status bench_compare(struct bench_rank *rank, const struct bench_engine *engine,
                          const struct bench_call *call, struct bench_comparison *comparison_out)
{
    struct bench_comparison result = {.is_present = true, .n_rounds = rank->options->n_rounds};
    struct batches batches;
    list_batches(rank, engine, call, &batches, &result);
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    gyre_status status = engine->ops->check(engine->state, call);
    GYRE_TRY(bench_rank_agree(rank, status));
    for (int i = 1; i < batches.n; i++)
        GYRE_TRY(check_engine(rank, engine, &batches.calls[i]));
    status = capture_and_compare(rank, &batches, engine->ops->is_on_stream, &result);
    if (status == GYRE_SUCCESS)
        *comparison_out = result;
    return status;
}

static gyre_status run_gyre(void *context, const struct bench_call *call)
{
    const struct bench_rank *rank = context;
    GYRE_TRY(bench_enqueue(rank, call));
    return bench_wait(rank);
}

/* The time of a contender that gives wrong values would mean nothing. */
static gyre_status check_contender(struct bench_rank *rank, const struct bench_batch *batch)
{
    int64_t n_wrong = 0;
    GYRE_TRY(bench_rank_agree(rank, bench_batch_select(rank, batch)));
    if (rank->options->n_checks == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(bench_check_all(rank, batch->call, run_gyre, rank, &n_wrong));
    gyre_status status = GYRE_SUCCESS;
    if (n_wrong > 0 && rank->member.rank == 0)
        status = gyre_fail(GYRE_ERROR_INTERNAL, "%s gave %lld wrong values", batch->contender->name,
                           (long long)n_wrong);
    return bench_rank_agree(rank, status);
}

gyre_status bench_compare_contenders(struct bench_rank *rank, struct bench_contender *contenders,
                                     int n_contenders, const struct bench_call *call,
                                     struct bench_comparison *comparisons_out)
{
    struct batches batches = {.n = n_contenders};
    for (int i = 0; i < n_contenders; i++) {
        batches.calls[i] = *call;
        batches.list[i] = (struct bench_batch){.contender = &contenders[i],
                                               .call = &batches.calls[i],
                                               .n_batch = rank->options->n_iters,
                                               .n_replays = 1};
    }
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    comparisons_out[0] =
        (struct bench_comparison){.is_present = true, .n_rounds = rank->options->n_rounds};
    for (int i = 0; i < n_contenders; i++) {
        GYRE_TRY(check_contender(rank, &batches.list[i]));
        if (rank->member.rank == 0)
            contenders[i].plan = bench_plan_of(rank, call);
    }
    return capture_and_compare(rank, &batches, true, comparisons_out);
}
