/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording of launches for GYRE_TRACE_FILE. Every block appends to a ring of its own in device
 * memory (struct gyre_cuda_recorder), so recording takes no atomic operation. All kernels that take
 * part in the launch sequence record the launch: its last thread writes one event of kind RUN for
 * each block. The interpreter records steps, too (record_step.cuh). The host reads the rings when
 * the communicator ends.
 *
 * These functions are out of line, so that kernels keep their registers when nothing is recorded.
 */
#ifndef GYRE_KERNELS_CUDA_RECORD_CUH
#define GYRE_KERNELS_CUDA_RECORD_CUH

#include "kernels/cuda/device/sync.cuh"

/* The place of the block's event `number`. */
static __device__ __forceinline__ struct gyre_trace_event *
event_place(const struct gyre_cuda_recorder *recorder, uint64_t number)
{
    return recorder->events + (size_t)blockIdx.x * recorder->capacity +
           (number & (recorder->capacity - 1));
}

/* The block begins. @n_completed: works completed before this launch. */
static __device__ __noinline__ void record_begin(const struct gyre_cuda_recording &recording,
                                                 uint64_t n_completed)
{
    struct gyre_cuda_record_block *block = &recording.recorder->blocks[blockIdx.x];
    block->begin_ns = global_ns();
    block->call = recording.first_work == GYRE_CUDA_CAPTURED ? GYRE_CUDA_FIRST_REPLAY + n_completed
                                                             : recording.first_work;
    block->n_steps = 0;
}

/* The block ends. A barrier of the block comes before, so the count of its steps is complete. */
static __device__ __noinline__ void record_end(const struct gyre_cuda_recording &recording)
{
    struct gyre_cuda_recorder *recorder = recording.recorder;
    struct gyre_cuda_record_block *block = &recorder->blocks[blockIdx.x];
    const uint64_t number = block->n_events + *(volatile uint32_t *)&block->n_steps;
    struct gyre_trace_event *event = event_place(recorder, number);
    event->begin_ns = event->data_ns = event->ready_ns = block->begin_ns;
    event->call = block->call;
    event->sequence = recording.sequence;
    event->n_bytes = recording.n_bytes;
    event->program = recording.program;
    event->kind = GYRE_TRACE_RUN;
    event->n_ins = event->n_outs = 0;
    event->end_ns = global_ns();
    block->n_events = number + 1;
}

#endif
