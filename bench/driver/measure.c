/* SPDX-License-Identifier: Apache-2.0
 *
 * As nccl-tests: a barrier, n iterations enqueued, one wait, and the time divided by n.
 */
#include "bench/driver/rank.h"

#include "bench/limits/empty_launch.h"
#include "bench/report/table_file.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAMPLES      10000
#define MAX_QUEUED_CALLS 8192 /* at least the largest -m */

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

static gyre_status iterate(const struct bench_rank *rank, const struct bench_call *call)
{
    const int n = rank->options->n_aggregated;
    if (n == 1)
        return bench_enqueue(rank, call);
    GYRE_TRY(gyre_group_start());
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n && status == GYRE_SUCCESS; i++)
        status = bench_enqueue(rank, call);
    const gyre_status ended = gyre_group_end();
    return status != GYRE_SUCCESS ? status : ended;
}

static gyre_status run_iterations(const struct bench_rank *rank, const struct bench_call *call,
                                  int n)
{
    /* A host stream keeps about 550 bytes a call until it is waited for. CUDA limits its queues
     * itself. */
    const int n_most = MAX_QUEUED_CALLS / rank->options->n_aggregated;
    for (int i = 0; i < n; i++) {
        GYRE_TRY(iterate(rank, call));
        if (rank->options->is_blocking ||
            (rank->device_kind == GYRE_DEVICE_HOST && (i + 1) % n_most == 0))
            GYRE_TRY(bench_wait(rank));
    }
    return GYRE_SUCCESS;
}

gyre_status bench_time_graph(const struct bench_rank *rank, const struct bench_call *call,
                             int n_iters, double *us_out)
{
    const int n_launches = rank->options->n_graph_launches;
    struct bench_graph *graph = NULL;
    GYRE_TRY(bench_graph_begin(rank->stream));
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n_iters && status == GYRE_SUCCESS; i++)
        status = iterate(rank, call);
    const gyre_status ended = bench_graph_end(rank->stream, &graph);
    status = status != GYRE_SUCCESS ? status : ended;
    if (status == GYRE_SUCCESS) /* the first launch uploads the graph */
        status = bench_graph_launch(graph, rank->stream);
    if (status == GYRE_SUCCESS)
        status = bench_wait(rank);
    const uint64_t start_ns = gyre_now_ns();
    for (int i = 0; i < n_launches && status == GYRE_SUCCESS; i++)
        status = bench_graph_launch(graph, rank->stream);
    if (status == GYRE_SUCCESS)
        status = bench_wait(rank);
    *us_out = (double)(gyre_now_ns() - start_ns) / 1e3 /
              ((double)n_launches * n_iters * rank->options->n_aggregated);
    bench_graph_close(graph);
    return status;
}

/* Time of as many empty kernels, which no library can save. 0 without GPUs, and with -G or -z,
 * which time more than calls. */
static gyre_status time_launches(const struct bench_rank *rank, double *us_out)
{
    *us_out = 0;
#ifdef GYRE_WITH_CUDA
    const struct bench_options *options = rank->options;
    if (rank->device_kind == GYRE_DEVICE_CUDA && options->n_graph_launches == 0 &&
        !options->is_blocking)
        return bench_time_launches(rank->ordinal, rank->stream, options->n_iters, us_out);
#else
    (void)rank;
#endif
    return GYRE_SUCCESS;
}

/* @host_us_out: of the enqueue, 0 with graphs. */
static gyre_status time_batch(const struct bench_rank *rank, const struct bench_call *call,
                              double *us_out, double *host_us_out)
{
    const double n_calls = (double)rank->options->n_iters * rank->options->n_aggregated;
    *host_us_out = 0;
    if (rank->options->n_graph_launches > 0)
        return bench_time_graph(rank, call, rank->options->n_iters, us_out);
    const uint64_t start_ns = gyre_now_ns();
    GYRE_TRY(run_iterations(rank, call, rank->options->n_iters));
    const uint64_t called_ns = gyre_now_ns();
    GYRE_TRY(bench_wait(rank));
    const uint64_t end_ns = rank->options->is_cputime ? called_ns : gyre_now_ns();
    *us_out = (double)(end_ns - start_ns) / 1e3 / n_calls;
    if (!rank->options->is_blocking) /* else it includes the waits */
        *host_us_out = (double)(called_ns - start_ns) / 1e3 / n_calls;
    return GYRE_SUCCESS;
}

/* Every rank's n numbers of 8 bytes. Collective. @what: names them in a refusal. The caller frees
 * *all_out, after a failure too. */
static gyre_status gather(struct bench_rank *rank, const void *mine, size_t n, const char *what,
                          void **all_out)
{
    const size_t n_ranks = (size_t)rank->self.n_ranks;
    gyre_status status = GYRE_SUCCESS;
    *all_out = calloc(n_ranks * n, sizeof(double));
    if (*all_out == NULL)
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu %s", n > 1 ? n : n_ranks, what);
    GYRE_TRY(bench_rank_agree(rank, status));
    return bench_ranks_all_gather(&rank->self, mine, n * sizeof(double), *all_out);
}

static gyre_status reduce_time(struct bench_rank *rank, double mine, double *time_out)
{
    void *all = NULL;
    const gyre_status status = gather(rank, &mine, 1, "times", &all);
    if (status == GYRE_SUCCESS) {
        const double first = *(double *)all;
        const struct bench_stats stats = bench_stats_of(all, (size_t)rank->self.n_ranks);
        const double times[] = {[BENCH_RANK_0] = first,
                                [BENCH_AVERAGE] = stats.mean,
                                [BENCH_MIN] = stats.min,
                                [BENCH_MAX] = stats.max};
        *time_out = times[rank->options->average];
    }
    free(all);
    return status;
}

gyre_status bench_max_over_ranks(struct bench_rank *rank, double *values, size_t n)
{
    void *memory = NULL;
    const gyre_status status = gather(rank, values, n, "samples", &memory);
    const double *all = memory;
    for (size_t i = 0; i < (size_t)rank->self.n_ranks * n && status == GYRE_SUCCESS; i++)
        if (values[i % n] < all[i])
            values[i % n] = all[i];
    free(memory);
    return status;
}

static gyre_status run_once(const struct bench_rank *rank, const struct bench_call *call)
{
    GYRE_TRY(bench_enqueue(rank, call));
    return bench_wait(rank);
}

static gyre_status sample(struct bench_rank *rank, const struct bench_call *call,
                          struct bench_stats *stats_out)
{
    const size_t n = gyre_min_u64((uint64_t)rank->options->n_iters, MAX_SAMPLES);
    double *us = calloc(n, sizeof(*us));
    gyre_status status = us == NULL
                             ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu samples", n)
                             : GYRE_SUCCESS;
    GYRE_TRY_GOTO(status, bench_rank_agree(rank, status), done);
    for (size_t i = 0; i < n && status == GYRE_SUCCESS; i++) {
        const uint64_t start_ns = gyre_now_ns();
        status = run_once(rank, call);
        us[i] = (double)(gyre_now_ns() - start_ns) / 1e3;
    }
    GYRE_TRY_GOTO(status, bench_rank_agree(rank, status), done);
    GYRE_TRY_GOTO(status, bench_max_over_ranks(rank, us, n), done);
    *stats_out = bench_stats_of(us, n);
done:
    free(us);
    return status;
}

gyre_status bench_check_all(struct bench_rank *rank, const struct bench_call *call,
                            gyre_status (*run)(void *context, const struct bench_call *call),
                            void *context, int64_t *n_wrong_out)
{
    uint64_t n_mine = 0;
    void *memory = NULL;
    GYRE_TRY(bench_rank_agree(rank, bench_fill(rank, call)));
    gyre_status status = run != NULL ? run(context, call) : run_once(rank, call);
    if (status == GYRE_SUCCESS)
        status = bench_check(rank, call, &n_mine);
    GYRE_TRY(bench_rank_agree(rank, status));
    status = gather(rank, &n_mine, 1, "results", &memory);
    const uint64_t *all = memory;
    *n_wrong_out = 0;
    for (int i = 0; i < rank->self.n_ranks && status == GYRE_SUCCESS; i++)
        *n_wrong_out += (int64_t)all[i];
    free(memory);
    return status;
}

bool bench_is_checked(const struct bench_rank *rank, const struct bench_call *call)
{
    return rank->options->n_checks > 0 && (!call->is_in_place || rank->kind->is_in_place_checkable);
}

gyre_status bench_measure(struct bench_rank *rank, const struct bench_call *call,
                          bool wants_samples, struct bench_timing *timing_out)
{
    struct bench_timing timing = {0};
    double mine = 0, host_us = 0, launch_us = 0;
    bench_progress_begin(rank->progress, call->what.n_bytes, "warming up");
    gyre_status status = bench_fill(rank, call);
    if (status == GYRE_SUCCESS)
        status = run_iterations(rank, call, rank->options->n_warmup);
    if (status == GYRE_SUCCESS)
        status = bench_wait(rank);
    GYRE_TRY(bench_rank_agree(rank, status)); /* also the barrier before the batch */
    bench_progress_begin(rank->progress, call->what.n_bytes, "timing");
    status = time_batch(rank, call, &mine, &host_us);
    GYRE_TRY(bench_rank_agree(rank, status));
    GYRE_TRY(reduce_time(rank, mine, &timing.time_us));
    GYRE_TRY(reduce_time(rank, host_us, &timing.host_us));
    if (rank->options->is_cputime) {
        status = time_launches(rank, &launch_us);
        GYRE_TRY(bench_rank_agree(rank, status));
        GYRE_TRY(reduce_time(rank, launch_us, &timing.launch_us));
    }
    timing.algbw = timing.time_us > 0 ? (double)call->what.n_bytes / timing.time_us / 1e3 : 0;
    timing.busbw = timing.algbw * bench_bus_factor(rank->kind->coll, (unsigned)rank->self.n_ranks);
    if (wants_samples)
        GYRE_TRY(sample(rank, call, &timing.us));
    bench_progress_begin(rank->progress, call->what.n_bytes, "checking");
    const bool is_checked = bench_is_checked(rank, call);
    timing.n_wrong = is_checked ? 0 : -1;
    for (int i = 0; i < rank->options->n_checks && is_checked; i++) {
        int64_t n_wrong = 0;
        GYRE_TRY(bench_check_all(rank, call, NULL, NULL, &n_wrong));
        timing.n_wrong += n_wrong;
    }
    *timing_out = timing;
    return GYRE_SUCCESS;
}

struct gyre_plan_summary bench_plan_of(const struct bench_rank *rank, const struct bench_call *call)
{
    const struct gyre_call planned = {
        .coll = call->what.coll,
        .send = call->send,
        .recv = call->recv,
        .count = call->what.count,
        .dtype = call->what.dtype,
        .op = call->what.op,
        .root = call->what.coll == GYRE_COLL_SEND_RECV ? bench_next_rank(rank) : call->what.root,
        .is_send = true};
    struct gyre_plan_summary plan = {0};
    if (gyre_plan_describe(gyre_comm_plans(rank->comm), &planned, &plan) != GYRE_SUCCESS)
        plan = (struct gyre_plan_summary){0};
    return plan;
}

#ifdef GYRE_WITH_CUDA

#include "core/foundation/device/cuda_error.h"

struct bench_graph {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
};

gyre_status bench_graph_begin(gyre_stream stream)
{
    /* other rank threads may allocate meanwhile */
    GYRE_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return GYRE_SUCCESS;
}

gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out)
{
    cudaGraph_t captured = NULL;
    GYRE_CUDA_TRY(cudaStreamEndCapture(stream, &captured));
    gyre_status status = GYRE_SUCCESS;
    struct bench_graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL) {
        (void)cudaGraphDestroy(captured);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a graph");
    }
    graph->graph = captured;
    GYRE_CUDA_TRY_GOTO(status, cudaGraphInstantiateWithFlags(&graph->executable, captured, 0),
                       close_graph);
    *graph_out = graph;
    return GYRE_SUCCESS;
close_graph:
    bench_graph_close(graph);
    return status;
}

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream)
{
    GYRE_CUDA_TRY(cudaGraphLaunch(graph->executable, stream));
    return GYRE_SUCCESS;
}

void bench_graph_close(struct bench_graph *graph)
{
    if (graph == NULL)
        return;
    if (graph->executable != NULL)
        (void)cudaGraphExecDestroy(graph->executable);
    (void)cudaGraphDestroy(graph->graph);
    free(graph);
}

#else

gyre_status bench_graph_begin(gyre_stream stream)
{
    (void)stream;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "-G: this bench was built without CUDA");
}

gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out)
{
    (void)graph_out;
    return bench_graph_begin(stream);
}

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream)
{
    (void)graph;
    return bench_graph_begin(stream);
}

void bench_graph_close(struct bench_graph *graph)
{
    (void)graph;
}

#endif
