/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of fused kernels. A kernel gives the same bits as the steps, whichever of the two a
 * peer runs.
 */
#include "kernels/cuda/host/fused.h"

#include "core/foundation/base/util.h"

#define BIT(value) (1U << (value))
#define STAGED     1U
#define PLACED     2U
#define ANY_NUMBER UINT32_MAX
/* A block has 16 barriers; __syncthreads() uses one. */
#define MOST_TILE_BARRIERS 15
#define REDUCES_IN_LINES   (BIT(GYRE_FUSED_ONE_SHOT) | BIT(GYRE_FUSED_REDUCE_SCATTER))
#define COPIES_IN_LINES                                                               \
    (BIT(GYRE_FUSED_ALL_GATHER) | BIT(GYRE_FUSED_ALL_TO_ALL) | BIT(GYRE_FUSED_SEND) | \
     BIT(GYRE_FUSED_RECEIVE) | BIT(GYRE_FUSED_SEND_RECEIVE))

/* In the order of enum gyre_cuda_fused_id. The first row that fits is taken, so faster kernels
 * stand before more general ones. */
const struct gyre_cuda_fused_kernel gyre_cuda_fused_kernels[GYRE_CUDA_N_FUSED] = {
    [GYRE_CUDA_FUSED_LL_ONE_SHOT] = {.name = "ll one-shot",
                                     .proto = GYRE_PROTO_LL,
                                     .patterns = REDUCES_IN_LINES,
                                     .placements = STAGED,
                                     .arithmetic =
                                         BIT(GYRE_FUSED_FLOAT_SUM) | BIT(GYRE_FUSED_OTHER),
                                     .most_peers = GYRE_CUDA_MAX_PEERS,
                                     .most_tiles = 1,
                                     .most_unroll = GYRE_CUDA_UNROLL},
    [GYRE_CUDA_FUSED_LL_SUM] = {.name = "ll sum",
                                .proto = GYRE_PROTO_LL,
                                .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                                .placements = STAGED,
                                .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                                .most_peers = GYRE_CUDA_MAX_PEERS,
                                .most_tiles = ANY_NUMBER,
                                .most_unroll = GYRE_CUDA_UNROLL},
    [GYRE_CUDA_FUSED_LL_COPY] = {.name = "ll copy",
                                 .proto = GYRE_PROTO_LL,
                                 .patterns = COPIES_IN_LINES,
                                 .placements = STAGED,
                                 .arithmetic = BIT(GYRE_FUSED_COPY),
                                 .most_peers = GYRE_CUDA_MAX_PEERS,
                                 .most_tiles = ANY_NUMBER,
                                 .most_unroll = GYRE_CUDA_UNROLL},
    [GYRE_CUDA_FUSED_LL128_SUM] = {.name = "ll128 sum",
                                   .proto = GYRE_PROTO_LL128,
                                   .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                                   .placements = STAGED,
                                   .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                                   .most_peers = GYRE_CUDA_MAX_PEERS,
                                   .most_tiles = ANY_NUMBER,
                                   .most_unroll = GYRE_CUDA_LONG_UNROLL},
    [GYRE_CUDA_FUSED_LL128_COPY] = {.name = "ll128 copy",
                                    .proto = GYRE_PROTO_LL128,
                                    .patterns = COPIES_IN_LINES,
                                    .placements = STAGED,
                                    .arithmetic = BIT(GYRE_FUSED_COPY),
                                    .most_peers = GYRE_CUDA_MAX_PEERS,
                                    .most_tiles = ANY_NUMBER,
                                    .most_unroll = GYRE_CUDA_LONG_UNROLL},
    [GYRE_CUDA_FUSED_LAMPORT_SUM] = {.name = "lamport sum",
                                     .proto = GYRE_PROTO_LAMPORT,
                                     .patterns = REDUCES_IN_LINES | BIT(GYRE_FUSED_TWO_SHOT),
                                     .placements = STAGED,
                                     .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                                     .most_peers = GYRE_CUDA_MAX_PEERS,
                                     .most_tiles = ANY_NUMBER},
    [GYRE_CUDA_FUSED_SIMPLE_TWO_SHOT] = {.name = "simple two-shot",
                                         .proto = GYRE_PROTO_SIMPLE,
                                         .patterns = BIT(GYRE_FUSED_TWO_SHOT),
                                         .placements = STAGED | PLACED,
                                         .arithmetic = BIT(GYRE_FUSED_FLOAT_SUM),
                                         .most_peers = GYRE_CUDA_MAX_PEERS,
                                         .most_tiles = GYRE_CUDA_TILES_IN_FLIGHT,
                                         .needs_alignment = true,
                                         .needs_unscaled = true,
                                         .places_blocks = true,
                                         .service_threads = GYRE_CUDA_SERVICE_THREADS},
    [GYRE_CUDA_FUSED_SIMPLE_ALL_GATHER] = {.name = "simple all-gather",
                                           .proto = GYRE_PROTO_SIMPLE,
                                           .patterns = BIT(GYRE_FUSED_ALL_GATHER),
                                           .placements = PLACED,
                                           .arithmetic = BIT(GYRE_FUSED_COPY),
                                           .most_peers = GYRE_CUDA_MAX_PEERS,
                                           .most_tiles = ANY_NUMBER,
                                           .needs_alignment = true,
                                           .needs_unscaled = true},
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

/* Several tiles of a message need a barrier for each slot of a FIFO. */
static bool has_barriers(const struct gyre_fused_call *call)
{
    return call->n_tiles == 1 || call->depth <= MOST_TILE_BARRIERS;
}

/* The two rows serve one peer, in both directions. */
static bool takes_two_rows(const struct gyre_fused_call *call)
{
    return call->fits_two_rows && call->proto == GYRE_PROTO_LL128 && call->n_peers == 1 &&
           has_barriers(call) &&
           (call->pattern == GYRE_FUSED_SEND_RECEIVE || call->pattern == GYRE_FUSED_ALL_TO_ALL);
}

/* FIFOs must hold a launch's slots, unless no block sends and then receives: only then can blocks
 * wait for credit, because nobody waits for this rank meanwhile. */
static bool has_room(const struct gyre_fused_call *call)
{
    if (gyre_fused_is_message(call->pattern) && !has_barriers(call))
        return false;
    return (uint64_t)call->n_tiles * gyre_fused_slots_per_tile(call->pattern) <= call->depth ||
           call->pattern == GYRE_FUSED_SEND || call->pattern == GYRE_FUSED_RECEIVE ||
           takes_two_rows(call);
}

bool gyre_cuda_fused_fits(const struct gyre_cuda_fused_kernel *kernel,
                          const struct gyre_fused_call *call)
{
    return kernel->proto == call->proto && (kernel->patterns >> call->pattern & 1U) != 0 &&
           (kernel->arithmetic >> call->arithmetic & 1U) != 0 &&
           (kernel->placements & (call->is_placed ? PLACED : STAGED)) != 0 &&
           call->n_peers <= kernel->most_peers && call->n_tiles <= kernel->most_tiles &&
           has_room(call) && (call->is_aligned || !kernel->needs_alignment) &&
           (call->is_unscaled || !kernel->needs_unscaled) &&
           (!call->places_blocks || kernel->places_blocks) &&
           (kernel->most_unroll == 0 ||
            gyre_cuda_fused_shared_bytes(call->n_peers,
                                         gyre_cuda_threads_per_peer(call->n_peers, call->n_threads),
                                         kernel->most_unroll) <= call->most_shared_bytes);
}

const struct gyre_cuda_fused_kernel *gyre_cuda_fused_find(const struct gyre_fused_call *call)
{
    for (unsigned i = 0; i < GYRE_CUDA_N_FUSED; i++)
        if (gyre_cuda_fused_fits(&gyre_cuda_fused_kernels[i], call))
            return &gyre_cuda_fused_kernels[i];
    return NULL;
}

uint32_t gyre_cuda_fused_most_tiles(const struct gyre_fused_call *call)
{
    const uint32_t by_depth = call->pattern == GYRE_FUSED_NONE
                                  ? 0
                                  : call->depth / gyre_fused_slots_per_tile(call->pattern);
    uint32_t most = 0;
    for (unsigned i = 0; i < GYRE_CUDA_N_FUSED; i++) {
        const struct gyre_cuda_fused_kernel *kernel = &gyre_cuda_fused_kernels[i];
        if (gyre_cuda_fused_fits(kernel, call) && kernel->most_tiles > most)
            most = kernel->most_tiles;
    }
    return gyre_min_u32(most, by_depth);
}

bool gyre_cuda_fused_loads(const struct gyre_fused_call *call)
{
    struct gyre_fused_call best = *call;
    best.is_aligned = best.is_unscaled = true;
    best.places_blocks = false;
    best.n_tiles = 1;
    for (int arithmetic = 0; arithmetic < GYRE_N_FUSED_ARITHMETIC; arithmetic++) {
        best.arithmetic = (enum gyre_fused_arithmetic)arithmetic;
        if (gyre_cuda_fused_find(&best) != NULL)
            return true;
    }
    return false;
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

/* With addresses in registers, up to five rounds are 2 to 5 % faster in a two-shot; all other
 * kernels are up to 12 % slower above two rounds (2 H200, 1 to 12 MiB, 2026-11), sends and
 * receives too (2 H100, 48 channels, 2026-11). */
static uint32_t choose_unroll(const struct gyre_fused_call *call, uint64_t tile_bytes,
                              uint32_t threads_per_peer)
{
    const uint64_t round_bytes = 15ULL * threads_per_peer;
    if (call->proto != GYRE_PROTO_LL128 || gyre_fused_is_message(call->pattern) ||
        tile_bytes <= GYRE_CUDA_UNROLL * round_bytes)
        return GYRE_CUDA_UNROLL;
    return call->pattern == GYRE_FUSED_TWO_SHOT && call->n_tiles == 1 &&
                   tile_bytes <= GYRE_CUDA_DEEP_UNROLL * round_bytes
               ? GYRE_CUDA_DEEP_UNROLL
               : GYRE_CUDA_LONG_UNROLL;
}

/* Each thread moves 16 bytes of the chunk at a time. */
static uint32_t lamport_threads(const struct gyre_fused_call *call, uint64_t tile_bytes)
{
    const uint64_t wanted = gyre_div_round_up(tile_bytes, 512) * 32;
    const uint64_t room = GYRE_CUDA_LAMPORT_THREADS(call->n_peers);
    return (uint32_t)gyre_max_u64(gyre_min_u64(wanted, gyre_min_u64(room, 2ULL * call->n_threads)),
                                  64);
}

/* In host memory the interpreter is faster where a block has more than a warp of lines for a
 * peer: all-gather of 16 KiB 8.1 us against 5.1 fused, of 64 KiB 9.7 against 13.5 (2 H100, LL,
 * 2026-11). Why is not known (docs/lab_notes.md). */
#define FUSED_HOST_BYTES 512 /* of LL: two warps */

static bool is_faster_interpreted(const struct gyre_fused_call *call, uint64_t tile_bytes)
{
    return call->in_host_memory && call->proto == GYRE_PROTO_LL && tile_bytes >= FUSED_HOST_BYTES;
}

void gyre_cuda_fused_plan(const struct gyre_fused_call *call, uint64_t tile_bytes,
                          struct gyre_cuda_fused_launch *launch_out)
{
    struct gyre_cuda_fused_launch launch = {
        .kernel = gyre_cuda_fused_find(call), .places_blocks = call->places_blocks, .n_rows = 1};
    if (launch.kernel == NULL || is_faster_interpreted(call, tile_bytes)) {
        launch_out->kernel = NULL;
        return;
    }
    const uint32_t n_peers = call->n_peers;
    launch.threads_per_peer =
        gyre_min_u32(gyre_cuda_block_threads(call->proto, tile_bytes, call->n_threads),
                     gyre_cuda_threads_per_peer(n_peers, call->n_threads));
    switch (call->proto) {
    case GYRE_PROTO_SIMPLE:
        launch.n_threads =
            gyre_min_u32(call->n_threads, GYRE_CUDA_FUSED_THREADS) + launch.kernel->service_threads;
        break;
    case GYRE_PROTO_LAMPORT:
        launch.n_threads = lamport_threads(call, tile_bytes);
        launch.is_exact = call->is_aligned && call->is_unscaled && call->n_tiles == 1 &&
                          (n_peers == 1 || n_peers == 3 || n_peers == 7);
        break;
    default:
        launch.n_rows = takes_two_rows(call) && call->n_tiles > 1 ? 2 : 1;
        if (launch.n_rows > 1)
            launch.threads_per_peer = gyre_min_u32(launch.threads_per_peer, GYRE_CUDA_ROW_THREADS);
        launch.n_threads = launch.threads_per_peer * n_peers;
        if (call->n_tiles > 1 && gyre_cuda_is_exchange(call->pattern, launch.n_rows))
            launch.n_threads += 32; /* a warp that gives tiles back */
        launch.unroll = choose_unroll(call, tile_bytes, launch.threads_per_peer);
        launch.shared_bytes =
            gyre_cuda_fused_shared_bytes(n_peers, launch.threads_per_peer, launch.unroll);
        break;
    }
    *launch_out = launch;
}
