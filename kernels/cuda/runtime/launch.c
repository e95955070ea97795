/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the CUDA executor. A work becomes one block of kernel parameters and one launch; the
 * launches of an executor run one after the other, whatever streams the caller gives them.
 */
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/state.h"

#include "core/base/sync.h"

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

static bool has_completed_all(struct gyre_cuda_executor *executor)
{
    return executor->base.ops->progress(&executor->base).completed >= executor->base.n_launched;
}

/* From now on an event is recorded after each launch. The last launch before that has none; the
 * progress mailbox tells whether it is over. (The mailbox also counts replays of graphs, but they
 * come after that launch.) */
static void begin_events(struct gyre_cuda_executor *executor)
{
    if (executor->has_streams)
        return;
    executor->has_streams = true;
    executor->lacks_event = executor->has_launched;
}

/* Records the event that is missing after the last launch. If that launch is over, no event is
 * needed, and its stream may no longer exist. */
static gyre_status make_up_event(struct gyre_cuda_executor *executor)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (has_completed_all(executor)) {
        executor->lacks_event = executor->has_launched = false;
        return GYRE_SUCCESS;
    }
    GYRE_CUDA_TRY(cudaStreamIsCapturing(executor->last_stream, &capturing));
    if (capturing != cudaStreamCaptureStatusNone)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "a call on a second stream, while the stream of an earlier call that has "
                         "not ended is being captured: wait for that call before the capture");
    GYRE_CUDA_TRY(cudaEventRecord(executor->last_event, executor->last_stream));
    executor->lacks_event = false;
    return GYRE_SUCCESS;
}

/* Makes the stream wait for the executor's last launch if that was on another stream. As long as
 * the caller uses one stream and no graph, this costs nothing. */
static gyre_status order_after_last(struct gyre_cuda_executor *executor, cudaStream_t stream,
                                    uint64_t capture)
{
    if (capture != 0) {
        /* Inside a graph the launches are ordered here. The graph as a whole is ordered against
         * other launches by the program that launches it. */
        if (executor->last_capture != capture || executor->captured_stream == stream)
            return GYRE_SUCCESS;
        GYRE_CUDA_TRY(cudaEventRecord(executor->captured_event, executor->captured_stream));
        GYRE_CUDA_TRY(cudaStreamWaitEvent(stream, executor->captured_event, 0));
        return GYRE_SUCCESS;
    }
    if (!executor->has_launched || executor->last_stream == stream)
        return GYRE_SUCCESS;
    begin_events(executor);
    if (executor->lacks_event)
        GYRE_TRY(make_up_event(executor));
    if (!executor->has_launched)
        return GYRE_SUCCESS;
    GYRE_CUDA_TRY(cudaStreamWaitEvent(stream, executor->last_event, 0));
    return GYRE_SUCCESS;
}

/* In a capture: the node that the stream's next operation depends on. NULL if it depends on several
 * nodes, or by an edge that is not a full dependency. */
static gyre_status find_last_node(cudaStream_t stream, cudaGraphNode_t *node_out)
{
    enum cudaStreamCaptureStatus capturing;
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL;
    size_t n_nodes = 0;
    GYRE_CUDA_TRY(
        cudaStreamGetCaptureInfo(stream, &capturing, NULL, NULL, &nodes, &edges, &n_nodes));
    const bool is_plain =
        n_nodes == 1 && (edges == NULL || (edges[0].from_port == 0 &&
                                           edges[0].type == cudaGraphDependencyTypeDefault));
    *node_out = is_plain ? nodes[0] : NULL;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_start_kernel(const struct gyre_cuda_start *launch, cudaStream_t stream,
                                   bool overlaps)
{
    void *params[] = {launch->args};
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    memset(&config, 0, sizeof(config));
    config.gridDim = (dim3){launch->n_blocks, 1, 1};
    config.blockDim = (dim3){launch->n_threads, 1, 1};
    config.dynamicSmemBytes = launch->shared_bytes;
    config.stream = stream;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlaps ? 1 : 0;
    GYRE_CUDA_TRY(cudaLaunchKernelExC(&config, launch->kernel, params));
    return GYRE_SUCCESS;
}

/* May the launch begin while what comes before it in the stream ends? In a capture only if that is
 * this executor's last launch: its kernel has waited for everything that came before, which another
 * node may not have done. Outside of captures a kernel of the application may lie between, and this
 * launch then waits for that one's end, and for what that one has waited for. Where calls were
 * captured, a graph that ends with one of them may lie between, and nothing says how a launch
 * overlaps with the end of a graph. */
static gyre_status find_overlap(const struct gyre_cuda_executor *executor, cudaStream_t stream,
                                uint64_t capture, bool *overlaps_out)
{
    cudaGraphNode_t before = NULL;
    *overlaps_out = false;
    if (!executor->overlaps_launches)
        return GYRE_SUCCESS;
    if (capture == 0) {
        *overlaps_out = executor->has_launched && executor->last_stream == stream &&
                        executor->last_capture == 0;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(find_last_node(stream, &before));
    *overlaps_out =
        before != NULL && before == executor->captured_node && capture == executor->last_capture;
    return GYRE_SUCCESS;
}

/* The driver is asked first, because the runtime's answer takes three times as long. */
gyre_status gyre_cuda_find_capture(const struct gyre_cuda_executor *executor, cudaStream_t stream,
                                   uint64_t *capture_out)
{
    CUstreamCaptureStatus is_captured;
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    unsigned long long capture = 0;
    *capture_out = 0;
    if (executor->driver->cuStreamIsCapturing(stream, &is_captured) == CUDA_SUCCESS &&
        is_captured == CU_STREAM_CAPTURE_STATUS_NONE)
        return GYRE_SUCCESS;
    GYRE_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &capturing, &capture, NULL, NULL, NULL, NULL));
    if (capturing == cudaStreamCaptureStatusActive)
        *capture_out = capture;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_start(struct gyre_cuda_executor *executor,
                            const struct gyre_cuda_start *launch, cudaStream_t stream)
{
    uint64_t capture = 0;
    bool overlaps = false;
    GYRE_TRY(gyre_cuda_find_capture(executor, stream, &capture));
    GYRE_TRY(order_after_last(executor, stream, capture));
    if (launch->awaits_last)
        GYRE_TRY(find_overlap(executor, stream, capture, &overlaps));
    /* The sync kernel behind copies belongs to works that an earlier launch has begun. */
    struct gyre_cuda_common *common = launch->args;
    const uint32_t n_begun = common->ends_works != 0 && launch->n_works == 0 ? common->n_works : 0U;
    common->recording.first_work =
        capture != 0 ? GYRE_CUDA_CAPTURED : executor->base.n_launched - n_begun;
    GYRE_TRY(gyre_cuda_start_kernel(launch, stream, overlaps));
    if (capture != 0) {
        begin_events(executor);
        executor->last_capture = capture;
        executor->captured_stream = stream;
        return find_last_node(stream, &executor->captured_node);
    }
    gyre_store_release_u64(&executor->base.n_launched, executor->base.n_launched + launch->n_works);
    if (executor->has_streams)
        GYRE_CUDA_TRY(cudaEventRecord(executor->last_event, stream));
    executor->lacks_event = false;
    executor->has_launched = true;
    executor->last_stream = stream;
    return GYRE_SUCCESS;
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

/* About how many bytes this rank sends to its peers or receives from them, whichever is more. */
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
    for (uint32_t i = 0; i < n_works; i++)
        n_bytes = gyre_max_u64(n_bytes, transferred_bytes(&works[i]));
    return works[0].loaded->proto == GYRE_PROTO_SIMPLE && n_places < executor->n_sms &&
           n_bytes >= executor->block_placement_bytes;
}

/* Threads of an interpreter's block. */
static uint32_t block_threads(const struct gyre_work *work)
{
    return gyre_cuda_block_threads(work->loaded->proto, gyre_cuda_step_bytes(work),
                                   work->loaded->n_threads);
}

/* Can lean kernels run this launch (device/lean.cuh)? @common: filled in. */
static bool is_lean(const struct gyre_work *works, uint32_t n_works,
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
    struct gyre_cuda_fused_launch fused;
    gyre_cuda_find_fused(executor, work, 1, &fused);
    if (fused.kernel != NULL)
        return gyre_cuda_launch_fused(executor, &fused, work, 1, stream);
    const uint32_t n_places = loaded->n_channels * loaded->n_workers;
    struct gyre_cuda_start launch = {
        .args = args,
        .n_blocks =
            gyre_cuda_places_blocks(executor, work, 1, n_places) ? executor->n_sms : n_places,
        .n_threads = block_threads(work),
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
        work->reduction.op, is_lean(work, 1, &args->common));
    gyre_cuda_fill_work(executor, work, 0, &args->work);
    args->work.inline_words = loaded->inline_words;
    if (loaded->inline_words > 0)
        memcpy(args->program, loaded->program, loaded->program->n_bytes);
    return gyre_cuda_start(executor, &launch, stream);
}

/* The kernel runs the program, or copy engines do, or the kernel runs the first part and copy
 * engines the rest. */
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

/* A launch failed after part of it was enqueued. That part can neither be taken back nor completed,
 * so the communicator is over. */
static void end_if_begun(struct gyre_cuda_executor *executor, uint64_t launched_before,
                         gyre_status status)
{
    if (status != GYRE_SUCCESS && executor->base.n_launched != launched_before)
        (void)gyre_fault_raise(executor->fault, status, gyre_cause());
}

/* Fills in the works of a launch, and what their blocks need. Returns UNSUPPORTED if they cannot
 * run at the same time. @n_places_out: the blocks that work. */
static gyre_status fill_works(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                              uint32_t n_works, struct gyre_cuda_start *launch,
                              uint32_t *n_places_out)
{
    struct gyre_cuda_args_many *args = launch->args;
    uint32_t n_places = 0;
    if (n_works > GYRE_CUDA_MAX_WORKS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%u works in one launch; %d are possible", n_works,
                         GYRE_CUDA_MAX_WORKS);
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_loaded *loaded = works[i].loaded;
        if (!gyre_cuda_only_copies(loaded, &works[i].reduction) ||
            loaded->proto != works[0].loaded->proto || loaded->copies != NULL ||
            loaded->n_areas > 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "works of one launch must only copy, by one protocol, and without "
                             "scratch");
        gyre_cuda_fill_work(executor, &works[i], n_places, &args->works[i]);
        n_places += loaded->n_channels * loaded->n_workers;
        launch->n_threads = (uint32_t)gyre_max_u64(launch->n_threads, block_threads(&works[i]));
        launch->shared_bytes = (uint32_t)gyre_max_u64(launch->shared_bytes, loaded->shared_bytes);
    }
    if (n_places > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%u works take %u blocks, which must all run at the same time; the GPU "
                         "has %u multiprocessors",
                         n_works, n_places, executor->n_sms);
    *n_places_out = n_places;
    return GYRE_SUCCESS;
}

/* Works that may wait for each other, such as a send and a receive: one kernel runs all of them. It
 * only copies. */
static gyre_status launch_many(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                               uint32_t n_works, cudaStream_t stream)
{
    const enum gyre_proto proto = works[0].loaded->proto;
    struct gyre_cuda_args_many *args = &executor->args.many;
    struct gyre_cuda_start launch = {.args = args, .n_works = n_works, .awaits_last = true};
    struct gyre_cuda_fused_launch fused;
    uint32_t n_places = 0;
    gyre_cuda_find_fused(executor, works, n_works, &fused);
    if (fused.kernel != NULL)
        return gyre_cuda_launch_fused(executor, &fused, works, n_works, stream);
    if (gyre_cuda_may_go_apart(executor, works, n_works))
        return gyre_cuda_launch_apart(executor, works, stream);
    GYRE_TRY(fill_works(executor, works, n_works, &launch, &n_places));
    launch.n_blocks =
        gyre_cuda_places_blocks(executor, works, n_works, n_places) ? executor->n_sms : n_places;
    gyre_cuda_fill_common(executor, proto, n_places, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = (uint16_t)n_works;
    args->common.ends_works = 1;
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_STEPS, &args->common);
    launch.kernel =
        gyre_cuda_copier_function(proto, n_works, is_lean(works, n_works, &args->common));
    return gyre_cuda_start(executor, &launch, stream);
}

/* Sees to it that the works' programs are on the GPU and stay there until the launch is over. */
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

/* The launch was captured. Its graph may be launched at any time, so the memory of its programs is
 * never used for anything else. */
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

gyre_status gyre_cuda_launch(struct gyre_executor *base, const struct gyre_work *works, int n_works,
                             gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    int previous;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    /* Nothing is to be moved on any rank. The kernel must not run, because it would let the peers
     * write into OUT without anything to wait for. */
    if (n_works == 1 && works[0].split.count == 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++)
        GYRE_TRY(check_work(&works[i]));
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const uint64_t launched_before = executor->base.n_launched;
    gyre_status status = hold_programs(executor, works, (uint32_t)n_works);
    if (status == GYRE_SUCCESS)
        status = n_works == 1
                     ? launch_whole(executor, works, (cudaStream_t)stream)
                     : launch_many(executor, works, (uint32_t)n_works, (cudaStream_t)stream);
    executor->recorder.times_next = false;
    if (executor->base.n_launched == launched_before) /* captured launches are not counted */
        hold_captured(executor, works, (uint32_t)n_works);
    else
        gyre_cuda_remember(executor, works, (uint32_t)n_works, launched_before);
    pthread_mutex_unlock(&executor->lock);
    end_if_begun(executor, launched_before, status);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}
