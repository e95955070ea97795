/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples of one engine in a comparison: its calls are enqueued or replayed as one batch, and
 * timed.
 */
#include "bench/engines/batch.h"

#include "bench/driver/measure.h"
#include "core/foundation/base/util.h"
#include "core/engine/comm/local.h"

#include <stdio.h>
#include <string.h>

static gyre_status enqueue_batch(struct bench_rank *rank, const struct bench_batch *batch)
{
    for (int i = 0; i < batch->n_batch; i++)
        GYRE_TRY(batch->engine == NULL
                     ? bench_enqueue(rank, batch->call)
                     : batch->engine->ops->run(batch->engine->state, batch->call));
    return GYRE_SUCCESS;
}

static bool is_on_stream(const struct bench_batch *batch)
{
    return batch->engine == NULL || batch->engine->ops->is_on_stream;
}

/* @host_us: the time of the enqueue is added; none of graphs, whose launch enqueues all calls. */
static gyre_status run_batch(struct bench_rank *rank, const struct bench_batch *batch,
                             double *host_us)
{
    const uint64_t start_ns = gyre_now_ns();
    if (batch->graph == NULL)
        GYRE_TRY(enqueue_batch(rank, batch));
    if (batch->graph == NULL && is_on_stream(batch))
        *host_us += (double)(gyre_now_ns() - start_ns) / 1e3;
    for (int i = 0; i < batch->n_replays && batch->graph != NULL; i++)
        GYRE_TRY(bench_graph_launch(batch->graph, rank->stream));
    return batch->engine == NULL || batch->graph != NULL
               ? bench_wait(rank)
               : batch->engine->ops->wait(batch->engine->state);
}

gyre_status bench_batch_select(struct bench_rank *rank, const struct bench_batch *batch)
{
    if (batch->contender == NULL || batch->graph != NULL)
        return GYRE_SUCCESS;
    struct gyre_plan_cache *plans = gyre_comm_plans(rank->comm);
    char name[BENCH_CONTENDER_BYTES];
    snprintf(name, sizeof(name), "%s", batch->contender->name);
    char *protos = strchr(name, '@');
    if (protos != NULL)
        *protos++ = '\0';
    const bool is_file = strcmp(name, "file") == 0;
    const struct gyre_filter_words words = {.algos = is_file ? "" : name,
                                            .protos = protos,
                                            .algo_source = "--compare-algos",
                                            .proto_source = "--compare-algos"};
    GYRE_TRY(gyre_plan_restrict(plans, &words));
    if (is_file)
        gyre_plan_resume_file(plans);
    GYRE_TRY(bench_enqueue(rank, batch->call));
    return bench_wait(rank);
}

gyre_status bench_batch_capture(struct bench_rank *rank, struct bench_batch *batch)
{
    GYRE_TRY(bench_batch_select(rank, batch));
    /* The first call may load a program, which cannot be captured. */
    GYRE_TRY(enqueue_batch(rank, batch));
    GYRE_TRY(bench_wait(rank));
    GYRE_TRY(bench_graph_begin(rank->stream));
    const gyre_status status = enqueue_batch(rank, batch);
    const gyre_status ended = bench_graph_end(rank->stream, &batch->graph);
    GYRE_TRY(status);
    GYRE_TRY(ended);
    double host_us = 0;
    return run_batch(rank, batch, &host_us); /* the first launch also uploads the graph */
}

gyre_status bench_batch_time(struct bench_rank *rank, const struct bench_batch *batch, double *us,
                             size_t n, double *host_us, double *turn_us_out)
{
    gyre_status status = GYRE_SUCCESS;
    *turn_us_out = 0;
    if (batch->contender != NULL)
        GYRE_TRY(bench_rank_agree(rank, bench_batch_select(rank, batch)));
    GYRE_TRY(bench_ranks_barrier(&rank->member));
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
