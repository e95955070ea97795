/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels between copies of copy engines. The sync kernel, of one block, tells the peers that this
 * rank's copies are complete and waits for theirs.
 */
#include "kernels/cuda/device/fifo.cuh"
#include "kernels/cuda/runtime/kernel_table.h"
#include "kernels/cuda/device/move.cuh"

struct sync_end {
    struct fifo fifo; /* fifo.number: that of the entry's slot */
    uint32_t depth;
};

static __device__ __forceinline__ struct sync_end open_end(const struct gyre_cuda_common &common,
                                                           const struct gyre_cuda_sync_entry &entry)
{
    const struct gyre_connector *end = &common.connectors[entry.index];
    return {{end->inbox, end->credit, common.counters[entry.index] + entry.slot, entry.index},
            end->depth};
}

/* Earlier copies of the stream have arrived, and the fence orders them before the tail. */
static __device__ __forceinline__ void post(const struct gyre_cuda_args_sync &args,
                                            const struct gyre_cuda_sync_entry &entry)
{
    const struct sync_end end = open_end(args.common, entry);
    if ((entry.acts & GYRE_CUDA_SYNC_OPEN) != 0)
        fifo_announce_entry(end.fifo);
    if ((entry.acts & GYRE_CUDA_SYNC_POST) == 0)
        return;
    fifo_describe(end.fifo, end.fifo.number % end.depth,
                  gyre_slot_info(entry.n_bytes, args.signature));
    fence_acq_rel_sys();
    fifo_publish(end.fifo, 1);
}

static __device__ __forceinline__ bool await_peer(const struct gyre_cuda_args_sync &args,
                                                  const struct gyre_cuda_sync_entry &entry)
{
    const struct gyre_cuda_common &common = args.common;
    const struct sync_end end = open_end(common, entry);
    if ((entry.acts & GYRE_CUDA_SYNC_ENTER) != 0 && !fifo_await_entry(common, end.fifo))
        return false;
    if ((entry.acts & GYRE_CUDA_SYNC_CREDIT) != 0 &&
        !fifo_await_room(common, end.fifo, 1, end.depth))
        return false;
    if ((entry.acts & GYRE_CUDA_SYNC_TAKE) == 0)
        return true;
    if (!fifo_await_slot(common, end.fifo, 0) ||
        !fifo_is_of_call(common, end.fifo, end.fifo.number % end.depth,
                         gyre_slot_info(entry.n_bytes, args.signature)))
        return false;
    /* No fence: only the slot's header was read, and the comparison has used it. */
    fifo_return(end.fifo, 1);
    return true;
}

static __global__ void __launch_bounds__(GYRE_CUDA_SYNC_THREADS)
    sync_kernel(const __grid_constant__ struct gyre_cuda_args_sync args)
{
    const struct gyre_cuda_common &common = args.common;
    const uint64_t sequence = begin_launch(common);
    announce_launch(common, sequence);
    bool goes_on = load_relaxed_sys(&common.control->is_aborted) == 0;
    for (uint32_t i = threadIdx.x; i < args.n_entries && goes_on; i += blockDim.x)
        post(args, args.entries[i]);
    for (uint32_t i = threadIdx.x; i < args.n_entries && goes_on; i += blockDim.x)
        goes_on = await_peer(args, args.entries[i]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.n_entries; i += blockDim.x)
        if ((args.entries[i].acts & GYRE_CUDA_SYNC_COUNT) != 0)
            common.counters[args.entries[i].index] += args.entries[i].slot;
    end_launch(common, sequence, 0, {common.recording.program, 1, 0, 0});
}

/* Within this GPU's memory, because a copy engine would have less bandwidth left for peers. */
static __global__ void __launch_bounds__(GYRE_CUDA_COPY_THREADS)
    copy_within(const __grid_constant__ struct gyre_cuda_args_copy args)
{
    struct move move;
    struct move_head head = {.n_ins = 1, .n_outs = 1};
    head.misalignment = (uint8_t)(((uintptr_t)args.from | (uintptr_t)args.to) & 15U);
    for (uint64_t at = (uint64_t)blockIdx.x * GYRE_CUDA_COPY_PIECE; at < args.n_bytes;
         at += (uint64_t)gridDim.x * GYRE_CUDA_COPY_PIECE) {
        move.ins[0] = args.from + at;
        move.outs[0] = args.to + at;
        head.n_bytes = (uint32_t)gyre_cuda_min(args.n_bytes - at, GYRE_CUDA_COPY_PIECE);
        move_bytes<DTYPE_NONE, GYRE_SUM>(head, move, threadIdx.x, blockDim.x);
    }
}

extern "C" const void *const gyre_cuda_kernel_copy_within = (const void *)&copy_within;
extern "C" const void *const gyre_cuda_kernel_sync = (const void *)&sync_kernel;
