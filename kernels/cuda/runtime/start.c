/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/sync.h"

#include <string.h>

/* The mailbox tells of the launch before; replays, which it counts too, come later. */
static void begin_events(struct gyre_cuda_executor *executor)
{
    if (executor->has_streams)
        return;
    executor->has_streams = true;
    executor->lacks_event = executor->has_launched;
}

/* Unless the launch is over: then its stream may no longer exist. */
static gyre_status make_up_event(struct gyre_cuda_executor *executor)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (executor->base.ops->progress(&executor->base).completed >= executor->base.n_launched) {
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

/* Free as long as the caller uses one stream and no graph. */
static gyre_status order_after_last(struct gyre_cuda_executor *executor, cudaStream_t stream,
                                    uint64_t capture)
{
    if (capture != 0) {
        /* Launches inside a graph are ordered here; the program orders the graph. */
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

/* What the stream's next operation depends on. NULL: several nodes, or no full dependency. */
static gyre_status find_last_node(cudaStream_t stream, cudaGraphNode_t *node_out)
{
    enum cudaStreamCaptureStatus capturing;
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL;
    size_t n_nodes = 0;
    GYRE_CUDA_TRY(
        cudaStreamGetCaptureInfo(stream, &capturing, NULL, NULL, &nodes, &edges, &n_nodes));
    const bool is_default_edge =
        n_nodes == 1 && (edges == NULL || (edges[0].from_port == 0 &&
                                           edges[0].type == cudaGraphDependencyTypeDefault));
    *node_out = is_default_edge ? nodes[0] : NULL;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_start_kernel(const struct gyre_cuda_start *launch, cudaStream_t stream,
                                   bool overlaps)
{
    void *params[] = {launch->args};
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    memset(&config, 0, sizeof(config));
    config.gridDim = (dim3){launch->n_blocks, launch->n_rows == 0 ? 1 : launch->n_rows, 1};
    config.blockDim = (dim3){launch->n_threads, 1, 1};
    config.dynamicSmemBytes = launch->shared_bytes;
    config.stream = stream;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlaps ? 1 : 0;
    GYRE_CUDA_TRY(cudaLaunchKernelExC(&config, launch->kernel, params));
    return GYRE_SUCCESS;
}

/* In a capture a launch overlaps only with this executor's last one, whose kernel has waited for
 * all before it. Outside, it waits for the application's kernels between. After captures, a graph
 * may stand between, and nothing says how a launch overlaps with a graph's end. */
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

/* The driver first: the runtime takes three times as long. */
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
    /* The sync kernel behind copies belongs to works that have begun. */
    struct gyre_cuda_common *common = launch->args;
    const uint32_t n_begun = common->ends_works != 0 && launch->n_works == 0 ? common->n_works : 0U;
    for (uint32_t i = 0; i <= launch->n_more_commons; i++)
        common[i].recording.first_work =
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
