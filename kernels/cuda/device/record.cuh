/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording of launches for GYRE_TRACE_FILE (host/recording.h), without atomic operations. The host
 * reads the rings when the communicator ends.
 *
 * Out of line, so that kernels keep their registers when nothing is recorded.
 */
#ifndef GYRE_KERNELS_CUDA_RECORD_CUH
#define GYRE_KERNELS_CUDA_RECORD_CUH

#include "kernels/cuda/device/lean.cuh"
#include "kernels/cuda/device/sync.cuh"

static __device__ __forceinline__ union gyre_cuda_record *
record_at(const struct gyre_cuda_recorder *recorder, uint64_t number)
{
    return recorder->entries + (size_t)blockIdx.x * recorder->capacity +
           (number & (recorder->capacity - 1));
}

static __device__ __forceinline__ uint32_t record_end_entries(uint32_t n_ends)
{
    return (n_ends + 3) / 4;
}

/* @n_completed: works before this launch. */
static __device__ __noinline__ void record_begin(const struct gyre_cuda_recording &recording,
                                                 uint64_t n_completed)
{
    struct gyre_cuda_record_block *block = &recording.recorder->blocks[blockIdx.x];
    block->begin_ns = global_ns();
    block->call = recording.first_work == GYRE_CUDA_CAPTURED ? GYRE_CUDA_FIRST_REPLAY + n_completed
                                                             : recording.first_work;
}

/* Each thread may record other FIFOs. A barrier of the block comes before record_end(). */
static __device__ __forceinline__ void record_fifo_end(const struct gyre_cuda_recorder *recorder,
                                                       uint32_t i, uint32_t index, uint64_t number)
{
    union gyre_cuda_record *entry =
        record_at(recorder, recorder->blocks[blockIdx.x].n_entries + i / 4);
    *(uint2 *)&entry->ends[i % 4] = {index, (uint32_t)number};
}

static __device__ __noinline__ void record_peer(const struct gyre_cuda_recorder *recorder,
                                                uint32_t k, uint32_t send_index, uint64_t sent,
                                                uint32_t recv_index, uint64_t received)
{
    record_fifo_end(recorder, 2 * k, send_index, sent);
    record_fifo_end(recorder, 2 * k + 1, recv_index, received);
}

static __device__ __noinline__ void record_mark(struct gyre_cuda_recorder *recorder,
                                                enum gyre_cuda_mark mark)
{
    recorder->blocks[blockIdx.x].marks_ns[mark] = global_ns();
}

/* A launch waits for lines or slots in one phase or in two. */
static __device__ __noinline__ void record_arrival(struct gyre_cuda_recorder *recorder)
{
    const bool is_first = recorder->blocks[blockIdx.x].marks_ns[GYRE_CUDA_MARK_ARRIVED] == 0;
    record_mark(recorder, is_first ? GYRE_CUDA_MARK_ARRIVED : GYRE_CUDA_MARK_GATHERED);
}

/* The host sees the span before the launch's end. The first launch of copies gives the begin. */
static __device__ __forceinline__ void record_span(const struct gyre_cuda_recording &recording,
                                                   const struct gyre_cuda_record_block *block,
                                                   uint64_t end_ns)
{
    struct gyre_cuda_span *span =
        &recording.spans[block->call % GYRE_CUDA_SPANS * recording.n_span_blocks + blockIdx.x];
    if (recording.kind != GYRE_CUDA_RUN_CLOSES)
        store_relaxed_sys(&span->begin_ns, block->begin_ns);
    store_relaxed_sys(&span->end_ns, end_ns);
    store_relaxed_sys(&span->call, block->call + 1);
    fence_acq_rel_sys();
}

struct record_facts {
    uint32_t program; /* variant 0 */
    uint32_t n_tiles;
    uint32_t n_ends;
    uint32_t block; /* among the blocks of its work */
};

/* After a barrier of the block. */
static __device__ __noinline__ void record_end(const struct gyre_cuda_recording &recording,
                                               struct record_facts facts)
{
    const struct gyre_cuda_recorder *recorder = recording.recorder;
    struct gyre_cuda_record_block *block = &recording.recorder->blocks[blockIdx.x];
    const uint32_t n_steps = *(volatile uint32_t *)&block->n_steps;
    const uint64_t number = block->n_entries + record_end_entries(facts.n_ends) + n_steps;
    union gyre_cuda_record *entry = record_at(recorder, number);
    entry->run.begin_ns = block->begin_ns;
    entry->run.call = block->call;
    entry->run.sequence = recording.sequence;
    const uint64_t end_ns = global_ns();
    entry->run.end_ns = end_ns;
    if (recording.spans != nullptr)
        record_span(recording, block, end_ns);
    union gyre_cuda_record *marks = record_at(recorder, number + 1);
    for (int i = 0; i < 4; i++) {
        volatile uint64_t *mark_ns = &block->marks_ns[i];
        marks->marks_ns[i] = *mark_ns;
        *mark_ns = 0;
    }
    union gyre_cuda_record *own = record_at(recorder, number + 2);
    own->facts.program = facts.program;
    own->facts.block = facts.block;
    own->facts.n_ends = facts.n_ends;
    own->facts.n_steps = n_steps;
    own->facts.n_tiles = facts.n_tiles;
    own->facts.kind = recording.kind;
    own->facts.slot_bytes = recording.slot_bytes;
    own->facts.first_program = recording.program;
    record_at(recorder, number + 3)->call.n_bytes = recording.n_bytes;
    block->n_entries = number + GYRE_CUDA_RUN_ENTRIES;
    block->n_steps = 0;
}

#endif
