/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/cuda_error.h"
#include "kernels/cuda/runtime/state.h"

#include <string.h>

/* A step for every peer takes some 200 bytes a rank, and a communicator rarely uses more than three
 * such collectives by a few algorithms and protocols. The least is what CUDA reserves for any
 * allocation. */
#define PROGRAM_BYTES_A_RANK ((uint64_t)(16 << 10))
#define MIN_PROGRAM_BYTES    ((uint64_t)(1 << 20))
#define MAX_PROGRAM_BYTES    ((uint64_t)(16 << 20))

gyre_status gyre_cuda_memory_open(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    const size_t n_ends = gyre_cuda_n_ends(executor);
    const uint64_t program_bytes = gyre_min_u64(
        MAX_PROGRAM_BYTES,
        gyre_max_u64(MIN_PROGRAM_BYTES, (uint64_t)executor->n_ranks * PROGRAM_BYTES_A_RANK));
    /* With more peers than a step can receive from, a chain's sum lies in scratch. */
    uint64_t slot_bytes = 0;
    for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
        slot_bytes = gyre_max_u64(slot_bytes, executor->spec.slot_bytes[proto]);
    const bool has_scratch = !gyre_cuda_has_small_areas((uint32_t)executor->n_ranks);
    const size_t scratch_bytes = has_scratch
                                     ? (size_t)(executor->spec.n_fifos * GYRE_CUDA_TILES_IN_FLIGHT *
                                                gyre_round_up(slot_bytes, 256))
                                     : 0;
    /* Counters come first. */
    const uint64_t align_bytes = GYRE_CUDA_ARENA_ALIGN_BYTES;
    const uint64_t control_offset =
        gyre_round_up(n_ends * sizeof(uint64_t) * GYRE_N_SLOT_PROTOS, align_bytes);
    const uint64_t connectors_offset =
        control_offset + gyre_round_up(sizeof(struct gyre_cuda_control), align_bytes);
    const uint64_t arena_offset =
        connectors_offset + gyre_round_up(n_ends * sizeof(struct gyre_connector), align_bytes);
    const size_t n_bytes =
        (size_t)gyre_round_up(arena_offset + scratch_bytes + program_bytes, GYRE_LARGE_PAGE_BYTES);
    const size_t mailbox_bytes = (size_t)gyre_round_up(
        sizeof(*executor->mailbox) + (size_t)executor->n_ranks * sizeof(*executor->has_left), 256);
    GYRE_TRY(device->ops->pool_alloc(device, n_bytes, &executor->memory));
    GYRE_TRY(device->ops->host_alloc(device, mailbox_bytes + GYRE_CUDA_STAGING_BYTES,
                                     &executor->host_memory));
    unsigned char *memory = executor->memory;
    executor->counters = executor->memory;
    executor->control = (void *)(memory + control_offset);
    executor->device_connectors = (void *)(memory + connectors_offset);
    executor->mailbox = executor->host_memory;
    executor->has_left = (uint64_t *)(void *)(executor->mailbox + 1);
    GYRE_TRY(device->ops->zero(device, memory, connectors_offset));
    int least = 0, greatest = 0;
    GYRE_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    GYRE_CUDA_TRY(
        cudaStreamCreateWithPriority(&executor->uploader.stream, cudaStreamNonBlocking, greatest));
    executor->uploader.staging = (unsigned char *)executor->host_memory + mailbox_bytes;
    GYRE_TRY(gyre_cuda_upload(&executor->uploader, executor->fault, executor->device_connectors,
                              executor->connectors,
                              gyre_cuda_n_ends(executor) * sizeof(struct gyre_connector)));
    gyre_cuda_arena_open(&executor->arena, memory + arena_offset, n_bytes - arena_offset);
    GYRE_INFO(INIT, "rank %d: %zu KiB on the GPU beside the FIFOs, of which %zu KiB for programs",
              executor->rank, n_bytes >> 10, (n_bytes - arena_offset - scratch_bytes) >> 10);
    return gyre_cuda_reserve_scratch(executor, scratch_bytes);
}

void gyre_cuda_memory_close(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    gyre_cuda_arena_close(&executor->arena);
    if (executor->uploader.stream != NULL)
        (void)cudaStreamDestroy(executor->uploader.stream);
    (void)device->ops->pool_free(device, executor->memory);
    (void)device->ops->host_free(device, executor->host_memory);
}

gyre_status gyre_cuda_make_resident(struct gyre_cuda_executor *executor, struct gyre_loaded *loaded)
{
    struct gyre_cuda_apart apart = {0};
    struct gyre_cuda_arena_block *block = NULL;
    if (loaded->program == NULL || loaded->block != NULL)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_arena_take(&executor->arena, loaded->program->n_bytes,
                                  gyre_cuda_count_completed(executor), &loaded->block, &block));
    /* Works launched until now may read it. */
    block->last_work = executor->base.n_launched;
    gyre_status status = gyre_cuda_enter_apart(executor->device->ordinal, &apart);
    if (status == GYRE_SUCCESS) {
        status = gyre_cuda_upload(&executor->uploader, executor->fault, block->address,
                                  loaded->program, loaded->program->n_bytes);
        gyre_cuda_leave_apart(&apart);
    }
    if (status == GYRE_SUCCESS)
        loaded->block = block;
    else
        gyre_cuda_arena_give_back(block, executor->base.n_launched);
    return status;
}

gyre_status gyre_cuda_reserve_scratch(struct gyre_cuda_executor *executor, size_t n_bytes)
{
    struct gyre_cuda_arena_block *block = NULL;
    if (n_bytes == 0 || (executor->scratch != NULL && executor->scratch->n_bytes >= n_bytes))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_arena_take(&executor->arena, n_bytes, gyre_cuda_count_completed(executor),
                                  NULL, &block));
    gyre_cuda_arena_give_back(executor->scratch, executor->base.n_launched);
    executor->scratch = block;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_place(struct gyre_executor *base, struct gyre_placement *placement)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const size_t n_bytes = (size_t)executor->n_ranks * sizeof(*placement->bases);
    struct gyre_cuda_arena_block *block = NULL;
    struct gyre_cuda_apart apart = {0};
    GYRE_TRY(gyre_cuda_enter_apart(executor->device->ordinal, &apart));
    pthread_mutex_lock(&executor->lock);
    gyre_status status = gyre_cuda_arena_take(&executor->arena, n_bytes,
                                              gyre_cuda_count_completed(executor), NULL, &block);
    if (status == GYRE_SUCCESS)
        status = gyre_cuda_upload(&executor->uploader, executor->fault, block->address,
                                  placement->bases, n_bytes);
    if (status == GYRE_SUCCESS)
        placement->device_bases = (void *const *)(void *)block->address;
    else
        gyre_cuda_arena_give_back(block, executor->base.n_launched);
    pthread_mutex_unlock(&executor->lock);
    gyre_cuda_leave_apart(&apart);
    return status;
}

void gyre_cuda_unplace(struct gyre_executor *base, struct gyre_placement *placement)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const unsigned char *address = (const unsigned char *)placement->device_bases;
    pthread_mutex_lock(&executor->lock);
    for (struct gyre_cuda_arena_block *at = executor->arena.first; at != NULL; at = at->next)
        if (address != NULL && at->address == address)
            gyre_cuda_arena_give_back(at, executor->base.n_launched);
    pthread_mutex_unlock(&executor->lock);
    placement->device_bases = NULL;
}

/* A copy takes microseconds unless the GPU has stopped. */
#define UPLOAD_TIMEOUT_NS 10000000000ULL

gyre_status gyre_cuda_await_stream(cudaStream_t stream, struct gyre_fault *fault)
{
    const uint64_t end_ns = gyre_now_ns() + UPLOAD_TIMEOUT_NS;
    for (;;) {
        const cudaError_t error = cudaStreamQuery(stream);
        if (error == cudaSuccess)
            return GYRE_SUCCESS;
        if (error != cudaErrorNotReady)
            return gyre_cuda_fail(error, "cudaStreamQuery");
        (void)cudaGetLastError();
        GYRE_TRY(gyre_fault_status(fault));
        if (gyre_now_ns() > end_ns)
            return gyre_fail(GYRE_ERROR_TIMEOUT,
                             "a copy of a program to the GPU has not ended after %d s",
                             (int)(UPLOAD_TIMEOUT_NS / 1000000000ULL));
        sched_yield();
    }
}

gyre_status gyre_cuda_upload(struct gyre_cuda_uploader *uploader, struct gyre_fault *fault,
                             void *to, const void *from, size_t n_bytes)
{
    if (uploader->is_unfinished)
        GYRE_TRY(gyre_cuda_await_stream(uploader->stream, fault));
    uploader->is_unfinished = true;
    for (size_t at = 0; at < n_bytes; at += GYRE_CUDA_STAGING_BYTES) {
        const size_t n_piece = (size_t)gyre_min_u64(n_bytes - at, GYRE_CUDA_STAGING_BYTES);
        memcpy(uploader->staging, (const unsigned char *)from + at, n_piece);
        GYRE_CUDA_TRY(cudaMemcpyAsync((unsigned char *)to + at, uploader->staging, n_piece,
                                      cudaMemcpyHostToDevice, uploader->stream));
        GYRE_TRY(gyre_cuda_await_stream(uploader->stream, fault));
    }
    uploader->is_unfinished = false;
    return GYRE_SUCCESS;
}
