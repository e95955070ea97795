/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory, cut into blocks: lowered programs, scratch areas, tables of addresses. It is
 * allocated when the executor opens, because allocating later would wait for kernels, which may
 * wait for a rank whose thread is inside gyre.
 *
 * A block is in use until the launch that read it last has ended; blocks captured by a CUDA graph
 * stay for good.
 */
#ifndef GYRE_KERNELS_CUDA_ARENA_H
#define GYRE_KERNELS_CUDA_ARENA_H

#include "core/foundation/base/status.h"

#define GYRE_CUDA_ARENA_ALIGN_BYTES 256

struct gyre_cuda_arena_block {
    struct gyre_cuda_arena_block *next; /* in the order of addresses */
    unsigned char *address;
    size_t n_bytes;     /* a multiple of GYRE_CUDA_ARENA_ALIGN_BYTES */
    uint64_t last_work; /* 0 = none */
    bool is_captured;
    bool is_given_back;
    struct gyre_cuda_arena_block **holder; /* gyre_cuda_arena_take()'s */
};

struct gyre_cuda_arena {
    unsigned char *base;
    size_t n_bytes;
    struct gyre_cuda_arena_block *first;
    uint64_t n_evicted;
};

/** The memory stays the caller's. @base: a multiple of
 * GYRE_CUDA_ARENA_ALIGN_BYTES; never read or written. */
void gyre_cuda_arena_open(struct gyre_cuda_arena *arena, void *base, size_t n_bytes);

void gyre_cuda_arena_close(struct gyre_cuda_arena *arena);

/** Evicts idle blocks if need be, those used longest ago first.
 * @n_completed: works up to it are over. @holder: set to NULL when the block is evicted; NULL =
 * never evicted. @block_out: the arena's, until evicted or given back. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_arena_take(struct gyre_cuda_arena *arena, size_t n_bytes,
                                 uint64_t n_completed, struct gyre_cuda_arena_block **holder,
                                 struct gyre_cuda_arena_block **block_out);

/** The memory is reused once the works up to @n_launched, which may
 * read it, are over. @block: may be NULL. */
void gyre_cuda_arena_give_back(struct gyre_cuda_arena_block *block, uint64_t n_launched);

#endif
