/* SPDX-License-Identifier: Apache-2.0
 *
 * Tails of copies, on the caller's stream and beside it on the executor's side streams.
 */
#include "kernels/cuda/runtime/state.h"
#include "kernels/cuda/runtime/kernel_table.h"

#include <string.h>

#define MAX_PITCH_BYTES INT32_MAX /* cudaDevAttrMaxPitch */

struct tail_launch {
    struct gyre_cuda_executor *executor;
    const struct gyre_work *work;
    struct gyre_cuda_side_streams *side; /* NULL: all on the caller's stream */
    cudaStream_t stream;
    uint32_t n_works;
    bool is_forked[GYRE_CUDA_SIDE_STREAMS];
};

gyre_status gyre_cuda_side_streams_open(struct gyre_cuda_executor *executor)
{
    enum { ROW_BYTES = 16, PITCH_BYTES = 32, N_ROWS = 2 };
    for (int set = 0; set < 2; set++) {
        struct gyre_cuda_side_streams *side = &executor->side_streams[set];
        for (int i = 0; i < GYRE_CUDA_SIDE_STREAMS; i++) {
            GYRE_CUDA_TRY(cudaStreamCreateWithFlags(&side->streams[i], cudaStreamNonBlocking));
            GYRE_CUDA_TRY(cudaEventCreateWithFlags(&side->joins[i], cudaEventDisableTiming));
        }
        GYRE_CUDA_TRY(cudaEventCreateWithFlags(&side->fork, cudaEventDisableTiming));
    }
    /* A strided copy within a GPU may be a kernel. The executor's memory is not in use yet. */
    unsigned char *from = executor->arena.base;
    unsigned char *to = from + PITCH_BYTES * N_ROWS;
    const cudaStream_t stream = executor->side_streams[0].streams[0];
    GYRE_CUDA_TRY(cudaMemcpyAsync(to, from, ROW_BYTES, cudaMemcpyDefault, stream));
    GYRE_CUDA_TRY(cudaMemcpy2DAsync(to, PITCH_BYTES, from, PITCH_BYTES, ROW_BYTES, N_ROWS,
                                    cudaMemcpyDefault, stream));
    return gyre_cuda_await_stream(stream, executor->fault);
}

void gyre_cuda_side_streams_close(struct gyre_cuda_executor *executor)
{
    for (int set = 0; set < 2; set++) {
        struct gyre_cuda_side_streams *side = &executor->side_streams[set];
        for (int i = 0; i < GYRE_CUDA_SIDE_STREAMS; i++) {
            if (side->streams[i] != NULL)
                (void)cudaStreamDestroy(side->streams[i]);
            if (side->joins[i] != NULL)
                (void)cudaEventDestroy(side->joins[i]);
        }
        if (side->fork != NULL)
            (void)cudaEventDestroy(side->fork);
        memset(side, 0, sizeof(*side));
    }
}

/* A capture keeps a forked side stream until it ends, so a launch in another capture gets none. */
static gyre_status choose_side_streams(struct tail_launch *launch)
{
    struct gyre_cuda_executor *executor = launch->executor;
    enum cudaStreamCaptureStatus capturing;
    unsigned long long capture = 0, other = 0;
    GYRE_CUDA_TRY(
        cudaStreamGetCaptureInfo(launch->stream, &capturing, &capture, NULL, NULL, NULL, NULL));
    launch->side = &executor->side_streams[0];
    if (capturing != cudaStreamCaptureStatusActive)
        return GYRE_SUCCESS;
    launch->side = &executor->side_streams[1];
    for (int i = 0; i < GYRE_CUDA_SIDE_STREAMS; i++) {
        GYRE_CUDA_TRY(cudaStreamGetCaptureInfo(executor->side_streams[1].streams[i], &capturing,
                                               &other, NULL, NULL, NULL, NULL));
        if (capturing != cudaStreamCaptureStatusNone && other != capture)
            launch->side = NULL;
    }
    return GYRE_SUCCESS;
}

/* @number: 0 is the caller's stream. */
static gyre_status find_stream(struct tail_launch *launch, uint32_t number,
                               cudaStream_t *stream_out)
{
    *stream_out = launch->stream;
    if (number == 0 || launch->side == NULL)
        return GYRE_SUCCESS;
    *stream_out = launch->side->streams[number - 1];
    if (launch->is_forked[number - 1])
        return GYRE_SUCCESS;
    launch->is_forked[number - 1] = true;
    GYRE_CUDA_TRY(cudaStreamWaitEvent(*stream_out, launch->side->fork, 0));
    return GYRE_SUCCESS;
}

static struct gyre_cuda_start sync_start(struct tail_launch *launch,
                                         const struct gyre_cuda_sync_entry *entries,
                                         uint32_t n_entries)
{
    struct gyre_cuda_args_sync *args = &launch->executor->args.sync;
    gyre_cuda_fill_common(launch->executor, GYRE_PROTO_SIMPLE, 1, &args->common);
    args->common.n_works = args->common.ends_works = 0;
    args->signature = launch->work->signature;
    args->n_entries = n_entries;
    memcpy(args->entries, entries, n_entries * sizeof(*entries));
    return (struct gyre_cuda_start){.kernel = gyre_cuda_kernel_sync,
                                    .args = args,
                                    .n_blocks = 1,
                                    .n_threads = GYRE_CUDA_SYNC_THREADS};
}

static gyre_status enqueue_sync(void *context, uint32_t channel,
                                const struct gyre_cuda_sync_entry *entries, uint32_t n_entries)
{
    struct tail_launch *launch = context;
    const struct gyre_cuda_start start = sync_start(launch, entries, n_entries);
    cudaStream_t stream;
    GYRE_TRY(find_stream(launch, channel, &stream));
    return gyre_cuda_start_kernel(&start, stream, false);
}

static gyre_status enqueue_ends(void *context, bool is_last,
                                const struct gyre_cuda_sync_entry *entries, uint32_t n_entries)
{
    struct tail_launch *launch = context;
    struct gyre_cuda_common *common = &launch->executor->args.sync.common;
    for (int i = 0; i < GYRE_CUDA_SIDE_STREAMS && is_last; i++) {
        if (!launch->is_forked[i])
            continue;
        GYRE_CUDA_TRY(cudaEventRecord(launch->side->joins[i], launch->side->streams[i]));
        GYRE_CUDA_TRY(cudaStreamWaitEvent(launch->stream, launch->side->joins[i], 0));
    }
    struct gyre_cuda_start start = sync_start(launch, entries, n_entries);
    if (is_last)
        common->n_works = common->ends_works = 1;
    else
        common->n_works = (uint16_t)(start.n_works = launch->n_works);
    if (common->n_works > 0)
        gyre_cuda_record_launch(launch->executor, launch->work, 1,
                                is_last ? GYRE_CUDA_RUN_CLOSES : GYRE_CUDA_RUN_OPENS, common);
    GYRE_TRY(gyre_cuda_start(launch->executor, &start, launch->stream));
    if (!is_last && launch->side != NULL)
        GYRE_CUDA_TRY(cudaEventRecord(launch->side->fork, launch->stream));
    return GYRE_SUCCESS;
}

static gyre_status enqueue_copy(void *context, uint32_t channel, const struct gyre_cuda_copy *copy)
{
    struct tail_launch *launch = context;
    const struct gyre_work *work = launch->work;
    const unsigned char *from =
        (copy->from_in ? (const unsigned char *)work->in : (unsigned char *)work->out) +
        copy->from_offset;
    unsigned char *to = (unsigned char *)work->out + copy->to_offset;
    cudaStream_t stream;
    if (copy->peer >= 0)
        to = (unsigned char *)work->placement->bases[copy->peer] + work->out_offset_bytes +
             copy->to_offset;
    if (to == from)
        return GYRE_SUCCESS;
    if (copy->peer < 0 && copy->n_rows == 1) {
        struct gyre_cuda_args_copy args = {from, to, copy->row_bytes};
        const struct gyre_cuda_start start = {
            .kernel = gyre_cuda_kernel_copy_within,
            .args = &args,
            .n_blocks = (uint32_t)gyre_min_u64(
                gyre_div_round_up(copy->row_bytes, GYRE_CUDA_COPY_PIECE), GYRE_COPY_BLOCKS),
            .n_threads = GYRE_CUDA_COPY_THREADS,
        };
        GYRE_TRY(find_stream(launch, GYRE_CUDA_SIDE_STREAMS, &stream));
        return gyre_cuda_start_kernel(&start, stream, false);
    }
    GYRE_TRY(find_stream(launch, copy->peer < 0 ? GYRE_CUDA_SIDE_STREAMS : channel, &stream));
    if (copy->n_rows > 1 && copy->pitch_bytes <= MAX_PITCH_BYTES) {
        GYRE_CUDA_TRY(cudaMemcpy2DAsync(to, copy->pitch_bytes, from, copy->pitch_bytes,
                                        copy->row_bytes, copy->n_rows, cudaMemcpyDefault, stream));
        return GYRE_SUCCESS;
    }
    for (uint64_t row = 0; row < copy->n_rows; row++)
        GYRE_CUDA_TRY(cudaMemcpyAsync(to + row * copy->pitch_bytes, from + row * copy->pitch_bytes,
                                      copy->row_bytes, cudaMemcpyDefault, stream));
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_launch_copies(struct gyre_cuda_executor *executor,
                                    const struct gyre_work *work, uint32_t n_works,
                                    cudaStream_t stream)
{
    struct tail_launch launch = {
        .executor = executor, .work = work, .stream = stream, .n_works = n_works};
    const struct gyre_cuda_copies_sink sink = {
        .context = &launch, .sync = enqueue_sync, .copy = enqueue_copy, .ends = enqueue_ends};
    GYRE_TRY(choose_side_streams(&launch));
    return gyre_cuda_copies_walk(work->ready->loaded->copies, &work->ready->split,
                                 gyre_dtype_bytes((gyre_dtype)work->ready->reduction.dtype), &sink);
}
