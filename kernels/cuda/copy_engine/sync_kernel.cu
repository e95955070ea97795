/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels between copies of copy engines and beside them. A gate is one block that tells the
 * peers what was copied and waits for what they copy. Counters live in device memory as with every
 * other kernel, so a captured call replays without the host.
 */
#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/runtime/kernel_table.h"
#include "kernels/cuda/device/move.cuh"

struct gate_end {
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
    uint32_t depth;
    uint64_t number; /* of the slot */
};

static __device__ __forceinline__ struct gate_end find_end(const struct gyre_cuda_common &common,
                                                           const struct gyre_cuda_gate_entry &entry)
{
    const struct gyre_connector *end = &common.connectors[entry.index];
    return {end->inbox, end->credit, end->depth, common.counters[entry.index] + entry.slot};
}

/* Copies before this launch in the stream have arrived; the fence orders them before the word. */
static __device__ __forceinline__ void post(const struct gyre_cuda_args_gate &args,
                                            const struct gyre_cuda_gate_entry &entry)
{
    const struct gate_end end = find_end(args.common, entry);
    if ((entry.acts & GYRE_CUDA_GATE_OPEN) != 0)
        store_relaxed_sys(&end.credit->head[GYRE_HEAD_ENTERED], end.number + 1);
    if ((entry.acts & GYRE_CUDA_GATE_POST) == 0)
        return;
    store_relaxed_sys(&end.inbox->slot_info[end.number % end.depth],
                      gyre_slot_info(entry.n_bytes, args.signature));
    fence_acq_rel_sys();
    store_relaxed_sys(&end.inbox->tail[GYRE_PROTO_SIMPLE], end.number + 1);
}

/* Until the word has come to `number`. Returns false when aborted. */
static __device__ __forceinline__ bool await_word(const struct gyre_cuda_common &common,
                                                  const uint64_t *word, uint64_t number)
{
    uint32_t n_polls = 0;
    while ((int64_t)(load_acquire_sys(word) - number) < 0)
        if (must_stop(common, n_polls))
            return false;
    return true;
}

static __device__ __forceinline__ bool await_peer(const struct gyre_cuda_args_gate &args,
                                                  const struct gyre_cuda_gate_entry &entry)
{
    const struct gyre_cuda_common &common = args.common;
    const struct gate_end end = find_end(common, entry);
    if ((entry.acts & GYRE_CUDA_GATE_ENTER) != 0 &&
        !await_word(common, &end.credit->head[GYRE_HEAD_ENTERED], end.number + 1))
        return false;
    if ((entry.acts & GYRE_CUDA_GATE_CREDIT) != 0 &&
        !await_word(common, &end.credit->head[GYRE_PROTO_SIMPLE], end.number + 1 - end.depth))
        return false;
    if ((entry.acts & GYRE_CUDA_GATE_TAKE) == 0)
        return true;
    if (!await_word(common, &end.inbox->tail[GYRE_PROTO_SIMPLE], end.number + 1))
        return false;
    if (load_relaxed_sys(&end.inbox->slot_info[end.number % end.depth]) !=
        gyre_slot_info(entry.n_bytes, args.signature)) {
        report_mismatch(common, entry.index);
        return false;
    }
    /* The slot holds nothing but that word, which was used. */
    store_relaxed_sys(&end.credit->head[GYRE_PROTO_SIMPLE], end.number + 1);
    return true;
}

static __global__ void __launch_bounds__(GYRE_CUDA_GATE_THREADS)
    gate(const __grid_constant__ struct gyre_cuda_args_gate args)
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
        if ((args.entries[i].acts & GYRE_CUDA_GATE_COUNT) != 0)
            common.counters[args.entries[i].index] += args.entries[i].slot;
    end_launch(common, sequence, 0);
}

/* A copy within this GPU's memory: a copy engine that also does this has less left for the peers.
 */
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
extern "C" const void *const gyre_cuda_kernel_gate = (const void *)&gate;
