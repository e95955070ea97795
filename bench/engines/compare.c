/* SPDX-License-Identifier: Apache-2.0
 *
 * Each round of turns gives a ratio; their median is the result.
 */
#include "bench/engines/compare.h"

#include "bench/driver/rank.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Samples of one engine in a round, long against a scheduler tick of 4 ms. */
#define SAMPLES_US      20000.0
#define LONGEST_TURN_US 200000.0 /* of the slowest engine, in host memory */
#define MAX_CALLS       2000
#define MIN_CALLS       5
#define PROBE_CALLS     3
/* Replays of a graph, long against launch, wait and skew of the ranks, ten microseconds or more. */
#define REPLAYS_US   1000.0
#define MOST_REPLAYS 50

/* A sample: n_batch calls and one wait, or replays of their graph. */
struct batch {
    const struct bench_engine *engine; /* NULL = gyre */
    struct bench_contender *contender; /* NULL = gyre's choice, or the engine's mode */
    const struct bench_call *call;
    int n_batch;
    struct bench_graph *graph; /* NULL = not captured */
    int n_replays;
};

/* By turn: gyre's, then one for each mode. */
struct batches {
    struct batch list[BENCH_MAX_CONTENDERS];
    struct bench_call calls[BENCH_MAX_CONTENDERS];
    int n;
};

static gyre_status enqueue_batch(struct bench_rank *rank, const struct batch *batch)
{
    for (int i = 0; i < batch->n_batch; i++)
        GYRE_TRY(batch->engine == NULL
                     ? bench_enqueue(rank, batch->call)
                     : batch->engine->ops->run(batch->engine->state, batch->call));
    return GYRE_SUCCESS;
}

/* @host_us: grows by the enqueue, except for graphs. */
static gyre_status run_batch(struct bench_rank *rank, const struct batch *batch, double *host_us)
{
    const uint64_t start_ns = gyre_now_ns();
    if (batch->graph == NULL)
        GYRE_TRY(enqueue_batch(rank, batch));
    if (batch->graph == NULL && (batch->engine == NULL || batch->engine->ops->is_on_stream))
        *host_us += (double)(gyre_now_ns() - start_ns) / 1e3;
    for (int i = 0; i < batch->n_replays && batch->graph != NULL; i++)
        GYRE_TRY(bench_graph_launch(batch->graph, rank->stream));
    return batch->engine == NULL || batch->graph != NULL
               ? bench_wait(rank)
               : batch->engine->ops->wait(batch->engine->state);
}

/* One call makes the new plan untimed. A name without a protocol allows any. */
static gyre_status select_batch(struct bench_rank *rank, const struct batch *batch)
{
    if (batch->contender == NULL || batch->engine != NULL || batch->graph != NULL)
        return GYRE_SUCCESS;
    struct gyre_plan_cache *plans = gyre_comm_plans(rank->comm);
    char name[BENCH_CONTENDER_BYTES];
    snprintf(name, sizeof(name), "%s", batch->contender->name);
    char *at_proto = strchr(name, '@');
    const char *protos = at_proto != NULL ? at_proto + 1 : NULL;
    if (at_proto != NULL)
        *at_proto = '\0';
    else if (strchr(rank->options->compare_algos, '@') != NULL)
        protos = "";
    const bool is_file = strcmp(name, BENCH_CONTENDER_FILE) == 0;
    const bool is_any = is_file || strcmp(name, BENCH_CONTENDER_GYRE) == 0;
    const struct gyre_filter_words words = {.algos = is_any ? "" : name,
                                            .protos = protos,
                                            .algo_source = "--compare-algos",
                                            .proto_source = "--compare-algos"};
    GYRE_TRY(gyre_plan_restrict(plans, &words));
    if (is_file)
        gyre_plan_resume_file(plans);
    GYRE_TRY(bench_enqueue(rank, batch->call));
    return bench_wait(rank);
}

/* The caller closes batch->graph. */
static gyre_status capture_batch(struct bench_rank *rank, struct batch *batch)
{
    GYRE_TRY(select_batch(rank, batch));
    /* The first call may load a program, which cannot be captured. */
    GYRE_TRY(enqueue_batch(rank, batch));
    GYRE_TRY(bench_wait(rank));
    GYRE_TRY(bench_graph_begin(rank->stream));
    const gyre_status status = enqueue_batch(rank, batch);
    const gyre_status ended = bench_graph_end(rank->stream, &batch->graph);
    GYRE_TRY(status);
    GYRE_TRY(ended);
    double host_us = 0;
    return run_batch(rank, batch, &host_us); /* also uploads the graph */
}

/* Collective. @us: by sample, longest over ranks. @host_us: grows by this rank's enqueues.
 * @turn_us_out: a call's time on the slowest rank. */
static gyre_status time_batch(struct bench_rank *rank, const struct batch *batch, double *us,
                              size_t n, double *host_us, double *turn_us_out)
{
    gyre_status status = GYRE_SUCCESS;
    *turn_us_out = 0;
    if (batch->contender != NULL)
        GYRE_TRY(bench_rank_agree(rank, select_batch(rank, batch)));
    GYRE_TRY(bench_ranks_barrier(&rank->self));
    for (size_t i = 0; i < n && status == GYRE_SUCCESS; i++) {
        const uint64_t start_ns = gyre_now_ns();
        status = run_batch(rank, batch, host_us);
        us[i] = (double)(gyre_now_ns() - start_ns) / 1e3 / (batch->n_batch * batch->n_replays);
        *turn_us_out += us[i] / (double)n;
    }
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(bench_max_over_ranks(rank, turn_us_out, 1));
    return bench_max_over_ranks(rank, us, n);
}

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
    size_t spread = 0; /* 1.96 standard deviations of the median's rank */
    while ((double)(spread * spread) < 3.84 * (double)n_rounds)
        spread++;
    const size_t low = spread < n_rounds ? (n_rounds - spread) / 2 : 0;
    comparison->ratio_low = ratios[low]; /* sorted by bench_median_of() */
    comparison->ratio_high = ratios[n_rounds - 1 - low];
    comparison->gyre_us = bench_median_of(turns, n_rounds);
}

static int clamp(double value, int least, int most)
{
    return value > most ? most : value < least ? least : (int)value;
}

/* Finds replays for a sample and samples for a turn, the same on all ranks. On the host the
 * shortest sample counts, because ranks that share cores begin apart, and the fastest engine fills
 * the turn unless the slowest one's gets too long. */
static gyre_status choose_n_calls(struct bench_rank *rank, struct batches *batches,
                                  int *n_calls_out)
{
    double us[PROBE_CALLS];
    double slowest_us = 0, fastest_us = 0, host_us = 0, turn_us = 0;
    const bool is_host = rank->device_kind == GYRE_DEVICE_HOST;
    for (int pass = 0; pass < 2; pass++) { /* the first warms up */
        slowest_us = 0;
        for (int i = 0; i < batches->n; i++) {
            GYRE_TRY(time_batch(rank, &batches->list[i], us, PROBE_CALLS, &host_us, &turn_us));
            const struct bench_stats stats = bench_stats_of(us, PROBE_CALLS);
            const double call_us = is_host ? stats.min : stats.median;
            slowest_us = fmax(slowest_us, call_us);
            fastest_us = i == 0 || call_us < fastest_us ? call_us : fastest_us;
        }
    }
    if (is_host)
        slowest_us = fmax(fastest_us, slowest_us * SAMPLES_US / LONGEST_TURN_US);
    const double batch_us = batches->list[0].n_batch * fmax(slowest_us, 0.1);
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

/* Rank 0 reports it. */
static gyre_status check_engine(struct bench_rank *rank, const struct bench_engine *engine,
                                const struct bench_call *call)
{
    struct bench_engine run = *engine;
    int64_t n_wrong = 0;
    if (!bench_is_checked(rank, call))
        return GYRE_SUCCESS;
    GYRE_TRY(bench_check_all(rank, call, run_engine, &run, &n_wrong));
    gyre_status status = GYRE_SUCCESS;
    if (n_wrong > 0 && rank->self.rank == 0)
        status =
            gyre_fail(GYRE_ERROR_INTERNAL, "%s itself gave %lld wrong values%s", engine->ops->name,
                      (long long)n_wrong, engine->ops->wrong_value_hint(call));
    return bench_rank_agree(rank, status);
}

struct samples {
    double *all;   /* n_rounds * n_calls a batch */
    double *turns; /* n_rounds a batch, and a row of scratch */
    double *scratch;
    double *pair; /* scratch, 3 * n_rounds */
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

static gyre_status keep_samples(const struct samples *samples, const struct batches *batches,
                                const struct bench_comparison *result)
{
    const size_t n_rounds = (size_t)result->n_rounds;
    const size_t n_samples = n_rounds * (size_t)result->n_calls;
    for (int i = 0; i < batches->n; i++) {
        struct bench_contender *contender = batches->list[i].contender;
        double *us = realloc(contender->us, (n_rounds + n_samples) * sizeof(*us));
        if (us == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu samples", n_samples);
        memcpy(us, &samples->turns[(size_t)i * n_rounds], n_rounds * sizeof(*us));
        memcpy(us + n_rounds, &samples->all[(size_t)i * n_samples], n_samples * sizeof(*us));
        contender->us = us;
        contender->n_rounds = result->n_rounds;
        contender->n_calls = result->n_calls;
        contender->n_batch = result->n_batch;
    }
    return GYRE_SUCCESS;
}

static gyre_status run_rounds(struct bench_rank *rank, const struct batches *batches,
                              const struct samples *samples, struct bench_comparison *result)
{
    const size_t n_rounds = (size_t)result->n_rounds;
    const size_t n_calls = (size_t)result->n_calls;
    double host_us[BENCH_MAX_CONTENDERS] = {0};
    for (size_t round = 0; round < n_rounds; round++)
        for (int turn = 0; turn < batches->n; turn++) {
            /* Alternating directions spread a drift of the machine's speed evenly. */
            const int i = round % 2 == 0 ? turn : batches->n - 1 - turn;
            double *at = samples->all + ((size_t)i * n_rounds + round) * n_calls;
            double turn_us;
            GYRE_TRY(time_batch(rank, &batches->list[i], at, n_calls, &host_us[i], &turn_us));
            /* In host memory most calls are short and a few long, so a median can be less than the
             * links allow. */
            samples->turns[(size_t)i * n_rounds + round] =
                rank->device_kind == GYRE_DEVICE_HOST
                    ? turn_us
                    : bench_median_of_row(at, samples->scratch, n_calls);
        }
    if (batches->list[0].contender != NULL) { /* each against the first */
        const gyre_status kept = keep_samples(samples, batches, result);
        if (batches->n == 1)
            result->gyre_us = bench_median_of_row(samples->turns, samples->pair, n_rounds);
        for (int i = 1; i < batches->n; i++) {
            struct bench_comparison *compared = &result[i - 1];
            *compared = result[0];
            compared->n_modes = 1;
            compared->mode_names[0] = batches->list[i].contender->name;
            memcpy(samples->pair, samples->turns, n_rounds * sizeof(double));
            memcpy(samples->pair + n_rounds, samples->turns + (size_t)i * n_rounds,
                   n_rounds * sizeof(double));
            bench_comparison_judge(samples->pair, compared);
            fill_extremes(samples, i, compared);
        }
        return bench_rank_agree(rank, kept);
    }
    bench_comparison_judge(samples->turns, result);
    fill_extremes(samples, 1 + result->mode, result);
    GYRE_TRY(bench_max_over_ranks(rank, host_us, (size_t)batches->n));
    const double n_enqueued = (double)(n_rounds * n_calls) * batches->list[0].n_batch;
    result->gyre_host_us = host_us[0] / n_enqueued;
    result->reference_host_us = host_us[1 + result->mode] / n_enqueued;
    return GYRE_SUCCESS;
}

static gyre_status compare_batches(struct bench_rank *rank, struct batches *batches,
                                   bool can_capture, struct bench_comparison *result)
{
    gyre_status status = GYRE_SUCCESS;
    double *memory = NULL;
    for (int i = 0; i < batches->n && rank->options->n_graph_launches > 0 && can_capture; i++) {
        if (status == GYRE_SUCCESS)
            status = capture_batch(rank, &batches->list[i]);
        status = bench_rank_agree(rank, status);
    }
    if (status == GYRE_SUCCESS)
        status = choose_n_calls(rank, batches, &result->n_calls);
    if (status == GYRE_SUCCESS) {
        const size_t n_calls = (size_t)result->n_calls, n_rounds = (size_t)result->n_rounds;
        const size_t n_samples = (size_t)batches->n * n_rounds * n_calls;
        const size_t n_turns = ((size_t)batches->n + 1) * n_rounds;
        result->n_batch = batches->list[0].n_batch * batches->list[0].n_replays;
        memory = calloc(n_samples + n_turns + n_calls + 3 * n_rounds, sizeof(double));
        if (memory == NULL)
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu samples", n_samples);
        status = bench_rank_agree(rank, status);
        if (status == GYRE_SUCCESS) {
            double *turns = memory + n_samples;
            const struct samples samples = {.all = memory,
                                            .turns = turns,
                                            .scratch = turns + n_turns,
                                            .pair = turns + n_turns + n_calls};
            status = run_rounds(rank, batches, &samples, result);
        }
    }
    free(memory);
    for (int i = 0; i < batches->n; i++)
        bench_graph_close(batches->list[i].graph);
    return status;
}

gyre_status bench_compare(struct bench_rank *rank, const struct bench_engine *engine,
                          const struct bench_call *call, struct bench_comparison *comparison_out)
{
    struct bench_comparison result = {.is_present = true, .n_rounds = rank->options->n_rounds};
    struct batches batches;
    struct bench_mode modes[BENCH_MAX_MODES];
    const int n_batch = engine->ops->is_on_stream ? rank->options->n_iters : 1;
    result.n_modes = engine->ops->modes(engine->state, modes);
    batches = (struct batches){.calls = {*call}, .n = 1 + result.n_modes};
    for (int i = 0; i < result.n_modes; i++) {
        const struct bench_buffers *own = modes[i].buffers;
        result.mode_names[i] = modes[i].name;
        batches.calls[1 + i] =
            own == NULL ? *call : bench_call_of(rank, own, &call->what, call->is_in_place);
    }
    for (int i = 0; i < batches.n; i++)
        batches.list[i] = (struct batch){.engine = i == 0 ? NULL : engine,
                                         .call = &batches.calls[i],
                                         .n_batch = n_batch,
                                         .n_replays = 1};
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    gyre_status status = engine->ops->check(engine->state, call);
    GYRE_TRY(bench_rank_agree(rank, status));
    for (int i = 1; i < batches.n; i++)
        GYRE_TRY(check_engine(rank, engine, &batches.calls[i]));
    status = compare_batches(rank, &batches, engine->ops->is_on_stream, &result);
    if (status == GYRE_SUCCESS)
        *comparison_out = result;
    return status;
}

gyre_status bench_compare_contenders(struct bench_rank *rank, const struct bench_engine *engine,
                                     struct bench_contender *contenders, int n_contenders,
                                     const struct bench_call *call,
                                     struct bench_comparison *comparisons_out)
{
    struct batches batches = {.n = n_contenders};
    bool can_capture = true;
    for (int i = 0; i < n_contenders; i++) {
        batches.calls[i] = *call;
        batches.list[i] = (struct batch){.contender = &contenders[i],
                                         .call = &batches.calls[i],
                                         .n_batch = rank->options->n_iters,
                                         .n_replays = 1};
        if (engine->ops != NULL && strcmp(contenders[i].name, engine->ops->name) == 0) {
            struct bench_mode modes[BENCH_MAX_MODES];
            if (engine->ops->modes(engine->state, modes) != 1)
                return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                                 "--compare-algos times one mode of %s: name it by --nccl-mode",
                                 engine->ops->name);
            if (modes[0].buffers != NULL)
                batches.calls[i] =
                    bench_call_of(rank, modes[0].buffers, &call->what, call->is_in_place);
            batches.list[i].engine = engine;
            if (!engine->ops->is_on_stream)
                batches.list[i].n_batch = 1;
            can_capture = can_capture && engine->ops->is_on_stream;
        }
    }
    bench_progress_begin(rank->progress, call->what.n_bytes, "comparing");
    comparisons_out[0] =
        (struct bench_comparison){.is_present = true, .n_rounds = rank->options->n_rounds};
    for (int i = 0; i < n_contenders; i++) {
        const struct batch *batch = &batches.list[i];
        int64_t n_wrong = 0;
        if (batch->engine != NULL) {
            GYRE_TRY(bench_rank_agree(
                rank, batch->engine->ops->check(batch->engine->state, batch->call)));
            GYRE_TRY(check_engine(rank, batch->engine, batch->call));
            continue;
        }
        GYRE_TRY(bench_rank_agree(rank, select_batch(rank, batch)));
        if (rank->options->n_checks > 0)
            GYRE_TRY(bench_check_all(rank, batch->call, NULL, NULL, &n_wrong));
        gyre_status status = GYRE_SUCCESS;
        if (n_wrong > 0 && rank->self.rank == 0)
            status = gyre_fail(GYRE_ERROR_INTERNAL, "%s gave %lld wrong values",
                               batch->contender->name, (long long)n_wrong);
        GYRE_TRY(bench_rank_agree(rank, status));
        if (rank->self.rank == 0)
            contenders[i].plan = bench_plan_of(rank, call);
    }
    return compare_batches(rank, &batches, can_capture, comparisons_out);
}

gyre_status bench_engine_takes_all(void *state, const struct bench_call *call)
{
    (void)state;
    (void)call;
    return GYRE_SUCCESS;
}

const char *bench_engine_has_no_hint(const struct bench_call *call)
{
    (void)call;
    return "";
}

gyre_status bench_engine_find(const char *name, const struct bench_engine_ops **ops_out)
{
    static const struct bench_engine_ops *const engines[] = {
        &bench_engine_old,
#ifdef GYRE_BENCH_WITH_MPI
        &bench_engine_mpi,
#endif
#ifdef GYRE_BENCH_WITH_NCCL
        &bench_engine_nccl,
#endif
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(engines); i++)
        if (strcmp(name, engines[i]->name) == 0) {
            *ops_out = engines[i];
            return GYRE_SUCCESS;
        }
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--compare %s: this bench was built without it; a build %s has it", name,
                     strcmp(name, "mpi") == 0 ? "on a machine with MPI" : "with GYRE_CUDA=ON");
}
