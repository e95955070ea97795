/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording of the interpreter's steps in SIMPLE (record.cuh). The waiter knows when the slots of a
 * step were there, and the poster when they were published, so each of them writes its part of the
 * event. Both write after they have let the other warps go on. Lane 0 writes everything but the
 * slots, and the lane of each operand its slot. Steps of one worker overlap a little, because the
 * waiter already waits for the next steps; the host orders them (host/records.c).
 */
#ifndef GYRE_KERNELS_CUDA_RECORD_STEP_CUH
#define GYRE_KERNELS_CUDA_RECORD_STEP_CUH

#include "kernels/cuda/device/block.cuh"

/* What the events of a worker's steps have in common. */
struct step_recorder {
    struct gyre_cuda_recorder *recorder; /* NULL: the launch is not recorded */
    uint64_t first;                      /* number of the launch's first event */
    uint32_t program;
    uint16_t channel;
    uint16_t worker;
};

/* Which step of a launch an event is of. */
struct step_place {
    uint32_t number; /* in this launch of the worker */
    uint32_t step;   /* of the worker */
    uint32_t tile;
};

static __device__ __forceinline__ struct step_recorder open_step_recorder(const struct block &block)
{
    const struct gyre_cuda_work &work = block.work;
    struct step_recorder own = {};
    own.recorder = block.common.recording.recorder;
    if (own.recorder == nullptr)
        return own;
    own.first = own.recorder->blocks[blockIdx.x].n_events;
    own.program = work.traced + block.channel % work.n_variants;
    own.channel = (uint16_t)block.channel;
    own.worker = (uint16_t)(block.number - work.first_block - block.channel * work.n_workers);
    return own;
}

/* Writes an event but for its slots and end_ns, which the poster may have written already.
 * @times: the three other times. */
static __device__ __forceinline__ void write_step_event(struct gyre_trace_event *event,
                                                        const struct step_recorder &own,
                                                        const struct step_place &place,
                                                        const uint64_t *times, uint32_t n_bytes,
                                                        uint32_t in_mask, uint32_t out_mask)
{
    struct gyre_trace_event whole;
    uint4 words[5];
    whole.begin_ns = times[0];
    whole.data_ns = times[1];
    whole.ready_ns = times[2];
    whole.end_ns = 0;
    whole.call = 0; /* the host takes it from the event of the launch */
    whole.sequence = 0;
    whole.n_bytes = n_bytes;
    whole.program = own.program;
    whole.step = place.step; /* the host adds the worker's first step */
    whole.step_of_worker = place.step;
    whole.tile = place.tile;
    whole.channel = own.channel;
    whole.worker = (uint8_t)own.worker;
    whole.kind = GYRE_TRACE_STEP;
    whole.n_ins = (uint8_t)__popc(in_mask);
    whole.n_outs = (uint8_t)__popc(out_mask);
    whole.pad[0] = whole.pad[1] = 0;
    memcpy(words, &whole, sizeof(words));
    event->ready_ns = times[2];
    for (int i = 0; i < 5; i++)
        if (i != 1) /* of ready_ns and end_ns */
            ((uint4 *)event)[i] = words[i];
}

/* The lanes of inputs come before those of outputs, and so do the slots of an event. */
static __device__ __forceinline__ void write_slot(struct gyre_trace_event *event,
                                                  const struct connection *own, uint32_t number,
                                                  uint32_t mask, uint32_t lane,
                                                  uint32_t ends_per_rank)
{
    const struct gyre_trace_slot slot = {(uint16_t)(own->index / ends_per_rank),
                                         (uint16_t)(own->index % ends_per_rank / 2), number};
    event->slots[__popc(mask & ((1U << lane) - 1))] = slot;
}

/* A warp lane's wait for the slot of its operand. */
struct lane_wait {
    uint64_t begin_ns;
    const struct connection *own; /* NULL: the lane has no slot */
    uint32_t n_before;
    uint32_t n_bytes;   /* of the step */
    uint32_t waited_ns; /* from begin_ns on; at most 4 s */
};

static __device__ __forceinline__ void begin_lane_wait(struct lane_wait *waited)
{
    waited->begin_ns = global_ns();
    waited->own = nullptr;
    waited->waited_ns = 0;
}

static __device__ __forceinline__ void
end_lane_wait(struct lane_wait *waited, const struct connection *own, uint32_t n_before)
{
    const uint64_t ns = global_ns() - waited->begin_ns;
    waited->own = own;
    waited->n_before = n_before;
    waited->waited_ns = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* All lanes of the waiter's warp call this when the slots of a step are there. */
static __device__ __noinline__ void record_waited_step(struct step_recorder own,
                                                       struct step_place place,
                                                       struct lane_wait waited,
                                                       uint32_t ends_per_rank)
{
    const uint32_t all = 0xffffffffU, lane = threadIdx.x % 32;
    const bool is_out = waited.own != nullptr && waited.own->is_send != 0;
    const uint32_t mask = __ballot_sync(all, waited.own != nullptr);
    const uint32_t out_mask = __ballot_sync(all, is_out);
    const uint32_t data_ns = __reduce_max_sync(all, is_out ? 0 : waited.waited_ns);
    const uint32_t ready_ns = __reduce_max_sync(all, waited.waited_ns);
    struct gyre_trace_event *event = event_place(own.recorder, own.first + place.number);
    if (lane == 0) {
        const uint64_t times[3] = {waited.begin_ns, waited.begin_ns + data_ns,
                                   waited.begin_ns + ready_ns};
        write_step_event(event, own, place, times, waited.n_bytes, mask & ~out_mask, out_mask);
    }
    if (waited.own != nullptr)
        write_slot(event, waited.own,
                   gyre_trace_number(waited.own->number + waited.n_before, false), mask, lane,
                   ends_per_rank);
}

/* The poster has published the slots of the launch's step `number`. */
static __device__ __noinline__ void end_recorded_step(struct gyre_cuda_recorder *recorder,
                                                      uint64_t first, uint32_t number)
{
    event_place(recorder, first + number)->end_ns = global_ns();
    recorder->blocks[blockIdx.x].n_steps = number + 1;
}

#endif
