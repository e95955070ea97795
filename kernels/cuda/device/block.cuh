/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of the interpreter: its connections, steps and counters for the next launch.
 */
#ifndef GYRE_KERNELS_CUDA_BLOCK_CUH
#define GYRE_KERNELS_CUDA_BLOCK_CUH

#include "kernels/cuda/device/fifo.cuh"

/* In shared memory. */
struct connection {
    unsigned char *slots;
    uint64_t *awaited; /* polled: tail (receiver) or head (sender) */
    uint64_t *posted;  /* written: head (receiver) or tail (sender) */
    uint64_t *slot_info;
    uint64_t number;  /* slots before this launch */
    uint64_t seen[2]; /* last values of `awaited`; line protocols: of even and odd tiles */
    uint32_t first_slot;
    uint16_t depth;
    uint16_t mask; /* depth - 1 if depth is a power of two, else 0 */
    uint32_t n_uses;
    uint32_t index;
    uint32_t slot_bytes;
    uint8_t is_send;
    uint8_t is_net;      /* LL: a proxy sends the lines */
    uint8_t has_entered; /* 1: the receiver of placed data is in this call */
    uint8_t is_simple;
};

static_assert(sizeof(struct connection) == 80, "load.c sizes shared memory by it");

static __device__ __forceinline__ bool is_of_simple(const struct connection *own)
{
    return knows_proxies && own->is_simple != 0;
}

static __device__ __forceinline__ bool is_of_net(const struct connection *own)
{
    return knows_proxies && own->is_net != 0;
}

struct block {
    const struct gyre_cuda_common &common;
    const struct gyre_cuda_work &work;
    struct gyre_cuda_share share; /* of this channel */
    struct connection *connections;
    const struct gyre_cuda_step *steps;
    uint4 *rest; /* shared memory for the protocol */
    uint32_t n_connections;
    uint32_t n_steps;
    uint32_t channel;
    uint32_t number; /* among the blocks that work */
    uint64_t sequence;
    bool is_aborted; /* before this block began */
};

template <int PROTO>
static __device__ __forceinline__ void
open_connection(struct connection *own, const struct gyre_cuda_common &common, uint32_t index,
                const struct gyre_cuda_connection &use)
{
    const struct gyre_connector *end = &common.connectors[index];
    const bool is_simple = knows_proxies && PROTO != GYRE_PROTO_SIMPLE && use.is_simple != 0;
    const uint64_t number = (is_simple ? common.simple_counters : common.counters)[index];
    const enum gyre_proto proto =
        is_simple ? GYRE_PROTO_SIMPLE : gyre_proto_slots((enum gyre_proto)PROTO);
    const bool is_send = (index & 1) != 0;
    const bool is_net =
        knows_proxies && PROTO == GYRE_PROTO_LL && !is_simple && end->is_proxied != 0;
    struct gyre_inbox *inbox = end->inbox;
    struct gyre_credit *credit = end->credit;
    const uint32_t depth = end->depth;
    const uint32_t slot_bytes = end->slot_bytes;
    own->slots = end->slots[proto];
    own->awaited = is_send ? &credit->head[proto] : &inbox->tail[proto];
    own->posted = is_send ? &inbox->tail[proto] : &credit->head[proto];
    own->slot_info = inbox->slot_info;
    own->number = number;
    /* A sender reads its credit before it needs it. A receiver of lines reads no tail. */
    own->seen[0] = is_send ? load_acquire_sys(&credit->head[proto]) : 0;
    /* Line protocols: the next launch gives the credit of a launch's last tile, because a kernel's
     * end waits for all its stores to peers, but a store at the beginning is in flight while the
     * block works. */
    if (PROTO != GYRE_PROTO_SIMPLE && !is_simple && !is_send)
        store_relaxed_sys(&credit->head[proto], number);
    own->mask = (uint16_t)((depth & (depth - 1)) == 0 ? depth - 1 : 0);
    own->first_slot = own->mask != 0 ? (uint32_t)number & own->mask : (uint32_t)(number % depth);
    own->depth = (uint16_t)depth;
    own->slot_bytes = PROTO == GYRE_PROTO_SIMPLE || is_simple ? slot_bytes
                      : is_net                                ? common.net_line_bytes
                                                              : common.slot_bytes;
    own->n_uses = use.n_uses;
    own->has_entered = 0;
    own->is_simple = is_simple;
    own->is_net = is_net;
    /* Peers may store to this rank's OUT from here on: all earlier launches are over. */
    if (PROTO == GYRE_PROTO_SIMPLE && use.is_placed != 0 && !is_send)
        store_relaxed_sys(&credit->head[GYRE_HEAD_ENTERED], number + 1);
    own->index = index;
    own->is_send = is_send;
}

/* To shared memory: parameters are slow to read when a warp's threads read different addresses. */
static __device__ __forceinline__ const unsigned char *
fetch_program(const struct gyre_cuda_work &work, const unsigned char *parameters,
              uint32_t n_connections_words)
{
    uint4 *copy = shared_words + n_connections_words;
    if (work.inline_words == 0)
        return work.program;
    for (uint32_t i = threadIdx.x; i < work.inline_words; i += blockDim.x)
        copy[i] = ((const uint4 *)parameters)[i];
    __syncthreads();
    return (const unsigned char *)copy;
}

/* Loads are in flight together. Ends with a barrier. @parameters: for inline_words. */
template <int PROTO>
static __device__ __forceinline__ struct block
open_block(const struct gyre_cuda_common &common, const struct gyre_cuda_work &work,
           const unsigned char *parameters, uint32_t block_of_work)
{
    await_last_launch();
    const uint64_t sequence = begin_launch(common);
    const uint32_t is_aborted_before = load_relaxed_sys(&common.control->is_aborted);
    const uint32_t connections_words =
        work.max_connections * (uint32_t)(sizeof(struct connection) / 16);
    const unsigned char *program = fetch_program(work, parameters, connections_words);
    const struct gyre_cuda_program *header = (const struct gyre_cuda_program *)program;
    const uint32_t channel = work.n_workers == 1 ? block_of_work : block_of_work / work.n_workers;
    const uint32_t variant = work.n_variants == 1 ? 0 : channel % work.n_variants;
    const struct gyre_cuda_worker worker =
        ((const struct gyre_cuda_worker
              *)(program + header->workers_offset))[variant * work.n_workers + block_of_work -
                                                    channel * work.n_workers];
    const struct gyre_cuda_connection *connections =
        (const struct gyre_cuda_connection *)(program + header->connections_offset) +
        worker.first_connection;
    const struct gyre_cuda_step *steps =
        (const struct gyre_cuda_step *)(program + header->steps_offset) + worker.first_step;
    struct connection *own = (struct connection *)shared_words;
    uint4 *rest = shared_words + connections_words + work.inline_words;
    for (uint32_t i = threadIdx.x; i < worker.n_connections; i += blockDim.x)
        open_connection<PROTO>(
            &own[i], common, connections[i].index + channel * work.channel_stride, connections[i]);
    if (work.shares_steps != 0) {
        const uint32_t n_words = worker.n_steps * (uint32_t)(sizeof(struct gyre_cuda_step) / 16);
        /* The first threads are busy with connections. */
        for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < n_words; i += blockDim.x)
            rest[i] = ((const uint4 *)steps)[i];
        steps = (const struct gyre_cuda_step *)rest;
        rest += n_words;
    }
    announce_launch(common, sequence);
    const bool is_aborted = __syncthreads_or(is_aborted_before != 0) != 0;
    return {common,
            work,
            gyre_cuda_share_make(&work.split, channel),
            own,
            steps,
            rest,
            worker.n_connections,
            worker.n_steps,
            channel,
            work.first_block + block_of_work,
            sequence,
            is_aborted};
}

/* @n_line_steps: 0 in SIMPLE, whose poster has recorded them. */
static __device__ __noinline__ void record_connections(const struct gyre_cuda_common &common,
                                                       const struct connection *connections,
                                                       uint32_t n_connections,
                                                       uint32_t n_line_steps)
{
    struct gyre_cuda_recorder *recorder = common.recording.recorder;
    for (uint32_t i = threadIdx.x; i < n_connections; i += blockDim.x)
        record_fifo_end(recorder, i, connections[i].index, connections[i].number);
    if (n_line_steps > 0 && threadIdx.x == 0 && load_relaxed_sys(&common.control->is_aborted) == 0)
        recorder->blocks[blockIdx.x].n_steps = n_line_steps;
}

template <int PROTO> static __device__ __forceinline__ void close_block(const struct block &block)
{
    const struct gyre_cuda_common &common = block.common;
    const uint32_t n_tiles = block.work.split.n_tiles;
    if (is_recorded(common))
        record_connections(
            common, block.connections, block.n_connections,
            PROTO == GYRE_PROTO_SIMPLE || !records_steps(common) ? 0 : n_tiles * block.n_steps);
    __syncthreads();
    if (threadIdx.x == 0)
        allow_dependent_launch();
    for (uint32_t i = threadIdx.x; i < block.n_connections; i += blockDim.x) {
        const struct connection *own = &block.connections[i];
        uint64_t *counters = common.counters;
        if (PROTO != GYRE_PROTO_SIMPLE && is_of_simple(own))
            counters = common.simple_counters;
        counters[own->index] = own->number + (uint64_t)own->n_uses * n_tiles;
    }
    end_launch(
        common, block.sequence, block.number,
        {block.work.traced, n_tiles, block.n_connections, block.number - block.work.first_block});
}

/* Of tiles in flight together, the first uses come before all second uses. */
static __device__ __forceinline__ uint32_t slots_before(const struct block &block,
                                                        const struct connection *own, uint32_t tile,
                                                        uint32_t use)
{
    const uint32_t n_in_flight = block.work.n_in_flight;
    if (n_in_flight == 1)
        return tile * own->n_uses + use;
    const uint32_t place = tile % n_in_flight;
    const uint32_t first = tile - place;
    const uint32_t n_side = min(n_in_flight, block.work.split.n_tiles - first);
    return first * own->n_uses + use * n_side + place;
}

static __device__ __forceinline__ uint32_t slot_index(const struct connection *own,
                                                      uint32_t n_before)
{
    const uint32_t number = own->first_slot + n_before;
    return own->mask != 0 ? number & own->mask : number % own->depth;
}

static __device__ __forceinline__ unsigned char *slot_address(const struct connection *own,
                                                              uint32_t n_before)
{
    return own->slots + (size_t)slot_index(own, n_before) * own->slot_bytes;
}

/* @range: of the step's chunk. */
static __device__ __forceinline__ unsigned char *chunk_address(const struct block &block,
                                                               uint32_t ref, uint32_t tile,
                                                               uint32_t step_chunk,
                                                               struct gyre_range range)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t kind = ref >> GYRE_CUDA_REF_KIND_SHIFT;
    const uint32_t index = ref & GYRE_CUDA_REF_INDEX_MASK;
    if (kind == GYRE_OPERAND_SCRATCH)
        return work.scratch +
               (size_t)((block.channel * work.n_in_flight + tile % work.n_in_flight) *
                            work.n_areas +
                        index) *
                   work.area_bytes;
    uint64_t first = range.first_elem;
    if (kind == GYRE_OPERAND_IN ? work.in_blocks : work.out_blocks)
        first += index * work.split.count;
    else if (index != step_chunk)
        first = gyre_cuda_tile_range(&block.share, index, tile).first_elem;
    unsigned char *base = kind == GYRE_OPERAND_IN ? (unsigned char *)work.in : work.out;
    return base + first * work.elem_bytes;
}

static __device__ __forceinline__ unsigned char *placed_address(const struct block &block,
                                                                const struct connection *own,
                                                                uint32_t tile, uint32_t step_chunk,
                                                                struct gyre_range range)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t ref = (uint32_t)GYRE_OPERAND_OUT << GYRE_CUDA_REF_KIND_SHIFT | step_chunk;
    unsigned char *here = chunk_address(block, ref, tile, step_chunk, range);
    if (own->is_send == 0)
        return here;
    unsigned char *base = (unsigned char *)work.bases[own->index / block.common.ends_per_rank];
    return base + work.out_offset_bytes + (here - work.out);
}

/* Has slot `number` arrived (receiver), or is there room for it (sender)? */
static __device__ __forceinline__ bool has_reached(const struct connection *own, uint64_t seen,
                                                   uint64_t number)
{
    return (int64_t)(seen - (number + 1 - (own->is_send != 0 ? own->depth : 0))) >= 0;
}

#endif
