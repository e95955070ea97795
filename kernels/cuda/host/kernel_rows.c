/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/kernel_rows.h"

#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/kernel_table.h"

/* A block has 16 barriers; __syncthreads() uses one. */
#define MOST_TILE_BARRIERS 15

#define BIT(value)         (1U << (value))
#define ANY_NUMBER         UINT32_MAX
#define REDUCES_IN_LINES   (BIT(GYRE_FUSED_ONE_SHOT) | BIT(GYRE_FUSED_REDUCE_SCATTER))
#define INSTANCE(table, member) \
    ((uint16_t)(offsetof(struct gyre_cuda_##table, member) / sizeof(const void *)))
#define GYRE_KERNEL_ROW(...) {__VA_ARGS__},

/* Faster kernels before more general ones. */
const struct gyre_kernel_row gyre_kernel_rows[] = {
    /* Why the interpreter is faster there is not known (docs/lab_notes.md). */
    {.name = "interpreter",
     .measured = "2 H100, all-gathers of 16 and 64 KiB: 8.1 and 9.7 us against 5.1 and 13.5 fused, "
                 "2026-11",
     .when = {.proto = GYRE_PROTO_LL,
              .patterns = (uint16_t)~BIT(GYRE_FUSED_NONE),
              .needs = GYRE_KERNEL_HOST_MEMORY,
              .arithmetic = UINT8_MAX,
              .most_peers = UINT8_MAX,
              .most_tiles = ANY_NUMBER,
              .least_step_bytes = 512},
     .is_interpreter = true},
#include "kernels/cuda/fused/fused_oneshot.cuh"
#include "kernels/cuda/fused/fused_message.cuh"
#include "kernels/cuda/fused/fused_lines.cuh"
#include "kernels/cuda/fused/fused_lamport.cuh"
#include "kernels/cuda/fused/fused_twoshot.cuh"
#include "kernels/cuda/fused/fused_placed.cuh"
};

const uint32_t gyre_n_kernel_rows = GYRE_ARRAY_LENGTH(gyre_kernel_rows);

const struct gyre_kernel_limit gyre_kernel_limits[GYRE_N_KERNEL_LIMITS] = {
    [GYRE_LIMIT_PLACEMENT_BYTES] = {16 << 20, "2 H200, 2026-11"},
    [GYRE_LIMIT_BLOCKS_TOGETHER] = {96, "2 H100 of 132 multiprocessors, 2026-11"},
};

uint32_t gyre_cuda_threads_per_peer(uint32_t n_peers, uint32_t n_threads)
{
    const uint32_t n_warps = n_peers > 0 ? n_threads / n_peers / 32 : 0;
    return (n_warps > 0 ? n_warps : 1) * 32;
}

uint32_t gyre_cuda_fused_shared_bytes(uint32_t n_peers, uint32_t threads_per_peer, uint32_t unroll)
{
    return n_peers < 2 ? 0 : (n_peers + 1) * threads_per_peer * 16 * unroll * 2;
}

uint32_t gyre_cuda_peers_class(uint32_t n_peers)
{
    return n_peers <= 1 ? 0 : n_peers <= 3 ? 1 : 2;
}

/* FIFOs must hold a launch's slots, unless no block sends and then receives: only such blocks may
 * wait for credit, because nobody waits for them meanwhile. */
static uint32_t facts_of(const struct gyre_fused_call *call)
{
    const bool is_one_way = call->pattern == GYRE_FUSED_SEND || call->pattern == GYRE_FUSED_RECEIVE;
    const uint64_t n_slots = (uint64_t)call->n_tiles * gyre_fused_slots_per_tile(call->pattern);
    uint32_t facts = call->is_placed ? GYRE_KERNEL_PLACED : GYRE_KERNEL_STAGED;
    if (call->is_aligned)
        facts |= GYRE_KERNEL_ALIGNED;
    if (call->is_unscaled)
        facts |= GYRE_KERNEL_UNSCALED;
    if (!call->places_blocks)
        facts |= GYRE_KERNEL_UNMOVED;
    if (call->in_host_memory)
        facts |= GYRE_KERNEL_HOST_MEMORY;
    if (call->fits_two_rows)
        facts |= GYRE_KERNEL_TWO_ROWS;
    if (n_slots <= call->depth || is_one_way)
        facts |= GYRE_KERNEL_HAS_SLOTS;
    if (call->n_tiles == 1 || call->depth <= MOST_TILE_BARRIERS)
        facts |= GYRE_KERNEL_HAS_BARRIERS;
    return facts;
}

bool gyre_kernel_row_fits(const struct gyre_kernel_row *row, const struct gyre_fused_call *call)
{
    const struct gyre_kernel_when *when = &row->when;
    return when->proto == call->proto && (when->patterns >> call->pattern & 1U) != 0 &&
           (when->arithmetic >> call->arithmetic & 1U) != 0 && call->n_peers <= when->most_peers &&
           call->n_tiles >= when->least_tiles && call->n_tiles <= when->most_tiles &&
           call->step_bytes >= when->least_step_bytes && (when->needs & ~facts_of(call)) == 0 &&
           (row->most_unroll == 0 ||
            gyre_cuda_fused_shared_bytes(call->n_peers,
                                         gyre_cuda_threads_per_peer(call->n_peers, call->n_threads),
                                         row->most_unroll) <= call->most_shared_bytes);
}

uint32_t gyre_kernel_most_tiles(const struct gyre_fused_call *call)
{
    const uint32_t by_depth = call->pattern == GYRE_FUSED_NONE
                                  ? 0
                                  : call->depth / gyre_fused_slots_per_tile(call->pattern);
    uint32_t most = 0;
    for (uint32_t i = 0; i < gyre_n_kernel_rows; i++) {
        const struct gyre_kernel_row *row = &gyre_kernel_rows[i];
        if (!row->is_interpreter && gyre_kernel_row_fits(row, call) && row->when.most_tiles > most)
            most = row->when.most_tiles;
    }
    return gyre_min_u32(most, by_depth);
}

uint32_t gyre_cuda_block_threads(enum gyre_proto proto, uint64_t chunk_bytes, uint32_t most_threads)
{
    uint64_t n_useful = 0;
    switch (proto) {
    case GYRE_PROTO_LL:
        n_useful = gyre_div_round_up(chunk_bytes, 8);
        break;
    case GYRE_PROTO_LAMPORT:
        n_useful = gyre_div_round_up(chunk_bytes, 16);
        break;
    case GYRE_PROTO_LL128:
        n_useful = gyre_div_round_up(chunk_bytes, 480) * 32;
        break;
    default:
        return most_threads + GYRE_CUDA_SERVICE_THREADS;
    }
    return (uint32_t)gyre_min_u64(most_threads, gyre_max_u64(gyre_round_up(n_useful, 32), 64));
}

void gyre_kernel_choose(const struct gyre_fused_call *call, struct gyre_run *run_out)
{
    const struct gyre_kernel_row *row = gyre_kernel_rows;
    const struct gyre_kernel_row *end = row + gyre_n_kernel_rows;
    struct gyre_run run = {.n_rows = 1, .n_blocks = (uint16_t)call->n_channels};
    while (row < end && !gyre_kernel_row_fits(row, call))
        row++;
    if (row < end) {
        run.row = (uint16_t)(row - gyre_kernel_rows + 1);
        run.measured = row->measured;
    }
    if (row < end && !row->is_interpreter) {
        run.kernel = row->name;
        run.n_rows = row->n_rows > 0 ? row->n_rows : 1;
        run.places_blocks = call->places_blocks;
        const uint32_t n_peers = call->n_peers;
        uint32_t threads_per_peer =
            gyre_min_u32(gyre_cuda_block_threads(call->proto, call->step_bytes, call->n_threads),
                         gyre_cuda_threads_per_peer(n_peers, call->n_threads));
        uint32_t n_threads = 0;
        if (row->most_threads > 0)
            threads_per_peer = gyre_min_u32(threads_per_peer, row->most_threads);
        if (call->proto == GYRE_PROTO_SIMPLE) {
            n_threads = gyre_min_u32(call->n_threads, GYRE_CUDA_FUSED_THREADS);
        } else if (call->proto == GYRE_PROTO_LAMPORT) {
            /* A thread moves 16 bytes at a time. */
            const uint64_t wanted = gyre_div_round_up(call->step_bytes, 512) * 32;
            const uint64_t room = GYRE_CUDA_LAMPORT_THREADS(call->n_peers);
            n_threads = (uint32_t)gyre_max_u64(
                gyre_min_u64(wanted, gyre_min_u64(room, 2ULL * call->n_threads)), 64);
            run.is_exact = call->is_aligned && call->is_unscaled && call->n_tiles == 1 &&
                           (n_peers == 1 || n_peers == 3 || n_peers == 7);
        } else {
            n_threads = threads_per_peer * n_peers;
            /* With addresses in registers, up to five rounds are 2 to 5 % faster in a two-shot; all
             * other kernels are up to 12 % slower above two (2 H200, 1 to 12 MiB; sends and
             * receives: 2 H100, 48 channels; 2026-11). */
            const uint64_t round_bytes = 15ULL * threads_per_peer;
            run.unroll = row->most_unroll <= GYRE_CUDA_UNROLL ||
                                 call->step_bytes <= GYRE_CUDA_UNROLL * round_bytes
                             ? GYRE_CUDA_UNROLL
                         : call->pattern == GYRE_FUSED_TWO_SHOT && call->n_tiles == 1 &&
                                 call->step_bytes <= GYRE_CUDA_DEEP_UNROLL * round_bytes
                             ? GYRE_CUDA_DEEP_UNROLL
                             : GYRE_CUDA_LONG_UNROLL;
            run.shared_bytes = gyre_cuda_fused_shared_bytes(n_peers, threads_per_peer, run.unroll);
        }
        run.n_threads = (uint16_t)(n_threads + row->service_threads +
                                   (call->n_tiles > 1 ? row->tile_threads : 0U));
        run.threads_per_peer = (uint16_t)threads_per_peer;
    }
    *run_out = run;
}
