/* SPDX-License-Identifier: Apache-2.0
 *
 * In SIMPLE the waiter and the poster each write their part of an entry, after they have let other
 * warps go on. A worker's steps overlap, because the waiter already waits for the next ones. The
 * host orders them (host/records.c).
 */
#ifndef GYRE_KERNELS_CUDA_RECORD_STEP_CUH
#define GYRE_KERNELS_CUDA_RECORD_STEP_CUH

#include "kernels/cuda/device/block.cuh"

struct step_recorder {
    struct gyre_cuda_recorder *recorder; /* NULL: the launch is not recorded */
    uint64_t first;                      /* entry of the launch's first step */
};

static __device__ __forceinline__ struct step_recorder open_step_recorder(const struct block &block)
{
    struct step_recorder own = {};
    if (records_steps(block.common))
        own.recorder = block.common.recording.recorder;
    if (own.recorder != nullptr)
        own.first =
            own.recorder->blocks[blockIdx.x].n_entries + record_end_entries(block.n_connections);
    return own;
}

struct lane_wait {
    uint64_t begin_ns;
    uint32_t waited_ns; /* from begin_ns on, at most 4 s; 0: the lane has no slot */
    uint32_t n_bytes;
};

static __device__ __forceinline__ void begin_lane_wait(struct lane_wait *waited)
{
    waited->begin_ns = global_ns();
    waited->waited_ns = 0;
}

static __device__ __forceinline__ void end_lane_wait(struct lane_wait *waited)
{
    const uint64_t ns = global_ns() - waited->begin_ns;
    waited->waited_ns = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* All lanes of the waiter's warp. Lanes below `first_out_lane` wait for data, others for room. */
static __device__ __noinline__ void record_waited_step(struct step_recorder own, uint32_t number,
                                                       struct lane_wait waited,
                                                       uint32_t first_out_lane)
{
    const uint32_t all = 0xffffffffU, lane = threadIdx.x % 32;
    const uint32_t data_ns = __reduce_max_sync(all, lane >= first_out_lane ? 0 : waited.waited_ns);
    const uint32_t ready_ns = __reduce_max_sync(all, waited.waited_ns);
    if (lane != 0)
        return;
    union gyre_cuda_record *entry = record_at(own.recorder, own.first + number);
    *(ulonglong2 *)entry = {waited.begin_ns, data_ns | (uint64_t)ready_ns << 32};
    entry->step.n_bytes = waited.n_bytes;
}

static __device__ __noinline__ void end_recorded_step(struct gyre_cuda_recorder *recorder,
                                                      uint64_t first, uint32_t number)
{
    record_at(recorder, first + number)->step.end_ns = global_ns();
}

static __device__ __forceinline__ void end_recorded_steps(struct gyre_cuda_recorder *recorder,
                                                          uint32_t n_steps)
{
    recorder->blocks[blockIdx.x].n_steps = n_steps;
}

#endif
