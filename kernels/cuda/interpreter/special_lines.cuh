/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of line protocols that are recorded or use connections which proxies serve.
 *
 * On several hosts connections that proxies serve go by SIMPLE (connection.is_simple), all others
 * by lines. Before such a step one warp waits for their slots, which hold plain bytes, and all
 * threads wait for that warp. After it, behind a barrier, the warp publishes written slots and
 * gives back read ones.
 *
 * Where they go by LL (connection.is_net), a NIC or a proxy writes arriving lines in place of a
 * peer. Sent lines lie in host memory. Before the step the warp tells the proxy how many there will
 * be, and the proxy waits for their flags.
 */
#ifndef GYRE_KERNELS_CUDA_SPECIAL_LINES_CUH
#define GYRE_KERNELS_CUDA_SPECIAL_LINES_CUH

#include "kernels/cuda/interpreter/line_step.cuh"

/* `n_before` entries after the launch's first one. */
static __device__ __noinline__ unsigned char *
line_record_address(const struct gyre_cuda_recorder *recorder, uint32_t n_before)
{
    return (unsigned char *)record_at(recorder, recorder->blocks[blockIdx.x].n_entries + n_before);
}

static __device__ __forceinline__ void record_line_end(const struct line_operand *operands)
{
    ((union gyre_cuda_record *)operands[LINE_RECORD].base)->step.end_ns = global_ns();
}

/* By value: if a function out of line had its address, `struct block` would leave the registers. */
struct simple_slots {
    struct connection *connections;
    const struct gyre_cuda_step *step;
    uint64_t slot_info;
    uint32_t lane_mask;
    uint32_t tile;
};

static __device__ __forceinline__ struct simple_slots
simple_slots_of(const struct block &block, const struct gyre_cuda_step *step,
                const struct line_step &line, uint32_t tile)
{
    return {block.connections, step, gyre_slot_info(line.n_bytes, block.work.signature),
            line.simple_mask & ~LINE_RECORDED, tile};
}

/* This lane's, or NULL. One tile is in flight. @n_before_out: slots of the launch before it. */
static __device__ __forceinline__ struct connection *
find_simple_slot(const struct simple_slots &slots, uint32_t *n_before_out)
{
    const uint32_t lane = threadIdx.x % 32;
    if ((slots.lane_mask >> lane & 1) == 0)
        return nullptr;
    const struct gyre_cuda_operand operand =
        lane >= LINE_FIRST_OUT ? slots.step->outs[lane - LINE_FIRST_OUT] : slots.step->ins[lane];
    struct connection *own = &slots.connections[operand.ref];
    *n_before_out = slots.tile * own->n_uses + operand.use;
    return own;
}

/* Arrived slots are of this call too. False in lanes that saw an abort. */
static __device__ __forceinline__ bool await_simple(const struct gyre_cuda_common &common,
                                                    const struct simple_slots &slots)
{
    uint32_t n_polls = 0, n_before = 0;
    struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return true;
    while (!has_reached(own, load_acquire_sys(own->awaited), own->number + n_before))
        if (must_stop(common, n_polls))
            return false;
    if (own->is_send == 0 &&
        load_relaxed_sys(&own->slot_info[slot_index(own, n_before)]) != slots.slot_info) {
        report_mismatch(common, own->index);
        return false;
    }
    return true;
}

/* In one thread. The first line of each input stands for all. This warp has not cleared it yet. */
template <class STEP>
static __device__ __forceinline__ void record_line_wait(const struct gyre_cuda_common &common,
                                                        const struct line_slot *slot,
                                                        uint64_t begin_ns)
{
    const struct line_step line = read_line_step(slot);
    union gyre_cuda_record *entry = (union gyre_cuda_record *)line.operands[LINE_RECORD].base;
    uint32_t n_polls = 0;
    for (uint32_t i = 0; line.n_bytes > 0 && line.recv_mask >> i != 0; i++)
        while ((line.recv_mask >> i & 1) != 0 && !STEP::first_line_has_arrived(line.operands[i]))
            if (must_stop(common, n_polls))
                return;
    const uint64_t waited_ns = gyre_cuda_min(global_ns() - begin_ns, UINT32_MAX);
    *(ulonglong2 *)entry = {begin_ns, waited_ns | waited_ns << 32};
    entry->step.n_bytes = line.n_bytes;
}

/* The first warp calls this. With slots of SIMPLE, a barrier comes after. False in lanes that saw
 * an abort. Out of line, because programs of one host come here only when they are recorded. */
template <class STEP>
static __device__ __noinline__ bool prepare_step(const struct gyre_cuda_common &common,
                                                 struct simple_slots slots,
                                                 const struct line_slot *slot)
{
    const uint64_t begin_ns = records_steps(common) ? global_ns() : 0;
    const bool goes_on = await_simple(common, slots);
    if (records_steps(common) && threadIdx.x == 0 && goes_on)
        record_line_wait<STEP>(common, slot, begin_ns);
    return goes_on;
}

/* The first warp calls this after a barrier (sync.cuh, "SIMPLE"). */
static __device__ __noinline__ void publish_simple(struct simple_slots slots)
{
    uint32_t n_before = 0;
    struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return;
    if (own->is_send != 0)
        store_relaxed_sys(&own->slot_info[slot_index(own, n_before)], slots.slot_info);
    fence_acq_rel_sys();
    store_relaxed_sys(own->posted, own->number + n_before + 1);
}

/* By the first warp, when there is credit and before the lines are stored. The lines and this word
 * do not wait for each other, because each has a flag. */
static __device__ __noinline__ void announce_lines(struct simple_slots slots)
{
    uint32_t n_before = 0;
    const struct connection *own = find_simple_slot(slots, &n_before);
    if (own == nullptr)
        return;
    const uint32_t n_lines =
        ((uint32_t)slots.slot_info + GYRE_LL_DATA_BYTES - 1) / GYRE_LL_DATA_BYTES;
    store_relaxed_sys(&own->slot_info[GYRE_FIRST_LINE_INFO + slot_index(own, n_before)],
                      gyre_ll_announcement(own->number + n_before, n_lines));
}

#endif
