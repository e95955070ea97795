/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/arena.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>

void gyre_cuda_arena_open(struct gyre_cuda_arena *arena, void *base, size_t n_bytes)
{
    *arena = (struct gyre_cuda_arena){
        .base = base,
        .n_bytes = n_bytes / GYRE_CUDA_ARENA_ALIGN_BYTES * GYRE_CUDA_ARENA_ALIGN_BYTES,
    };
}

void gyre_cuda_arena_close(struct gyre_cuda_arena *arena)
{
    while (arena->first != NULL) {
        struct gyre_cuda_arena_block *block = arena->first;
        arena->first = block->next;
        free(block);
    }
}

static void drop(struct gyre_cuda_arena_block **at)
{
    struct gyre_cuda_arena_block *block = *at;
    *at = block->next;
    if (!block->is_given_back && block->holder != NULL)
        *block->holder = NULL;
    free(block);
}

static bool is_idle(const struct gyre_cuda_arena_block *block, uint64_t n_completed)
{
    return !block->is_captured && block->last_work <= n_completed;
}

/* False: no block is idle. */
static bool evict_one(struct gyre_cuda_arena *arena, uint64_t n_completed)
{
    struct gyre_cuda_arena_block **oldest = NULL;
    for (struct gyre_cuda_arena_block **at = &arena->first; *at != NULL; at = &(*at)->next)
        if ((*at)->holder != NULL && !(*at)->is_given_back && is_idle(*at, n_completed) &&
            (oldest == NULL || (*at)->last_work < (*oldest)->last_work))
            oldest = at;
    if (oldest == NULL)
        return false;
    drop(oldest);
    arena->n_evicted++;
    return true;
}

/* First fit; lists are walked, because taking is rare. The place after the gap, or NULL. */
static struct gyre_cuda_arena_block **find_gap(struct gyre_cuda_arena *arena, size_t n_bytes,
                                               unsigned char **address_out)
{
    unsigned char *gap = arena->base;
    struct gyre_cuda_arena_block **at = &arena->first;
    for (; *at != NULL; at = &(*at)->next) {
        if ((size_t)((*at)->address - gap) >= n_bytes)
            break;
        gap = (*at)->address + (*at)->n_bytes;
    }
    if (*at == NULL && (size_t)(arena->base + arena->n_bytes - gap) < n_bytes)
        return NULL;
    *address_out = gap;
    return at;
}

gyre_status gyre_cuda_arena_take(struct gyre_cuda_arena *arena, size_t n_bytes,
                                 uint64_t n_completed, struct gyre_cuda_arena_block **holder,
                                 struct gyre_cuda_arena_block **block_out)
{
    const size_t n_rounded =
        (size_t)gyre_round_up(n_bytes > 0 ? n_bytes : 1, GYRE_CUDA_ARENA_ALIGN_BYTES);
    struct gyre_cuda_arena_block *block = calloc(1, sizeof(*block));
    unsigned char *address = NULL;
    if (block == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a block of the program memory");
    struct gyre_cuda_arena_block **given = &arena->first;
    while (*given != NULL) {
        if ((*given)->is_given_back && is_idle(*given, n_completed))
            drop(given);
        else
            given = &(*given)->next;
    }
    struct gyre_cuda_arena_block **at = find_gap(arena, n_rounded, &address);
    /* A block larger than the arena must not evict others. */
    while (at == NULL && n_rounded <= arena->n_bytes && evict_one(arena, n_completed))
        at = find_gap(arena, n_rounded, &address);
    if (at == NULL) {
        free(block);
        size_t n_blocks = 0, n_captured = 0, taken_bytes = 0;
        for (const struct gyre_cuda_arena_block *each = arena->first; each != NULL;
             each = each->next) {
            n_blocks++;
            n_captured += each->is_captured;
            taken_bytes += each->n_bytes;
        }
        return gyre_fail(
            GYRE_ERROR_OUT_OF_MEMORY,
            "%zu bytes for a program: of the communicator's %zu bytes for programs %zu "
            "are in use by %zu programs and tables, %zu of them captured in CUDA graphs: "
            "wait for earlier calls, or capture fewer different calls with one "
            "communicator",
            n_rounded, arena->n_bytes, taken_bytes, n_blocks, n_captured);
    }
    *block = (struct gyre_cuda_arena_block){
        .next = *at, .address = address, .n_bytes = n_rounded, .holder = holder};
    *at = block;
    *block_out = block;
    return GYRE_SUCCESS;
}

void gyre_cuda_arena_give_back(struct gyre_cuda_arena_block *block, uint64_t n_launched)
{
    if (block == NULL)
        return;
    block->is_given_back = true;
    block->last_work = n_launched;
}
