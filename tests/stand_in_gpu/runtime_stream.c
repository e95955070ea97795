/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream is its last task. An event is a stream's last task when the event was recorded, or, in a
 * capture, the nodes that the stream's next operation depends on.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdlib.h>
#include <string.h>

struct CUevent_st {
    struct stand_in_task *task; /* NULL: the stream had none */
    uint64_t record_ns;         /* 0 = not recorded */
    int gpu;
    bool has_times;
    unsigned long long capture; /* 0 = recorded outside of captures */
    struct stand_in_nodes nodes;
};

struct CUstream_st *stand_in_streams;

static struct CUstream_st null_streams[STAND_IN_MAX_GPUS];
static uint64_t n_streams;

struct CUstream_st *stand_in_stream_find(cudaStream_t handle)
{
    struct CUstream_st *null_stream = &null_streams[stand_in_gpu()];
    if (handle == NULL || handle == cudaStreamLegacy) {
        null_stream->gpu = stand_in_gpu();
        null_stream->is_blocking = true;
        return null_stream;
    }
    for (struct CUstream_st *stream = stand_in_streams; stream != NULL; stream = stream->next)
        if (stream == handle)
            return stream;
    return NULL;
}

void stand_in_stream_append(struct CUstream_st *stream, struct stand_in_task *task)
{
    stand_in_task_follow(task, stream->last);
    task->is_blocking = stream->is_blocking;
    if (stream->number == 0)
        stand_in_task_follow_blocking(task);
    else if (stream->is_blocking)
        stand_in_task_follow(task, null_streams[stream->gpu].last);
    stand_in_task_set(&stream->last, task);
}

/* A task that only follows @before too. The stream is not captured. */
static struct stand_in_task *append_wait(struct CUstream_st *stream, struct stand_in_task *before)
{
    const struct stand_in_op op = {.kind = STAND_IN_NOTHING, .gpu = stream->gpu};
    struct stand_in_task *task = stand_in_task_new(&op, stream->number);
    stand_in_stream_append(stream, task);
    stand_in_task_follow(task, before);
    stand_in_task_start(task);
    return stream->last;
}

static cudaError_t enqueue(struct CUstream_st *stream, struct stand_in_op *op, bool overlaps)
{
    if (stream == NULL || (op->kind == STAND_IN_KERNEL && stream->gpu != stand_in_gpu()))
        return cudaErrorInvalidResourceHandle;
    op->gpu = stream->gpu;
    op->launch.gpu = (uint32_t)stream->gpu;
    if (stream->capture != NULL)
        return stand_in_capture_add(stream, op, overlaps);
    struct stand_in_task *task = stand_in_task_new(op, stream->number);
    stand_in_stream_append(stream, task);
    stand_in_task_start(task);
    return cudaSuccess;
}

cudaError_t stand_in_enqueue(cudaStream_t handle, struct stand_in_op *op, bool overlaps)
{
    stand_in_enter();
    return stand_in_leave(enqueue(stand_in_stream_find(handle), op, overlaps));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream_out, unsigned flags, int priority)
{
    (void)priority; /* every task has threads of its own */
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)
        return stand_in_result(cudaErrorInvalidValue);
    struct CUstream_st *stream = stand_in_realloc(NULL, sizeof(*stream));
    stand_in_enter();
    *stream = (struct CUstream_st){.next = stand_in_streams,
                                   .number = ++n_streams,
                                   .gpu = stand_in_gpu(),
                                   .is_blocking = flags == cudaStreamDefault};
    stand_in_streams = stream;
    *stream_out = stream;
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_out, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream_out, flags, 0);
}

/* The stream's tasks go on. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    struct CUstream_st **link = &stand_in_streams;
    stand_in_enter();
    while (*link != NULL && *link != handle)
        link = &(*link)->next;
    if (*link == NULL || handle == NULL)
        return stand_in_leave(cudaErrorInvalidResourceHandle);
    if (handle->capture != NULL)
        return stand_in_leave(stand_in_capture_refuse(handle));
    *link = handle->next;
    stand_in_task_set(&handle->last, NULL);
    stand_in_nodes_clear(&handle->heads);
    free(handle);
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    stand_in_enter();
    struct CUstream_st *stream = stand_in_stream_find(handle);
    const cudaError_t error =
        stream == NULL ? cudaErrorInvalidResourceHandle : stand_in_capture_refuse(stream);
    if (error == cudaSuccess)
        stand_in_task_wait(stream->number == 0 ? append_wait(stream, NULL) : stream->last);
    return stand_in_leave(error);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    stand_in_enter();
    struct CUstream_st *stream = stand_in_stream_find(handle);
    cudaError_t error =
        stream == NULL ? cudaErrorInvalidResourceHandle : stand_in_capture_refuse(stream);
    if (error == cudaSuccess) {
        const bool is_busy = stream->number == 0 ? stand_in_gpu_is_busy(stream->gpu)
                                                 : stream->last != NULL && !stream->last->has_ended;
        error = is_busy ? cudaErrorNotReady : cudaSuccess;
    }
    return stand_in_leave(error);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_out, unsigned flags)
{
    struct CUevent_st *event = stand_in_realloc(NULL, sizeof(*event));
    *event = (struct CUevent_st){.gpu = stand_in_gpu(),
                                 .has_times = (flags & cudaEventDisableTiming) == 0};
    *event_out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event_out)
{
    return cudaEventCreateWithFlags(event_out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event == NULL)
        return stand_in_result(cudaErrorInvalidResourceHandle);
    stand_in_enter();
    stand_in_task_set(&event->task, NULL);
    stand_in_nodes_clear(&event->nodes);
    free(event);
    return stand_in_leave(cudaSuccess);
}

static cudaError_t record(cudaEvent_t event, struct CUstream_st *stream)
{
    if (event == NULL || stream == NULL || event->gpu != stream->gpu)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture != NULL && stream->capture->is_invalid)
        return cudaErrorStreamCaptureInvalidated;
    stand_in_nodes_clear(&event->nodes);
    stand_in_task_set(&event->task, NULL);
    event->record_ns = stand_in_now_ns();
    event->capture = 0;
    if (stream->capture != NULL) {
        event->capture = stream->capture->id;
        stand_in_nodes_add(&event->nodes, &stream->heads);
        return cudaSuccess;
    }
    stand_in_task_set(&event->task, stream->number == 0 ? append_wait(stream, NULL) : stream->last);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    stand_in_enter();
    return stand_in_leave(record(event, stand_in_stream_find(handle)));
}

static cudaError_t wait_event(struct CUstream_st *stream, cudaEvent_t event)
{
    if (event == NULL || stream == NULL)
        return cudaErrorInvalidResourceHandle;
    if (event->record_ns == 0)
        return cudaSuccess;
    if (event->capture != 0) {
        struct stand_in_capture *capture = stand_in_capture_find(event->capture);
        return capture == NULL ? cudaErrorCapturedEvent
                               : stand_in_capture_join(stream, capture, &event->nodes);
    }
    if (stream->capture != NULL) {
        stream->capture->is_invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (event->task != NULL && !event->task->has_ended && event->task != stream->last)
        (void)append_wait(stream, event->task);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    stand_in_enter();
    return stand_in_leave(wait_event(stand_in_stream_find(handle), event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess && event->capture != 0)
        error = cudaErrorCapturedEvent;
    if (error == cudaSuccess && event->task != NULL && !event->task->has_ended)
        error = cudaErrorNotReady;
    return stand_in_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess && event->capture != 0)
        error = cudaErrorCapturedEvent;
    if (error == cudaSuccess)
        stand_in_task_wait(event->task);
    return stand_in_leave(error);
}

static uint64_t reached_ns(const struct CUevent_st *event)
{
    const uint64_t end_ns = event->task != NULL ? event->task->end_ns : 0;
    return end_ns > event->record_ns ? end_ns : event->record_ns;
}

static cudaError_t check_times(const struct CUevent_st *event)
{
    if (event == NULL || !event->has_times || event->record_ns == 0 || event->capture != 0)
        return cudaErrorInvalidResourceHandle;
    return event->task != NULL && !event->task->has_ended ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms_out, cudaEvent_t begin, cudaEvent_t end)
{
    stand_in_enter();
    cudaError_t error = check_times(begin);
    if (error == cudaSuccess)
        error = check_times(end);
    if (error == cudaSuccess)
        *ms_out = (float)((double)(int64_t)(reached_ns(end) - reached_ns(begin)) / 1e6);
    return stand_in_leave(error);
}
