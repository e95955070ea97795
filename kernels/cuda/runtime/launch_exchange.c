/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of programs that one kernel runs as a macro-step (exchange.cuh): which kernel, how many
 * threads, what it is told.
 */
#include "kernels/cuda/runtime/state.h"
#include "kernels/cuda/runtime/kernel_table.h"

/* Threads that serve a peer. */
static uint32_t exchange_lanes(const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    return gyre_min_u32(gyre_cuda_block_threads(work),
                        gyre_cuda_exchange_lanes(loaded->exchange.n_peers, loaded->n_threads));
}

static uint32_t exchange_unroll(const struct gyre_work *work)
{
    return gyre_cuda_exchange_unroll(&work->loaded->exchange, work->loaded->proto,
                                     gyre_cuda_step_bytes(work), gyre_tile_count(&work->split),
                                     exchange_lanes(work));
}

static uint64_t block_bytes(const struct gyre_work *work)
{
    return work->split.count * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
}

/* Are this rank's addresses and all lengths multiples of 16, where parts are cut too, and is
 * nothing multiplied or divided? */
static bool is_whole(const struct gyre_work *work)
{
    const uint32_t unit_bytes =
        work->split.unit_elems * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    return (((uintptr_t)work->in | (uintptr_t)work->out | block_bytes(work)) & 15) == 0 &&
           unit_bytes == 16 && work->reduction.premultiply == 0 && work->reduction.divisor <= 1;
}

/* Likewise where results are placed: a rank's window may begin anywhere. */
static bool is_placed_whole(const struct gyre_cuda_executor *executor, const struct gyre_work *work)
{
    uintptr_t address = 0;
    for (int rank = 0; rank < executor->n_ranks; rank++)
        address |= (uintptr_t)work->placement->bases[rank] + work->out_offset_bytes;
    return (address & 15) == 0;
}

const void *gyre_cuda_simple_kernel(const struct gyre_loaded *loaded, uint32_t n_tiles,
                                    const struct gyre_reduction *reduction)
{
    const struct gyre_cuda_exchange *exchange = &loaded->exchange;
    if (exchange->n_peers == 0 || loaded->copies != NULL)
        return NULL;
    return exchange->reduces == 0
               ? gyre_cuda_kernel_placed
               : gyre_cuda_twoshot_kernel_find(exchange, n_tiles, loaded->is_placed,
                                               reduction->dtype, reduction->op);
}

/* All-gathers whose blocks choose their multiprocessors are the interpreter's; so are more tiles of
 * an all-reduce than go side by side. */
static const void *choose_simple_kernel(const struct gyre_cuda_executor *executor,
                                        const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    const uint32_t n_tiles = (uint32_t)gyre_tile_count(&work->split);
    const void *kernel = gyre_cuda_simple_kernel(loaded, n_tiles, &work->reduction);
    const bool fits = loaded->exchange.reduces != 0
                          ? n_tiles <= loaded->n_abreast
                          : !gyre_cuda_takes_seats(executor, work, loaded->n_channels);
    return kernel != NULL && fits && is_whole(work) &&
                   (!loaded->is_placed || is_placed_whole(executor, work))
               ? kernel
               : NULL;
}

const void *gyre_cuda_exchange_kernel(const struct gyre_cuda_executor *executor,
                                      const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    const uint64_t n_tiles = gyre_tile_count(&work->split);
    if (n_tiles > loaded->exchange.depth ||
        (loaded->exchange.reduces == 0 && !gyre_cuda_only_copies(loaded, &work->reduction)))
        return NULL;
    switch (loaded->proto) {
    case GYRE_PROTO_SIMPLE:
        return choose_simple_kernel(executor, work);
    case GYRE_PROTO_LAMPORT:
        return gyre_cuda_lamport_kernel_find(&loaded->exchange, (uint32_t)n_tiles, is_whole(work),
                                             work->reduction.dtype);
    default:
        return gyre_cuda_exchange_kernel_find(&loaded->exchange, loaded->proto, (uint32_t)n_tiles,
                                              exchange_unroll(work), work->reduction.dtype,
                                              work->reduction.op);
    }
}

static void choose_size(const struct gyre_work *work, struct gyre_cuda_start *launch)
{
    const struct gyre_loaded *loaded = work->loaded;
    const uint32_t n_peers = loaded->exchange.n_peers;
    const uint32_t n_lanes = exchange_lanes(work);
    switch (loaded->proto) {
    case GYRE_PROTO_SIMPLE:
        launch->n_threads = gyre_min_u32(loaded->n_threads, GYRE_CUDA_EXCHANGE_THREADS) +
                            (loaded->exchange.reduces != 0 ? GYRE_CUDA_SERVICE_THREADS : 0);
        break;
    case GYRE_PROTO_LAMPORT:
        launch->n_threads =
            gyre_cuda_lamport_threads(n_peers, gyre_cuda_step_bytes(work), loaded->n_threads);
        break;
    default:
        launch->n_threads = n_lanes * n_peers;
        launch->shared_bytes =
            gyre_cuda_exchange_shared_bytes(n_peers, n_lanes, exchange_unroll(work));
        break;
    }
}

/* Its offsets in bytes. LAMPORT and two-shots in SIMPLE begin with the next rank, so that not
 * all send to the same one. */
static void fill_exchange(const struct gyre_work *work, struct gyre_cuda_exchange *exchange)
{
    const struct gyre_loaded *loaded = work->loaded;
    const uint32_t n_peers = loaded->exchange.n_peers;
    const bool is_turned = loaded->proto == GYRE_PROTO_LAMPORT ||
                           (loaded->proto == GYRE_PROTO_SIMPLE && loaded->exchange.reduces != 0);
    const uint32_t first = is_turned ? loaded->exchange.own_place : 0;
    const uint64_t n_bytes = block_bytes(work);
    *exchange = loaded->exchange;
    exchange->n_lanes = exchange_lanes(work);
    exchange->own_offset *= n_bytes;
    exchange->own_out_offset *= n_bytes;
    for (uint32_t p = 0; p < n_peers; p++) {
        exchange->peers[p] = loaded->exchange.peers[(first + p) % n_peers];
        exchange->peers[p].in_offset *= n_bytes;
        exchange->peers[p].out_offset *= n_bytes;
    }
}

gyre_status gyre_cuda_launch_exchange(struct gyre_cuda_executor *executor, const void *kernel,
                                      const struct gyre_work *work, cudaStream_t stream)
{
    struct gyre_cuda_args_exchange *args = &executor->args.exchange;
    struct gyre_cuda_start launch = {
        .kernel = kernel, .args = args, .n_works = 1, .awaits_last = true};
    choose_size(work, &launch);
    const uint32_t n_seats = work->loaded->n_channels;
    launch.n_blocks = gyre_cuda_takes_seats(executor, work, n_seats) ? executor->n_sms : n_seats;
    gyre_cuda_fill_common(executor, work->loaded->proto, n_seats, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = args->common.ends_works = 1;
    gyre_cuda_fill_work(executor, work, 0, &args->work);
    fill_exchange(work, &args->exchange);
    return gyre_cuda_start(executor, &launch, stream);
}
