/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches, local memory, then the largest rings, so that a slow machine lacks only small ones.
 */
#include "bench/limits/limits.h"

#ifdef BENCH_WITH_LIMITS

#include "bench/driver/rank.h"
#include "bench/limits/limits_kernels.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES (512ULL << 20)

/* No ring begins later, to end within 20 s: over PCIe 3 at 12 GB/s, a ring of 21 large points of
 * five passes takes 5 s. */
#define RINGS_NS         14000000000ULL

#define N_LAUNCHES       5000
#define N_LAUNCH_WAITS   1000
#define N_GRAPH_KERNELS  100
#define N_GRAPH_LAUNCHES 20
#define N_PING_PONGS     10000

static double us_since(uint64_t begin_ns)
{
    return (double)(gyre_now_ns() - begin_ns) / 1e3;
}

static gyre_status time_launches(gyre_stream stream, int n_launches, bool waits, double *us_out)
{
    const uint64_t begin_ns = gyre_now_ns();
    for (int i = 0; i < n_launches; i++) {
        GYRE_TRY(bench_enqueue_nothing(stream));
        if (waits)
            GYRE_CUDA_TRY(cudaStreamSynchronize(stream));
    }
    GYRE_CUDA_TRY(cudaStreamSynchronize(stream));
    *us_out = us_since(begin_ns) / n_launches;
    return GYRE_SUCCESS;
}

static gyre_status time_graph(gyre_stream stream, double *us_out)
{
    struct bench_graph *graph = NULL;
    gyre_status status = GYRE_SUCCESS;
    uint64_t begin_ns = 0;
    GYRE_TRY(bench_graph_begin(stream));
    for (int i = 0; i < N_GRAPH_KERNELS && status == GYRE_SUCCESS; i++)
        status = bench_enqueue_nothing(stream);
    const gyre_status ended = bench_graph_end(stream, &graph); /* also after a failure */
    if (status == GYRE_SUCCESS)
        status = ended;
    for (int i = 0; i <= N_GRAPH_LAUNCHES && status == GYRE_SUCCESS; i++) {
        GYRE_TRY_GOTO(status, bench_graph_launch(graph, stream), close_graph);
        if (i > 0)
            continue;
        GYRE_CUDA_TRY_GOTO(status, cudaStreamSynchronize(stream), close_graph);
        begin_ns = gyre_now_ns(); /* also uploads the graph */
    }
    if (status == GYRE_SUCCESS)
        GYRE_CUDA_TRY_GOTO(status, cudaStreamSynchronize(stream), close_graph);
    *us_out = us_since(begin_ns) / (N_GRAPH_LAUNCHES * N_GRAPH_KERNELS);
close_graph:
    bench_graph_close(graph);
    return status;
}

/* On GPU 0. */
static gyre_status measure_alone(struct bench_rig *rig, struct bench_limits *limits)
{
    const gyre_stream stream = rig->gpus[0].stream;
    const struct bench_transfer transfer = {
        .path = BENCH_LIMITS_STORE, .point = 2 * rig->gpus[0].info.n_sms, .n_gpus = 1};
    double warm_us = 0, gbytes_per_s = 0;
    GYRE_TRY(bench_rig_use(0));
    GYRE_TRY(time_launches(stream, N_LAUNCH_WAITS, false, &warm_us));
    GYRE_TRY(time_launches(stream, N_LAUNCHES, false, &limits->launch_us));
    GYRE_TRY(time_launches(stream, N_LAUNCH_WAITS, true, &limits->launch_wait_us));
    GYRE_TRY(time_graph(stream, &limits->graph_launch_us));
    GYRE_TRY(bench_rig_time(rig, &transfer, &gbytes_per_s));
    limits->local_copy_gbytes_per_s = 2 * gbytes_per_s; /* read and written */
    return GYRE_SUCCESS;
}

/* The GPUs write into each other's `to` buffer in turn. */
static gyre_status measure_flag(struct bench_rig *rig, struct bench_limits *limits)
{
    for (int i = 0; i < 2; i++)
        GYRE_TRY(gyre_device_cuda.zero(rig->gpus[i].device, rig->gpus[i].to, sizeof(uint32_t)));
    memset(rig->flags, 0, sizeof(*rig->flags));
    for (int i = 0; i < 2; i++) {
        const struct bench_ping_pong side = {
            .mine = rig->gpus[i].to,
            .theirs = rig->gpus[1 - i].to,
            .n_rounds = N_PING_PONGS,
            .begins = i == 0,
            .flags = rig->flags,
        };
        GYRE_TRY(bench_rig_use(i));
        GYRE_TRY(bench_enqueue_ping_pong(&side, rig->gpus[i].stream));
    }
    for (int i = 0; i < 2; i++)
        GYRE_CUDA_TRY(cudaStreamSynchronize(rig->gpus[i].stream));
    GYRE_TRY(bench_rig_check_overdue(rig, "flag between GPU 0 and GPU 1"));
    limits->flag_us = (double)rig->flags->ping_pong_ns / (2.0 * N_PING_PONGS) / 1e3;
    return GYRE_SUCCESS;
}

static bool is_connected(const struct bench_rig *rig, int n_gpus, struct bench_limits *limits)
{
    char what[32];
    snprintf(what, sizeof(what), "ring of %d GPUs", n_gpus);
    for (int i = 0; i < n_gpus; i++)
        for (int k = 0; k < n_gpus; k++)
            if (!rig->gpus[i].reaches[k]) {
                bench_limits_note(limits, what, "GPU %d has no peer access to GPU %d", i, k);
                return false;
            }
    return true;
}

static gyre_status measure_ring(struct bench_rig *rig, int n_gpus, struct bench_limits *limits)
{
    struct bench_limits_ring *ring = &limits->rings[limits->n_rings];
    bool has_tma = true;
    ring->n_gpus = n_gpus;
    for (int i = 0; i < n_gpus; i++)
        has_tma = has_tma && rig->gpus[i].info.arch >= 90;
    for (int path = 0; path < BENCH_LIMITS_N_PATHS; path++)
        for (int point = 0; point < BENCH_LIMITS_N_POINTS; point++) {
            const struct bench_transfer transfer = {
                .path = (enum bench_limits_path)path,
                .point = bench_limits_paths[path].points[point],
                .n_gpus = n_gpus,
            };
            if (path != BENCH_LIMITS_TMA_STORE || has_tma)
                GYRE_TRY(bench_rig_time(rig, &transfer, &ring->gbytes_per_s[path][point]));
        }
    limits->n_rings++;
    return GYRE_SUCCESS;
}

static gyre_status measure_rings(struct bench_rig *rig, uint64_t begin_ns,
                                 struct bench_limits *limits)
{
    if (rig->n_gpus < 2)
        bench_limits_note(limits, "rings and flags", "there is one GPU");
    else if (rig->gpus[0].reaches[1] && rig->gpus[1].reaches[0])
        GYRE_TRY(measure_flag(rig, limits));
    else
        bench_limits_note(limits, "flags", "GPUs 0 and 1 have no peer access to each other");
    for (int n_gpus = rig->n_gpus; n_gpus >= 2; n_gpus--) {
        if (gyre_now_ns() - begin_ns > RINGS_NS) {
            bench_limits_note(limits, "smaller rings", "of %d GPUs and fewer: out of time", n_gpus);
            break;
        }
        if (is_connected(rig, n_gpus, limits))
            GYRE_TRY(measure_ring(rig, n_gpus, limits));
    }
    return GYRE_SUCCESS;
}

static gyre_status describe_gpus(const struct bench_rig *rig, struct bench_limits *limits)
{
    limits->n_gpus = rig->n_gpus;
    limits->buffer_bytes = rig->n_bytes;
    for (int i = 0; i < rig->n_gpus; i++) {
        const struct gyre_device_info *info = &rig->gpus[i].info;
        struct bench_limits_gpu *gpu = &limits->gpus[i];
        struct cudaDeviceProp properties;
        GYRE_CUDA_TRY(cudaGetDeviceProperties(&properties, i));
        snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, properties.name);
        snprintf(gpu->pci, sizeof(gpu->pci), "%s", info->pci_bus_id);
        gpu->arch = info->arch;
        gpu->n_sms = info->n_sms;
        if (info->arch < 90)
            bench_limits_note(limits, bench_limits_paths[BENCH_LIMITS_TMA_STORE].name,
                              "needs sm_90, GPU %d is sm_%u", i, info->arch);
    }
    return GYRE_SUCCESS;
}

gyre_status bench_limits_measure(struct bench_limits *limits_out)
{
    const uint64_t begin_ns = gyre_now_ns();
    struct bench_rig rig;
    struct bench_limits limits = {0};
    gyre_status status;
    GYRE_TRY_GOTO(status, bench_rig_open(BUFFER_BYTES, &rig), close_rig);
    GYRE_TRY_GOTO(status, describe_gpus(&rig, &limits), close_rig);
    GYRE_TRY_GOTO(status, measure_alone(&rig, &limits), close_rig);
    GYRE_TRY_GOTO(status, measure_rings(&rig, begin_ns, &limits), close_rig);
    *limits_out = limits;
close_rig:
    bench_rig_close(&rig);
    return status;
}

#else

gyre_status bench_limits_measure(struct bench_limits *limits_out)
{
    (void)limits_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no GPU: this build has no kernels that measure one");
}

#endif
