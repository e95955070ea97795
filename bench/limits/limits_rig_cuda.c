/* SPDX-License-Identifier: Apache-2.0
 *
 * A sync kernel precedes each round of passes, so that its time excludes the host's calls and the
 * GPUs' different starts.
 */
#include "bench/limits/limits_kernels.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "bench/check/pattern.h"

#include <string.h>

#define N_ROUNDS   3
#define ROUND_US   8000.0 /* aim */
#define MIN_PASSES 1
#define MAX_PASSES 100 /* a stream takes about 1000 calls without blocking */

gyre_status bench_rig_use(int gpu)
{
    GYRE_CUDA_TRY(cudaSetDevice(gpu));
    return GYRE_SUCCESS;
}

static struct gyre_pattern pattern_of(const struct bench_rig *rig)
{
    return (struct gyre_pattern){
        .dtype = GYRE_UINT32, .op = GYRE_SUM, .n_ranks = (uint32_t)rig->n_gpus, .seed = 1};
}

static gyre_status open_gpu(struct bench_rig *rig, int number)
{
    struct bench_rig_gpu *gpu = &rig->gpus[number];
    const struct gyre_pattern pattern = pattern_of(rig);
    GYRE_TRY(gyre_device_cuda.open(number, &gpu->device));
    GYRE_TRY(gpu->device->ops->info(gpu->device, &gpu->info));
    GYRE_TRY(gpu->device->ops->stream_create(gpu->device, &gpu->stream));
    GYRE_TRY(gpu->device->ops->mem_alloc(gpu->device, rig->n_bytes, &gpu->from));
    GYRE_TRY(gpu->device->ops->mem_alloc(gpu->device, rig->n_bytes, &gpu->to));
    GYRE_TRY(bench_rig_use(number));
    GYRE_CUDA_TRY(cudaEventCreate(&gpu->begin));
    GYRE_CUDA_TRY(cudaEventCreate(&gpu->end));
    GYRE_TRY(bench_kernels_load(gpu->info.arch));
    return gyre_pattern_fill(gpu->device, &pattern, (uint32_t)number, 0,
                             rig->n_bytes / sizeof(uint32_t), gpu->from);
}

static gyre_status open_path(struct bench_rig *rig, int from, int to)
{
    int is_possible = from == to;
    if (from != to)
        GYRE_CUDA_TRY(cudaDeviceCanAccessPeer(&is_possible, from, to));
    rig->gpus[from].reaches[to] = is_possible;
    if (from == to || !is_possible)
        return GYRE_SUCCESS;
    GYRE_TRY(bench_rig_use(from));
    GYRE_CUDA_TRY(cudaDeviceEnablePeerAccess(to, 0));
    return GYRE_SUCCESS;
}

gyre_status bench_rig_open(uint64_t n_bytes, struct bench_rig *rig_out)
{
    int n_gpus = 0;
    memset(rig_out, 0, sizeof(*rig_out));
    GYRE_TRY(gyre_device_cuda.count(&n_gpus));
    if (n_gpus == 0)
        return gyre_fail_context(GYRE_ERROR_UNSUPPORTED, "no GPU");
    rig_out->n_gpus = n_gpus < BENCH_LIMITS_MAX_GPUS ? n_gpus : BENCH_LIMITS_MAX_GPUS;
    rig_out->n_bytes = n_bytes;
    for (int i = 0; i < rig_out->n_gpus; i++) {
        const gyre_status status = open_gpu(rig_out, i);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "GPU %d", i);
    }
    for (int i = 0; i < rig_out->n_gpus; i++)
        for (int k = 0; k < rig_out->n_gpus; k++)
            GYRE_TRY(open_path(rig_out, i, k));
    struct gyre_device *first = rig_out->gpus[0].device;
    return first->ops->host_alloc(first, sizeof(*rig_out->flags), (void **)&rig_out->flags);
}

void bench_rig_close(struct bench_rig *rig)
{
    for (int i = rig->n_gpus - 1; i >= 0; i--) {
        struct bench_rig_gpu *gpu = &rig->gpus[i];
        if (gpu->device == NULL)
            continue;
        if (gpu->stream != NULL) /* running work uses other GPUs' buffers */
            (void)gpu->device->ops->stream_synchronize(gpu->device, gpu->stream);
        if (gpu->begin != NULL)
            (void)cudaEventDestroy(gpu->begin);
        if (gpu->end != NULL)
            (void)cudaEventDestroy(gpu->end);
    }
    for (int i = rig->n_gpus - 1; i >= 0; i--) {
        struct bench_rig_gpu *gpu = &rig->gpus[i];
        if (gpu->device == NULL)
            continue;
        if (i == 0 && rig->flags != NULL)
            (void)gpu->device->ops->host_free(gpu->device, rig->flags);
        (void)gpu->device->ops->mem_free(gpu->device, gpu->from);
        (void)gpu->device->ops->mem_free(gpu->device, gpu->to);
        if (gpu->stream != NULL)
            (void)gpu->device->ops->stream_destroy(gpu->device, gpu->stream);
        gpu->device->ops->close(gpu->device);
    }
    memset(rig, 0, sizeof(*rig));
}

static uint64_t piece_bytes(const struct bench_rig *rig, int n_gpus)
{
    return rig->n_bytes / (uint64_t)n_gpus / 16 * 16;
}

/* Of one GPU in one direction. */
static uint64_t pass_bytes(const struct bench_rig *rig, const struct bench_transfer *transfer)
{
    if (transfer->path == BENCH_LIMITS_COPY)
        return transfer->point;
    if (transfer->path == BENCH_LIMITS_STORE_ALL)
        return piece_bytes(rig, transfer->n_gpus) * (uint64_t)(transfer->n_gpus - 1);
    return rig->n_bytes;
}

/* That GPU must be the current one. */
static gyre_status enqueue_pass(struct bench_rig *rig, const struct bench_transfer *transfer,
                                int number)
{
    const struct bench_rig_gpu *gpu = &rig->gpus[number];
    const struct bench_rig_gpu *next = &rig->gpus[(number + 1) % transfer->n_gpus];
    const bool is_load = transfer->path == BENCH_LIMITS_LOAD;
    const struct bench_copy copy = {
        .to = is_load ? gpu->to : next->to,
        .from = is_load ? next->from : gpu->from,
        .n_bytes = pass_bytes(rig, transfer),
        .n_blocks = (uint32_t)transfer->point,
    };
    struct bench_scatter scatter = {
        .from = gpu->from,
        .piece_bytes = piece_bytes(rig, transfer->n_gpus),
        .gpu = (uint32_t)number,
        .n_gpus = (uint32_t)transfer->n_gpus,
    };
    switch (transfer->path) {
    case BENCH_LIMITS_STORE:
    case BENCH_LIMITS_LOAD:
        return bench_enqueue_copy(&copy, gpu->stream);
    case BENCH_LIMITS_STORE_ALL:
        for (int i = 0; i < transfer->n_gpus; i++)
            scatter.to[i] = (char *)rig->gpus[i].to + scatter.piece_bytes * (uint64_t)number;
        return bench_enqueue_scatter(&scatter, (uint32_t)transfer->point, gpu->stream);
    case BENCH_LIMITS_TMA_STORE:
        return bench_enqueue_tma_copy(&copy, rig->flags, gpu->stream);
    default:
        GYRE_CUDA_TRY(
            cudaMemcpyAsync(copy.to, copy.from, copy.n_bytes, cudaMemcpyDefault, gpu->stream));
        return GYRE_SUCCESS;
    }
}

gyre_status bench_rig_check_overdue(const struct bench_rig *rig, const char *what)
{
    if (gyre_load_acquire_u32(&rig->flags->is_overdue) == 0)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_TIMEOUT,
                     "%s: a GPU waited over %.0f s and gave up: another GPU or the host is stuck",
                     what, (double)BENCH_KERNEL_WAIT_NS / 1e9);
}

/* On the slowest GPU. */
static gyre_status time_round(struct bench_rig *rig, const struct bench_transfer *transfer,
                              int n_passes, double *us_out)
{
    double longest_us = 0;
    gyre_store_release_u32(&rig->flags->is_overdue, 0);
    gyre_store_release_u32(&rig->flags->may_start, 0);
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < transfer->n_gpus; i++) {
        struct bench_rig_gpu *gpu = &rig->gpus[i];
        GYRE_TRY_GOTO(status, bench_rig_use(i), start);
        GYRE_TRY_GOTO(status, bench_enqueue_sync(rig->flags, gpu->stream), start);
        GYRE_CUDA_TRY_GOTO(status, cudaEventRecord(gpu->begin, gpu->stream), start);
        for (int pass = 0; pass < n_passes; pass++)
            GYRE_TRY_GOTO(status, enqueue_pass(rig, transfer, i), start);
        GYRE_CUDA_TRY_GOTO(status, cudaEventRecord(gpu->end, gpu->stream), start);
    }
start:
    gyre_store_release_u32(&rig->flags->may_start, 1); /* also after a failure */
    GYRE_TRY(status);
    for (int i = 0; i < transfer->n_gpus; i++) {
        float ms = 0;
        GYRE_CUDA_TRY(cudaEventSynchronize(rig->gpus[i].end));
        GYRE_CUDA_TRY(cudaEventElapsedTime(&ms, rig->gpus[i].begin, rig->gpus[i].end));
        if (ms * 1e3 > longest_us)
            longest_us = ms * 1e3;
    }
    GYRE_TRY(bench_rig_check_overdue(rig, bench_limits_paths[transfer->path].description));
    *us_out = longest_us / n_passes;
    return GYRE_SUCCESS;
}

static gyre_status check_gpu(const struct bench_rig *rig, const struct bench_transfer *transfer,
                             int at)
{
    const int n = transfer->n_gpus;
    const bool is_from_all = transfer->path == BENCH_LIMITS_STORE_ALL;
    const int neighbour = (at + (transfer->path == BENCH_LIMITS_LOAD ? 1 : n - 1)) % n;
    const uint64_t n_piece = is_from_all ? piece_bytes(rig, n) : pass_bytes(rig, transfer);
    const uint64_t n_words = n_piece / sizeof(uint32_t);
    const struct gyre_pattern pattern = pattern_of(rig);
    for (int from = 0; from < n; from++) {
        const uint64_t first = is_from_all ? n_piece * (uint64_t)at / sizeof(uint32_t) : 0;
        const char *buffer =
            (char *)rig->gpus[at].to + (is_from_all ? n_piece * (uint64_t)from : 0);
        struct gyre_pattern_errors errors = {0};
        if (is_from_all ? from == at : from != neighbour)
            continue;
        GYRE_TRY(gyre_pattern_check_copy(rig->gpus[at].device, &pattern, (uint32_t)from, first,
                                         n_words, buffer, &errors));
        if (errors.n_wrong > 0)
            return gyre_fail(
                GYRE_ERROR_DEVICE, "%llu of %llu words from GPU %d did not arrive on GPU %d",
                (unsigned long long)errors.n_wrong, (unsigned long long)n_words, from, at);
    }
    return GYRE_SUCCESS;
}

gyre_status bench_rig_time(struct bench_rig *rig, const struct bench_transfer *transfer,
                           double *gbytes_per_s_out)
{
    double us = 0, least_us = 0;
    for (int i = 0; i < transfer->n_gpus; i++)
        GYRE_TRY(gyre_device_cuda.zero(rig->gpus[i].device, rig->gpus[i].to, rig->n_bytes));
    for (int warm = 0; warm < 2; warm++) /* the first fills TLBs */
        GYRE_TRY(time_round(rig, transfer, 1, &us));
    const int n_passes =
        (int)gyre_clamp_u32((uint64_t)(ROUND_US / (us > 1 ? us : 1)), MIN_PASSES, MAX_PASSES);
    for (int round = 0; round < N_ROUNDS; round++) {
        GYRE_TRY(time_round(rig, transfer, n_passes, &us));
        if (round == 0 || us < least_us)
            least_us = us;
    }
    for (int at = 0; at < transfer->n_gpus; at++)
        GYRE_TRY(check_gpu(rig, transfer, at));
    *gbytes_per_s_out = (double)pass_bytes(rig, transfer) / least_us / 1e3;
    return GYRE_SUCCESS;
}
