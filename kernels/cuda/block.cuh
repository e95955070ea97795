/* SPDX-License-Identifier: Apache-2.0
 *
 * One block: which worker of which channel of which work it is, its connections and steps in
 * shared memory, and what it leaves behind for the next launch.
 */
#ifndef GYRE_KERNELS_CUDA_BLOCK_CUH
#define GYRE_KERNELS_CUDA_BLOCK_CUH

#include "kernels/cuda/sync.cuh"

/* A FIFO end of this worker; in shared memory. */
struct connection {
    unsigned char *slots;
    uint64_t *awaited;   /* tail (receiving end) or head (sending end) */
    uint64_t *posted;    /* the other one of the two */
    uint64_t *slot_info; /* of the inbox */
    uint64_t number;     /* slots posted or consumed before this launch */
    uint64_t seen;       /* last value read from `awaited` */
    uint32_t first_slot; /* number % depth */
    uint32_t depth;
    uint32_t n_uses;
    uint32_t index;
    uint32_t is_send;
    uint32_t pad[3];
};

static_assert(sizeof(struct connection) == 80, "cuda_exec.c sizes shared memory by it");

struct block {
    const struct gyre_cuda_common &common;
    const struct gyre_cuda_work &work;
    struct connection *connections; /* shared memory */
    const struct gyre_cuda_step *steps;
    uint32_t n_connections;
    uint32_t n_steps;
    uint32_t channel;
    bool is_aborted; /* before it began */
};

/* Steps beyond this stay in global memory. */
#define MAX_SHARED_STEPS 256

extern __shared__ uint4 shared_words[];

static __device__ __forceinline__ void open_connection(struct connection *own, int proto,
                                                       const struct gyre_cuda_common &common,
                                                       uint32_t index, uint32_t n_uses)
{
    const struct gyre_connector *end = &common.connectors[index];
    const uint64_t number = common.counters[index];
    const bool is_send = (index & 1) != 0;
    struct gyre_inbox *inbox = end->inbox;
    struct gyre_credit *credit = end->credit;
    const uint32_t depth = end->depth;
    own->slots = end->slots[proto];
    own->awaited = is_send ? &credit->head[proto] : &inbox->tail[proto];
    own->posted = is_send ? &inbox->tail[proto] : &credit->head[proto];
    own->slot_info = inbox->slot_info;
    own->number = number;
    /* Lines carry their own readiness; credit is read before it is needed. */
    own->seen = is_send ? load_acquire_sys(&credit->head[proto]) : 0;
    own->first_slot = (uint32_t)(number % depth);
    own->depth = depth;
    own->n_uses = n_uses;
    own->index = index;
    own->is_send = is_send;
}

/* Everything a block needs, read from memory at the same time; ends with a barrier. */
template <int PROTO>
static __device__ __forceinline__ struct block
open_block(const struct gyre_cuda_common &common, const struct gyre_cuda_work &work,
           const unsigned char *program, uint32_t block_of_work)
{
    const struct gyre_cuda_program *header = (const struct gyre_cuda_program *)program;
    const uint32_t channel = block_of_work / work.n_workers;
    const struct gyre_cuda_worker worker =
        ((const struct gyre_cuda_worker *)(program +
                                           header->workers_offset))[block_of_work % work.n_workers];
    const struct gyre_cuda_connection *connections =
        (const struct gyre_cuda_connection *)(program + header->connections_offset) +
        worker.first_connection;
    const struct gyre_cuda_step *steps =
        (const struct gyre_cuda_step *)(program + header->steps_offset) + worker.first_step;
    struct connection *own = (struct connection *)shared_words;
    for (uint32_t i = threadIdx.x; i < worker.n_connections; i += blockDim.x)
        open_connection(&own[i], PROTO, common,
                        connections[i].index + channel * work.channel_stride,
                        connections[i].n_uses);
    if (worker.n_steps <= MAX_SHARED_STEPS) {
        uint4 *copy = (uint4 *)(own + worker.n_connections);
        const uint32_t n_words = worker.n_steps * (uint32_t)(sizeof(struct gyre_cuda_step) / 16);
        /* From the last thread down: the first ones are busy with connections. */
        for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < n_words; i += blockDim.x)
            copy[i] = ((const uint4 *)steps)[i];
        steps = (const struct gyre_cuda_step *)copy;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        common.control->n_started += common.n_works;
        store_relaxed_sys(&common.board->pulse.progress, common.control->n_started);
    }
    const bool is_aborted = __syncthreads_or(common.control->is_aborted != 0) != 0;
    return {common, work, own, steps, worker.n_connections, worker.n_steps, channel, is_aborted};
}

static __device__ __forceinline__ void close_block(const struct block &block)
{
    const struct gyre_cuda_common &common = block.common;
    const uint32_t n_tiles = block.work.split.n_tiles;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < block.n_connections; i += blockDim.x) {
        const struct connection *own = &block.connections[i];
        common.counters[own->index] = own->number + (uint64_t)own->n_uses * n_tiles;
    }
    if (threadIdx.x != 0)
        return;
    struct gyre_cuda_control *control = common.control;
    if (common.n_blocks > 1 && atomicAdd(&control->n_blocks_done, 1U) + 1 < common.n_blocks)
        return;
    control->n_blocks_done = 0;
    control->n_completed += common.n_works;
    store_relaxed_sys(&common.board->pulse.completed, control->n_completed);
}

/* The number, from 0, that a slot has among all that its FIFO ever moved. */
static __device__ __forceinline__ uint64_t slot_number(const struct connection *own, uint32_t tile,
                                                       uint32_t use)
{
    return own->number + (uint64_t)tile * own->n_uses + use;
}

static __device__ __forceinline__ unsigned char *
slot_address(const struct block &block, const struct connection *own, uint32_t tile, uint32_t use)
{
    const uint32_t slot = (own->first_slot + tile * own->n_uses + use) % own->depth;
    return own->slots + (size_t)slot * block.common.slot_bytes;
}

/* Where a chunk's part of the step begins. @range: of the step's own chunk. */
static __device__ __forceinline__ unsigned char *chunk_address(const struct block &block,
                                                               uint32_t ref, uint32_t tile,
                                                               uint32_t step_chunk,
                                                               struct gyre_range range)
{
    const struct gyre_cuda_work &work = block.work;
    const uint32_t kind = ref >> GYRE_CUDA_REF_KIND_SHIFT;
    const uint32_t index = ref & GYRE_CUDA_REF_INDEX_MASK;
    if (kind == GYRE_OPERAND_SCRATCH)
        return work.scratch + (size_t)(block.channel * work.n_areas + index) * work.area_bytes;
    uint64_t first = range.first_elem;
    if (kind == GYRE_OPERAND_IN ? work.in_blocks : work.out_blocks)
        first += index * work.split.count;
    else if (index != step_chunk)
        first = gyre_cuda_tile_range(&work.split, block.channel, index, tile).first_elem;
    unsigned char *base = kind == GYRE_OPERAND_IN ? (unsigned char *)work.in : work.out;
    return base + first * work.elem_bytes;
}

/* Is there data (receiving end) or room (sending end) for the slot of that number? */
static __device__ __forceinline__ bool has_reached(const struct connection *own, uint64_t seen,
                                                   uint64_t number)
{
    return (int64_t)(seen - (number + 1 - (own->is_send != 0 ? own->depth : 0))) >= 0;
}

#endif
