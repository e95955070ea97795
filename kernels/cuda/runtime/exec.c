/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/device/pool_cuda.h"
#include "kernels/cuda/host/position.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* For aborted launches. */
#define IDLE_PATIENCE_NS 1000000000ULL
#define IDLE_NAP_NS      50000

static void free_executor(struct gyre_cuda_executor *executor)
{
    gyre_cuda_side_streams_close(executor);
    gyre_cuda_marks_close(executor);
    gyre_cuda_recorder_free(executor);
    if (executor->last_event != NULL)
        (void)cudaEventDestroy(executor->last_event);
    if (executor->captured_event != NULL)
        (void)cudaEventDestroy(executor->captured_event);
    gyre_cuda_memory_close(executor);
    pthread_mutex_destroy(&executor->lock);
    free(executor->slots_of_unloaded);
    free(executor->connectors);
    free(executor);
}

/* No call may allocate, load or create anything. The device is current. */
static gyre_status make_all(struct gyre_cuda_executor *executor,
                            const struct gyre_executor_config *config)
{
    GYRE_TRY(gyre_cuda_memory_open(executor));
    GYRE_TRY(gyre_cuda_preload(executor, &executor->default_shared_bytes));
    GYRE_TRY(gyre_cuda_side_streams_open(executor));
    gyre_cuda_recorder_open(executor, config->trace);
    GYRE_CUDA_TRY(cudaEventCreateWithFlags(&executor->last_event, cudaEventDisableTiming));
    GYRE_CUDA_TRY(cudaEventCreateWithFlags(&executor->captured_event, cudaEventDisableTiming));
    if (config->overlaps_launches) {
        /* Code compiled for GPUs before Hopper does not wait for the launch before it, even where a
         * newer GPU runs it (from PTX). */
        struct cudaFuncAttributes attributes;
        GYRE_CUDA_TRY(cudaFuncGetAttributes(&attributes, gyre_cuda_kernel_sync));
        executor->overlaps_launches = attributes.ptxVersion >= 90;
    }
    return GYRE_SUCCESS;
}

static gyre_status cuda_open(const struct gyre_executor_config *config,
                             struct gyre_executor **executor_out)
{
    const struct gyre_cuda_driver *driver;
    struct gyre_device_info info;
    gyre_status status;
    int most_shared_bytes = 0;
    GYRE_TRY(config->device->ops->start(config->device));
    GYRE_TRY(config->device->ops->info(config->device, &info));
    GYRE_TRY(gyre_cuda_driver_find(&driver));
    GYRE_CUDA_TRY(cudaDeviceGetAttribute(
        &most_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, config->device->ordinal));
    struct gyre_cuda_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the executor of rank %d", config->rank);
    executor->base.ops = &gyre_executor_cuda;
    executor->device = config->device;
    executor->driver = driver;
    executor->rank = config->rank;
    executor->n_ranks = config->n_ranks;
    executor->n_sms =
        gyre_min_u32(config->n_gpu_sharers > 1 ? info.n_sms / config->n_gpu_sharers : info.n_sms,
                     GYRE_CUDA_MAX_BLOCKS);
    executor->most_shared_bytes = (uint32_t)most_shared_bytes;
    /* Only of Hopper is it known which multiprocessors share a path to the links. */
    executor->block_placement_bytes =
        info.arch / 10 == 9 ? config->block_placement_bytes : UINT64_MAX;
    executor->spec = config->spec;
    executor->fault = config->fault;
    pthread_mutex_init(&executor->lock, NULL);
    gyre_cuda_pool_enter();
    const size_t connectors_bytes = gyre_cuda_n_ends(executor) * sizeof(struct gyre_connector);
    executor->connectors = malloc(connectors_bytes > 0 ? connectors_bytes : 1);
    executor->slots_of_unloaded =
        calloc((size_t)gyre_cuda_n_ends(executor) * GYRE_N_SLOT_PROTOS + 1,
               sizeof(*executor->slots_of_unloaded));
    if (executor->connectors == NULL || executor->slots_of_unloaded == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u connectors", gyre_cuda_n_ends(executor));
        goto fail;
    }
    memcpy(executor->connectors, config->connectors, connectors_bytes);
    struct gyre_cuda_apart apart = {0};
    GYRE_TRY_GOTO(status, gyre_cuda_enter_apart(executor->device->ordinal, &apart), fail);
    status = make_all(executor, config);
    gyre_cuda_leave_apart(&apart);
    if (status != GYRE_SUCCESS)
        goto fail;
    *executor_out = &executor->base;
    return GYRE_SUCCESS;
fail:
    free_executor(executor);
    gyre_cuda_pool_leave(true);
    return gyre_fail_context(status, "the executor of rank %d", config->rank);
}

static void cuda_abort(struct gyre_executor *base)
{
    gyre_store_release_u32(&gyre_cuda_own(base)->mailbox->abort, 1);
}

static struct gyre_progress cuda_progress(const struct gyre_executor *base)
{
    return gyre_cuda_mailbox_read(((const struct gyre_cuda_executor *)base)->mailbox);
}

/* The mailbox counts replays too, hence the event after captures. The caller holds the lock. */
static bool is_idle(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_apart apart = {0};
    if (executor->last_capture == 0 || executor->lacks_event)
        return cuda_progress(&executor->base).completed >= executor->base.n_launched;
    if (!executor->has_launched ||
        gyre_cuda_enter_apart(executor->device->ordinal, &apart) != GYRE_SUCCESS)
        return true;
    const bool has_ended = cudaEventQuery(executor->last_event) != cudaErrorNotReady;
    (void)cudaGetLastError();
    gyre_cuda_leave_apart(&apart);
    return has_ended;
}

static bool cuda_is_idle(struct gyre_executor *base)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    pthread_mutex_lock(&executor->lock);
    const bool has_ended = is_idle(executor) && gyre_cuda_marks_are_past(executor);
    pthread_mutex_unlock(&executor->lock);
    return has_ended;
}

/* Only the kernel of a wait knows whether it waits. */
static bool cuda_find_blocked(struct gyre_executor *executor, struct gyre_blocked *blocked_out)
{
    (void)executor;
    (void)blocked_out;
    return false;
}

uint64_t gyre_cuda_count_completed(struct gyre_cuda_executor *executor)
{
    const uint64_t n_launched = executor->base.n_launched;
    if (executor->last_capture != 0)
        return !executor->lacks_event && is_idle(executor) ? n_launched : 0;
    /* A kernel runs on after reporting. It has ended once the next launch has reported. */
    const uint64_t n_reported = gyre_min_u64(cuda_progress(&executor->base).completed, n_launched);
    return n_reported > 0 ? n_reported - 1 : 0;
}

static void cuda_close(struct gyre_executor *base)
{
    if (base == NULL)
        return;
    cuda_abort(base);
    /* The abort ends launches at once, unless a user's operation stands before them. */
    const struct timespec nap = {0, IDLE_NAP_NS};
    const uint64_t end_ns = gyre_now_ns() + IDLE_PATIENCE_NS;
    bool has_ended = cuda_is_idle(base);
    for (; !has_ended && gyre_now_ns() <= end_ns; has_ended = cuda_is_idle(base))
        nanosleep(&nap, NULL);
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    struct gyre_cuda_apart apart = {0};
    if (executor->recorder.recorder != NULL &&
        gyre_cuda_enter_apart(executor->device->ordinal, &apart) == GYRE_SUCCESS) {
        gyre_cuda_recorder_close(executor, has_ended);
        gyre_cuda_leave_apart(&apart);
    }
    free_executor(executor); /* the pool parks memory that peers may use */
    gyre_cuda_pool_leave(has_ended);
}

gyre_status gyre_cuda_executor_set_epoch(struct gyre_executor *base, enum gyre_proto proto,
                                         uint64_t n_slots)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const uint32_t n = gyre_cuda_n_ends(executor);
    uint64_t *values = malloc(n * sizeof(*values));
    if (values == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u counters", n);
    executor->miscounts = true;
    for (uint32_t i = 0; i < n; i++)
        values[i] = n_slots;
    const gyre_status status = executor->device->ops->copy(
        executor->device, executor->counters + (size_t)gyre_proto_slots(proto) * n, values,
        n * sizeof(*values));
    free(values);
    return status;
}

const struct gyre_executor_ops gyre_executor_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .progress = cuda_progress,
    .positions = gyre_cuda_positions,
    .side_state = gyre_cuda_side_state,
    .is_idle = cuda_is_idle,
    .abort = cuda_abort,
    .place = gyre_cuda_place,
    .unplace = gyre_cuda_unplace,
    .load = gyre_cuda_load,
    .ready = gyre_cuda_ready,
    .unload = gyre_cuda_unload,
    .time_works = gyre_cuda_time_works,
    .time_next = gyre_cuda_time_next,
    .span_of = gyre_cuda_span_of,
    .enqueue = gyre_cuda_enqueue,
    .put = gyre_cuda_put,
    .await_signals = gyre_cuda_await_signals,
    .peer_left = gyre_cuda_peer_left,
    .find_blocked = cuda_find_blocked,
};
