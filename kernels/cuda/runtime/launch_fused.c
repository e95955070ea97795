/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes calls to the table of fused kernels and fills in the arguments of the kernel found.
 */
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/state.h"

static uint64_t block_bytes(const struct gyre_work *work)
{
    return work->split.count * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
}

/* Are this rank's addresses, and all lengths and cuts, multiples of 16? */
static bool is_aligned(const struct gyre_work *work)
{
    const uint32_t unit_bytes =
        work->split.unit_elems * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    return (((uintptr_t)work->in | (uintptr_t)work->out | block_bytes(work)) & 15) == 0 &&
           unit_bytes == 16;
}

/* Placed results need every rank's OUT aligned, because a window may begin anywhere. */
static bool is_placed_aligned(const struct gyre_cuda_executor *executor,
                              const struct gyre_work *work)
{
    uintptr_t address = 0;
    for (int rank = 0; rank < executor->n_ranks; rank++)
        address |= (uintptr_t)work->placement->bases[rank] + work->out_offset_bytes;
    return (address & 15) == 0;
}

static enum gyre_fused_arithmetic arithmetic_of(const struct gyre_loaded *loaded,
                                                const struct gyre_reduction *reduction)
{
    if (!gyre_fused_patterns[loaded->fused_call.pattern].reduces)
        return gyre_cuda_only_copies(loaded, reduction) ? GYRE_FUSED_COPY : GYRE_FUSED_OTHER;
    return gyre_lamport_adds((gyre_dtype)reduction->dtype, reduction->op) ? GYRE_FUSED_FLOAT_SUM
                                                                          : GYRE_FUSED_OTHER;
}

static bool is_of(const struct gyre_work *work, enum gyre_fused_pattern pattern)
{
    return work->loaded->fused_call.pattern == pattern;
}

/* Of a send and a receive, in any order. */
static const struct gyre_work *send_of(const struct gyre_work *both)
{
    return &both[is_of(&both[1], GYRE_FUSED_SEND)];
}

static const struct gyre_work *receive_of(const struct gyre_work *both)
{
    return &both[is_of(&both[1], GYRE_FUSED_RECEIVE)];
}

/* A send and a receive of as many bytes, in tiles of one size? */
static bool are_alike(const struct gyre_work *works, uint32_t n_works)
{
    if (n_works != 2 || !is_of(send_of(works), GYRE_FUSED_SEND) ||
        !is_of(receive_of(works), GYRE_FUSED_RECEIVE))
        return false;
    const struct gyre_split *a = &works[0].split, *b = &works[1].split;
    return works[0].loaded->proto == works[1].loaded->proto && a->count == b->count &&
           a->n_channels == b->n_channels && a->tile_elems == b->tile_elems &&
           a->unit_elems == b->unit_elems && works[0].reduction.dtype == works[1].reduction.dtype &&
           gyre_cuda_fused_joins(&send_of(works)->loaded->fused, &receive_of(works)->loaded->fused);
}

static enum gyre_fused_pattern pattern_of(const struct gyre_work *works, uint32_t n_works)
{
    if (n_works == 1)
        return works[0].loaded->fused_call.pattern;
    return are_alike(works, n_works) ? GYRE_FUSED_SEND_RECEIVE : GYRE_FUSED_NONE;
}

/* Is IN also OUT? */
static bool is_in_place(const struct gyre_work *works, uint32_t n_works)
{
    return n_works == 1 ? works->in == works->out : send_of(works)->in == receive_of(works)->out;
}

void gyre_cuda_find_fused(const struct gyre_cuda_executor *executor, const struct gyre_work *works,
                          uint32_t n_works, struct gyre_run *run_out)
{
    const struct gyre_work *work = &works[0];
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_fused_call call = loaded->fused_call;
    run_out->kernel = NULL;
    call.pattern = pattern_of(works, n_works);
    /* Recordings of fused launches have both ends with each peer. */
    if (call.pattern == GYRE_FUSED_NONE ||
        (gyre_fused_is_message(call.pattern) && executor->recorder.recorder != NULL))
        return;
    call.arithmetic = arithmetic_of(loaded, &work->reduction);
    call.is_aligned = is_aligned(work) && (!call.is_placed || is_placed_aligned(executor, work));
    call.is_unscaled = work->reduction.premultiply == 0 && work->reduction.divisor <= 1;
    call.places_blocks = gyre_cuda_places_blocks(executor, work, 1, loaded->n_channels);
    call.n_tiles = (uint32_t)gyre_min_u64(gyre_tile_count(&work->split), UINT32_MAX);
    call.fits_two_rows = executor->recorder.recorder == NULL && !is_in_place(works, n_works) &&
                         2 * loaded->n_channels <= executor->n_sms;
    call.n_channels = loaded->n_channels;
    call.step_bytes = gyre_cuda_step_bytes(work);
    gyre_kernel_choose(&call, run_out);
}

/* Offsets are in bytes. LAMPORT and SIMPLE's two-shot serve peers in order, so their list begins
 * with the next rank: not all ranks then send to the same peer first. */
static void fill_fused(const struct gyre_work *works, uint32_t n_works,
                       const struct gyre_run *launch, struct gyre_cuda_fused *fused)
{
    const struct gyre_work *work = &works[0];
    const struct gyre_loaded *loaded = work->loaded;
    const uint32_t n_peers = loaded->fused.n_peers;
    const bool is_rotated = loaded->proto == GYRE_PROTO_LAMPORT ||
                            (loaded->proto == GYRE_PROTO_SIMPLE && loaded->fused.reduces != 0);
    const uint32_t first = is_rotated ? loaded->fused.own_place : 0;
    const uint64_t n_bytes = block_bytes(work);
    *fused = n_works == 1 ? loaded->fused
                          : gyre_cuda_fused_join(&send_of(works)->loaded->fused,
                                                 &receive_of(works)->loaded->fused);
    fused->threads_per_peer = launch->threads_per_peer;
    fused->own_offset *= n_bytes;
    fused->own_out_offset *= n_bytes;
    /* A send that fills a FIFO leaves no room for the peer's next one. It gives the credit of all
     * that this rank received, so that two ranks may send before they receive. */
    if (n_works == 1 && is_of(work, GYRE_FUSED_SEND) &&
        gyre_tile_count(&work->split) >= fused->depth)
        fused->n_channels_behind = (uint16_t)loaded->n_channels;
    if (n_works > 1) /* IN and OUT are whole messages, so the offsets are 0 */
        return;
    for (uint32_t p = 0; p < n_peers; p++) {
        fused->peers[p] = loaded->fused.peers[(first + p) % n_peers];
        fused->peers[p].in_offset *= n_bytes;
        fused->peers[p].out_offset *= n_bytes;
    }
}

/* @executor->args.fused.fused: filled in. */
static gyre_status start_fused(struct gyre_cuda_executor *executor, const struct gyre_run *fused,
                               const struct gyre_work *works, uint32_t n_works, cudaStream_t stream)
{
    const struct gyre_work *work = n_works == 1 ? works : send_of(works);
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_cuda_args_fused *args = &executor->args.fused;
    struct gyre_cuda_start launch = {
        .args = args,
        .n_blocks = fused->places_blocks ? executor->n_sms : loaded->n_channels,
        .n_threads = fused->n_threads,
        .shared_bytes = fused->shared_bytes,
        .n_works = n_works,
        .n_rows = fused->n_rows,
        .awaits_last = true,
    };
    gyre_cuda_fill_common(executor, loaded->proto, fused->n_rows * loaded->n_channels,
                          &args->common);
    args->common.n_blocks = fused->n_rows * launch.n_blocks;
    args->common.n_works = (uint16_t)n_works;
    args->common.ends_works = 1;
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_FUSED, &args->common);
    launch.kernel = gyre_cuda_fused_function(fused, &loaded->fused_call, &work->reduction,
                                             args->common.recording.recorder == NULL);
    gyre_cuda_fill_work(executor, work, 0, &args->work);
    if (n_works > 1)
        args->work.out = receive_of(works)->out;
    return gyre_cuda_start(executor, &launch, stream);
}

gyre_status gyre_cuda_launch_fused(struct gyre_cuda_executor *executor,
                                   const struct gyre_run *fused, const struct gyre_work *works,
                                   uint32_t n_works, cudaStream_t stream)
{
    fill_fused(works, n_works, fused, &executor->args.fused.fused);
    return start_fused(executor, fused, works, n_works, stream);
}

/* The send can go first, because it needs at most a FIFO's slots. The peer frees them all when it
 * comes to this message, by its receive or by a send that goes before its receive. */
bool gyre_cuda_may_go_apart(const struct gyre_cuda_executor *executor,
                            const struct gyre_work *works, uint32_t n_works)
{
    struct gyre_run together, fused[2];
    if (n_works != 2 ||
        works[0].loaded->n_channels + works[1].loaded->n_channels <=
            gyre_kernel_limits[GYRE_LIMIT_BLOCKS_TOGETHER].number ||
        !is_of(&works[0], GYRE_FUSED_SEND) || !is_of(&works[1], GYRE_FUSED_RECEIVE) ||
        gyre_tile_count(&works[0].split) > executor->spec.depth)
        return false;
    gyre_cuda_find_fused(executor, works, 2, &together);
    gyre_cuda_find_fused(executor, &works[0], 1, &fused[0]);
    gyre_cuda_find_fused(executor, &works[1], 1, &fused[1]);
    return together.kernel == NULL && fused[0].kernel != NULL && fused[1].kernel != NULL &&
           works[0].loaded->proto == works[1].loaded->proto &&
           gyre_cuda_fused_joins(&works[0].loaded->fused, &works[1].loaded->fused);
}

gyre_status gyre_cuda_launch_ahead(struct gyre_cuda_executor *executor,
                                   const struct gyre_work *send, const struct gyre_work *receive,
                                   cudaStream_t stream)
{
    struct gyre_cuda_fused *args = &executor->args.fused.fused;
    struct gyre_run fused;
    gyre_cuda_find_fused(executor, send, 1, &fused);
    fill_fused(send, 1, &fused, args);
    *args = gyre_cuda_fused_before(args, &receive->loaded->fused, receive->loaded->n_channels);
    return start_fused(executor, &fused, send, 1, stream);
}
