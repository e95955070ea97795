/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA executor: its life and its table. Everything that changes from call to call (counters,
 * turns, abort) lives in device memory and is kept by the kernels themselves, so captured launches
 * replay without the host; what the host wants to know of them they write on a board.
 */
#include "kernels/cuda/cuda_state.h"

#include "core/base/sync.h"
#include "kernels/cuda/kernel_table.h"

#include <stdlib.h>
#include <string.h>

static void free_executor(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    gyre_cuda_lanes_close(executor);
    if (executor->last_event != NULL)
        (void)cudaEventDestroy(executor->last_event);
    if (executor->captured_event != NULL)
        (void)cudaEventDestroy(executor->captured_event);
    (void)device->ops->mem_free(device, executor->device_connectors);
    (void)device->ops->mem_free(device, executor->counters);
    (void)device->ops->mem_free(device, executor->control);
    (void)device->ops->host_free(device, executor->board);
    pthread_mutex_destroy(&executor->lock);
    free(executor->connectors);
    free(executor);
}

static gyre_status zeroed(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    GYRE_TRY(device->ops->mem_alloc(device, n_bytes, ptr_out));
    return device->ops->zero(device, *ptr_out, n_bytes);
}

static gyre_status allocate_all(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    const size_t connectors_bytes = gyre_cuda_n_ends(executor) * sizeof(struct gyre_connector);
    void *ptr = NULL;
    GYRE_TRY(
        zeroed(device, gyre_cuda_n_ends(executor) * sizeof(uint64_t) * GYRE_N_SLOT_PROTOS, &ptr));
    executor->counters = ptr;
    GYRE_TRY(zeroed(device, sizeof(*executor->control), &ptr));
    executor->control = ptr;
    GYRE_TRY(device->ops->mem_alloc(device, connectors_bytes, &ptr));
    executor->device_connectors = ptr;
    GYRE_TRY(device->ops->host_alloc(device, sizeof(*executor->board), &ptr));
    executor->board = ptr;
    return device->ops->copy(device, executor->device_connectors, executor->connectors,
                             connectors_bytes);
}

static gyre_status make_events(struct gyre_cuda_executor *executor)
{
    int previous;
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    cudaError_t error = cudaEventCreateWithFlags(&executor->last_event, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&executor->captured_event, cudaEventDisableTiming);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "cudaEventCreateWithFlags");
}

/* Code for GPUs before Hopper, which newer ones can run too (PTX), does not wait for the launch
 * before. */
static gyre_status find_version(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_apart apart = {0};
    struct cudaFuncAttributes attributes;
    GYRE_TRY(gyre_cuda_enter_apart(executor->device->ordinal, &apart));
    const cudaError_t error = cudaFuncGetAttributes(&attributes, gyre_cuda_kernel_gate);
    gyre_cuda_leave_apart(&apart);
    if (error != cudaSuccess)
        return gyre_cuda_fail(error, "cudaFuncGetAttributes");
    executor->overlaps_launches = attributes.ptxVersion >= 90;
    return GYRE_SUCCESS;
}

static gyre_status cuda_open(const struct gyre_executor_config *config,
                             struct gyre_executor **executor_out)
{
    const struct gyre_cuda_driver *driver;
    struct gyre_device_info info;
    gyre_status status;
    int most_shared_bytes = 0;
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
    executor->n_sms = gyre_min_u32(info.n_sms, GYRE_CUDA_MAX_BLOCKS);
    executor->most_shared_bytes = (uint32_t)most_shared_bytes;
    /* Which multiprocessors share a way out is known of Hopper. */
    executor->min_seated_bytes = info.arch / 10 == 9 ? config->min_seated_bytes : UINT64_MAX;
    executor->spec = config->spec;
    executor->fault = config->fault;
    pthread_mutex_init(&executor->lock, NULL);
    const size_t connectors_bytes = gyre_cuda_n_ends(executor) * sizeof(struct gyre_connector);
    executor->connectors = malloc(connectors_bytes > 0 ? connectors_bytes : 1);
    if (executor->connectors == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u connectors", gyre_cuda_n_ends(executor));
        goto fail;
    }
    memcpy(executor->connectors, config->connectors, connectors_bytes);
    GYRE_TRY_GOTO(status, allocate_all(executor), fail);
    GYRE_TRY_GOTO(status, make_events(executor), fail);
    if (config->overlaps_launches)
        GYRE_TRY_GOTO(status, find_version(executor), fail);
    *executor_out = &executor->base;
    return GYRE_SUCCESS;
fail:
    free_executor(executor);
    return gyre_fail_context(status, "the executor of rank %d", config->rank);
}

static void cuda_abort(struct gyre_executor *base)
{
    gyre_store_release_u32(&gyre_cuda_own(base)->board->abort, 1);
}

static void cuda_close(struct gyre_executor *base)
{
    if (base == NULL)
        return;
    cuda_abort(base);
    free_executor(gyre_cuda_own(base)); /* freeing device memory waits for kernels that still end */
}

static struct gyre_pulse cuda_pulse(const struct gyre_executor *base)
{
    return gyre_cuda_board_read(((const struct gyre_cuda_executor *)base)->board);
}

/* What the board counts has replays of graphs in it. */
static bool cuda_is_idle(struct gyre_executor *base)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    struct gyre_cuda_apart apart = {0};
    bool is_idle = true;
    pthread_mutex_lock(&executor->lock);
    if (executor->last_capture == 0 || executor->lacks_event) {
        is_idle = cuda_pulse(base).completed >= base->n_launched;
    } else if (executor->has_launched &&
               gyre_cuda_enter_apart(executor->device->ordinal, &apart) == GYRE_SUCCESS) {
        is_idle = cudaEventQuery(executor->last_event) != cudaErrorNotReady;
        (void)cudaGetLastError();
        gyre_cuda_leave_apart(&apart);
    }
    pthread_mutex_unlock(&executor->lock);
    return is_idle;
}

gyre_status gyre_cuda_executor_set_epoch(struct gyre_executor *base, enum gyre_proto proto,
                                         uint64_t n_slots)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const uint32_t n = gyre_cuda_n_ends(executor);
    uint64_t *values = malloc(n * sizeof(*values));
    if (values == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u counters", n);
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
    .pulse = cuda_pulse,
    .is_idle = cuda_is_idle,
    .abort = cuda_abort,
    .load = gyre_cuda_load,
    .prepare = gyre_cuda_prepare,
    .unload = gyre_cuda_unload,
    .launch = gyre_cuda_launch,
};
