/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena of GPU memory, cut into blocks by the host: lowered programs, scratch areas and tables
 * of addresses. The memory is allocated once, when the executor is opened. Allocating later would
 * wait for kernels, and a kernel may wait for a rank whose thread is inside gyre. The arena only
 * does arithmetic with addresses, so it is tested without a GPU.
 *
 * A block is in use until the launch that read it last has ended. Blocks that a CUDA graph has
 * captured stay in use for good: the graph can be launched again at any time.
 */
#ifndef GYRE_KERNELS_CUDA_ARENA_H
#define GYRE_KERNELS_CUDA_ARENA_H

#include "core/foundation/base/status.h"

#define GYRE_CUDA_ARENA_ALIGN_BYTES 256

struct gyre_cuda_arena_block {
    struct gyre_cuda_arena_block *next; /* in the order of addresses */
    unsigned char *address;
    size_t n_bytes;     /* a multiple of GYRE_CUDA_ARENA_ALIGN_BYTES */
    uint64_t last_work; /* number of the last work that reads it; 0 = none has been launched */
    bool is_captured;
    bool is_given_back;
    struct gyre_cuda_arena_block **holder; /* as given to gyre_cuda_arena_take() */
};

struct gyre_cuda_arena {
    unsigned char *base;
    size_t n_bytes;
    struct gyre_cuda_arena_block *first;
    uint64_t n_evicted;
};

/** gyre_cuda_arena_open - the arena's memory stays the caller's.
 * @base: a multiple of GYRE_CUDA_ARENA_ALIGN_BYTES; never read or written. */
void gyre_cuda_arena_open(struct gyre_cuda_arena *arena, void *base, size_t n_bytes);

/** gyre_cuda_arena_close - forget all blocks. */
void gyre_cuda_arena_close(struct gyre_cuda_arena *arena);

/** gyre_cuda_arena_take - take a block. Where there is no room, blocks that no launch uses any more
 * are evicted, those that were used longest ago first.
 * @n_completed: all works up to this number are over.
 * @holder: where the caller keeps the block, set to NULL when the arena evicts it for another
 * block; NULL = it is never evicted.
 * @block_out: the arena's; until it is evicted or given back.
 * Errors: OUT_OF_MEMORY (everything else is in use, or the host has no memory). */
gyre_status gyre_cuda_arena_take(struct gyre_cuda_arena *arena, size_t n_bytes,
                                 uint64_t n_completed, struct gyre_cuda_arena_block **holder,
                                 struct gyre_cuda_arena_block **block_out);

/** gyre_cuda_arena_give_back - the caller no longer needs the block. Its memory is used again once
 * the works that read it are over.
 * @block: may be NULL. @n_launched: works up to this number may read it. */
void gyre_cuda_arena_give_back(struct gyre_cuda_arena_block *block, uint64_t n_launched);

#endif
