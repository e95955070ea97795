/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of an executor run one after the other, whatever streams the caller gives them.
 */
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/state.h"

#include <string.h>

static gyre_status check_work(const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    const struct gyre_work_needs needs = {
        .n_channels = loaded->n_channels,
        .n_chunks = loaded->n_chunks,
        .most_tile_bytes =
            loaded->n_connections + loaded->n_areas > 0 ? loaded->tile_bytes : UINT64_MAX,
        .is_placed = loaded->is_placed,
        .by_gpu = true,
    };
    return gyre_work_check(work, &needs);
}

void gyre_cuda_fill_common(struct gyre_cuda_executor *executor, enum gyre_proto proto,
                           uint32_t n_places, struct gyre_cuda_common *common)
{
    common->n_blocks = common->n_places = n_places;
    common->n_reports = proto == GYRE_PROTO_SIMPLE ? 1 : n_places;
    common->connectors = executor->device_connectors;
    common->counters =
        executor->counters + (size_t)gyre_proto_slots(proto) * gyre_cuda_n_ends(executor);
    common->simple_counters =
        executor->counters + (size_t)GYRE_PROTO_SIMPLE * gyre_cuda_n_ends(executor);
    common->control = executor->control;
    common->mailbox = executor->mailbox;
    common->slot_bytes = executor->spec.slot_bytes[gyre_proto_slots(proto)];
    common->net_line_bytes = executor->spec.net_line_bytes;
    common->ends_per_rank = executor->spec.n_fifos * 2;
    common->recording.recorder = NULL;
    common->recording.spans = NULL;
    common->recording.records_steps = 0;
}

void gyre_cuda_fill_work(const struct gyre_cuda_executor *executor, const struct gyre_work *work,
                         uint32_t first_block, struct gyre_cuda_work *to)
{
    const struct gyre_loaded *loaded = work->loaded;
    to->in = work->in;
    to->out = work->out;
    to->scratch = loaded->n_areas > 0 ? executor->scratch->address : NULL;
    to->program = loaded->block->address;
    to->split = gyre_cuda_split_make(&work->split);
    to->scalar = work->reduction.scalar;
    to->signature = work->signature;
    to->divisor = work->reduction.divisor;
    to->first_block = first_block;
    to->channel_stride = loaded->channel_stride;
    to->area_bytes = loaded->area_bytes;
    to->n_areas = loaded->n_areas;
    to->elem_bytes = (uint8_t)gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    to->premultiply = work->reduction.premultiply;
    to->in_blocks = loaded->in_blocks;
    to->out_blocks = loaded->out_blocks;
    to->n_workers = (uint16_t)loaded->n_workers;
    to->n_variants = (uint16_t)loaded->n_variants;
    to->n_in_flight = loaded->n_in_flight;
    to->posts_late = loaded->posts_late;
    to->shares_steps = loaded->shares_steps;
    to->max_connections = loaded->max_connections;
    to->inline_words = 0;
    to->traced = loaded->traced;
    to->bases = work->placement != NULL ? work->placement->device_bases : NULL;
    to->out_offset_bytes = work->out_offset_bytes;
}

uint64_t gyre_cuda_step_bytes(const struct gyre_work *work)
{
    const struct gyre_split *split = &work->split;
    const uint64_t chunk_elems =
        gyre_div_round_up(split->count, (uint64_t)split->n_channels * split->n_chunks) +
        split->unit_elems;
    return gyre_min_u64(chunk_elems, split->tile_elems) *
           gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
}

/* About what this rank sends to its peers or receives from them, whichever is more. */
static uint64_t transferred_bytes(const struct gyre_work *work)
{
    const struct gyre_split *split = &work->split;
    return gyre_div_round_up(split->count, split->n_chunks) * work->loaded->n_transfers *
           gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
}

bool gyre_cuda_places_blocks(const struct gyre_cuda_executor *executor,
                             const struct gyre_work *works, uint32_t n_works, uint32_t n_places)
{
    uint64_t n_bytes = 0; /* of the work that transfers most */
    bool has_simple = false;
    for (uint32_t i = 0; i < n_works; i++) {
        n_bytes = gyre_max_u64(n_bytes, transferred_bytes(&works[i]));
        has_simple = has_simple || works[i].loaded->proto == GYRE_PROTO_SIMPLE;
    }
    return has_simple && n_places < executor->n_sms && n_bytes >= executor->block_placement_bytes;
}

uint32_t gyre_cuda_work_threads(const struct gyre_work *work)
{
    return gyre_cuda_block_threads(work->loaded->proto, gyre_cuda_step_bytes(work),
                                   work->loaded->n_threads);
}

bool gyre_cuda_is_lean(const struct gyre_work *works, uint32_t n_works,
                       const struct gyre_cuda_common *common)
{
    bool is_proxied = false;
    for (uint32_t i = 0; i < n_works; i++)
        is_proxied = is_proxied || works[i].loaded->is_proxied;
    return !is_proxied && common->recording.recorder == NULL;
}

static gyre_status launch_one(struct gyre_cuda_executor *executor, const struct gyre_work *work,
                              cudaStream_t stream)
{
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_cuda_args_one *args = &executor->args.one;
    struct gyre_run fused;
    gyre_cuda_find_fused(executor, work, 1, &fused);
    if (fused.kernel != NULL)
        return gyre_cuda_launch_fused(executor, &fused, work, 1, stream);
    const uint32_t n_places = loaded->n_channels * loaded->n_workers;
    struct gyre_cuda_start launch = {
        .args = args,
        .n_blocks =
            gyre_cuda_places_blocks(executor, work, 1, n_places) ? executor->n_sms : n_places,
        .n_threads = gyre_cuda_work_threads(work),
        .shared_bytes = loaded->shared_bytes,
        .n_works = 1,
        .awaits_last = true,
    };
    gyre_cuda_fill_common(executor, loaded->proto, n_places, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = 1;
    args->common.ends_works = loaded->copies == NULL;
    gyre_cuda_record_launch(executor, work, 1, GYRE_CUDA_RUN_STEPS, &args->common);
    launch.kernel = gyre_cuda_interpreter_function(
        loaded->proto, gyre_cuda_only_copies(loaded, &work->reduction), work->reduction.dtype,
        work->reduction.op, gyre_cuda_is_lean(work, 1, &args->common));
    gyre_cuda_fill_work(executor, work, 0, &args->work);
    args->work.inline_words = loaded->inline_words;
    if (loaded->inline_words > 0)
        memcpy(args->program, loaded->program, loaded->program->n_bytes);
    return gyre_cuda_start(executor, &launch, stream);
}

/* The kernel runs the program, or copy engines do, or both one part. */
static gyre_status launch_whole(struct gyre_cuda_executor *executor, const struct gyre_work *work,
                                cudaStream_t stream)
{
    const struct gyre_loaded *loaded = work->loaded;
    if (loaded->program != NULL)
        GYRE_TRY(launch_one(executor, work, stream));
    if (loaded->copies == NULL)
        return GYRE_SUCCESS;
    return gyre_cuda_launch_copies(executor, work, loaded->program != NULL ? 0 : 1, stream);
}

/* Part of a failed launch was enqueued. It can neither be taken back nor completed, so the
 * communicator is over. */
static void end_if_begun(struct gyre_cuda_executor *executor, uint64_t launched_before,
                         gyre_status status)
{
    if (status != GYRE_SUCCESS && executor->base.n_launched != launched_before)
        (void)gyre_fault_raise(executor->fault, status, gyre_cause());
}

/* Keeps the works' programs on the GPU until the launch is over. */
static gyre_status hold_programs(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                                 uint32_t n_works)
{
    const uint64_t last_work = executor->base.n_launched + n_works;
    for (uint32_t i = 0; i < n_works; i++) {
        struct gyre_loaded *loaded = works[i].loaded;
        if (loaded->program == NULL)
            continue;
        if (loaded->block == NULL)
            GYRE_TRY(gyre_cuda_make_resident(executor, loaded));
        loaded->block->last_work = last_work;
        if (loaded->n_areas > 0)
            executor->scratch->last_work = last_work;
    }
    return GYRE_SUCCESS;
}

/* A captured graph may be launched at any time, so its programs' memory is never reused. */
static void hold_captured(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                          uint32_t n_works)
{
    for (uint32_t i = 0; i < n_works; i++) {
        if (works[i].loaded->block != NULL)
            works[i].loaded->block->is_captured = true;
        if (works[i].loaded->n_areas > 0)
            executor->scratch->is_captured = true;
    }
}

/* @behind: the works are a send, and the next launch is this receive; else NULL. */
static gyre_status launch_once(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                               uint32_t n_works, const struct gyre_work *behind,
                               cudaStream_t stream)
{
    const uint64_t launched_before = executor->base.n_launched;
    const gyre_status status =
        behind != NULL ? gyre_cuda_launch_ahead(executor, works, behind, stream)
        : n_works == 1 ? launch_whole(executor, works, stream)

                       : gyre_cuda_launch_many(executor, works, n_works, stream);
    if (executor->base.n_launched == launched_before) /* captured launches are not counted */
        hold_captured(executor, works, n_works);
    else
        gyre_cuda_remember(executor, works, n_works, launched_before);
    return status;
}

static gyre_status launch_works(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                                uint32_t n_works, cudaStream_t stream)
{
    GYRE_TRY(hold_programs(executor, works, n_works));
    if (!gyre_cuda_may_go_apart(executor, works, n_works))
        return launch_once(executor, works, n_works, NULL, stream);
    GYRE_TRY(launch_once(executor, &works[0], 1, &works[1], stream));
    return launch_once(executor, &works[1], 1, NULL, stream);
}

gyre_status gyre_cuda_launch(struct gyre_executor *base, const struct gyre_work *works, int n_works,
                             gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    int previous;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    /* No rank moves anything. A kernel would let the peers write into OUT without anything to
     * wait for. */
    if (n_works == 1 && works[0].split.count == 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++)
        GYRE_TRY(check_work(&works[i]));
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const uint64_t launched_before = executor->base.n_launched;
    const gyre_status status =
        launch_works(executor, works, (uint32_t)n_works, (cudaStream_t)stream);
    executor->recorder.times_next = false;
    pthread_mutex_unlock(&executor->lock);
    end_if_begun(executor, launched_before, status);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}
