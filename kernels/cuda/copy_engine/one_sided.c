/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies by copy engines, and kernels that signal and wait (signal_kernel.cu), ordered by the
 * caller's stream alone, because they use no FIFO.
 */
#include "core/foundation/base/sync.h"
#include "kernels/cuda/runtime/kernel_table.h"
#include "kernels/cuda/runtime/state.h"

#include <stdlib.h>

static bool is_past(cudaEvent_t event)
{
    const bool has_ended = cudaEventQuery(event) != cudaErrorNotReady;
    (void)cudaGetLastError();
    return has_ended;
}

bool gyre_cuda_marks_are_past(const struct gyre_cuda_executor *executor)
{
    const struct gyre_cuda_put_marks *marks = &executor->marks;
    struct gyre_cuda_apart apart = {0};
    uint32_t n_past = 0;
    if (marks->n_marks == 0 ||
        gyre_cuda_enter_apart(executor->device->ordinal, &apart) != GYRE_SUCCESS)
        return true;
    while (n_past < marks->n_marks && is_past(marks->marks[n_past].event))
        n_past++;
    gyre_cuda_leave_apart(&apart);
    return n_past == marks->n_marks;
}

void gyre_cuda_marks_close(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_put_marks *marks = &executor->marks;
    for (uint32_t i = 0; i < marks->n_marks; i++)
        (void)cudaEventDestroy(marks->marks[i].event);
    free(marks->marks);
    *marks = (struct gyre_cuda_put_marks){0};
}

static gyre_status find_mark(struct gyre_cuda_put_marks *marks, cudaStream_t stream,
                             struct gyre_cuda_put_mark **mark_out)
{
    for (uint32_t i = 0; i < marks->n_marks; i++) {
        *mark_out = &marks->marks[i];
        if ((*mark_out)->stream == stream)
            return GYRE_SUCCESS;
    }
    for (uint32_t i = 0; i < marks->n_marks; i++) {
        *mark_out = &marks->marks[i];
        if (is_past((*mark_out)->event))
            return GYRE_SUCCESS;
    }
    struct gyre_cuda_put_mark *more =
        realloc(marks->marks, (marks->n_marks + 1) * sizeof(*marks->marks));
    if (more == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "marks of %u streams", marks->n_marks + 1);
    marks->marks = more;
    GYRE_CUDA_TRY(cudaEventCreateWithFlags(&more[marks->n_marks].event, cudaEventDisableTiming));
    *mark_out = &more[marks->n_marks++];
    return GYRE_SUCCESS;
}

/* Captures have no mark: the caller's graphs may not run when the communicator ends. */
static gyre_status mark(struct gyre_cuda_executor *executor, cudaStream_t stream, uint64_t capture)
{
    struct gyre_cuda_apart apart = {0};
    struct gyre_cuda_put_mark *found = NULL;
    if (capture != 0)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_enter_apart(executor->device->ordinal, &apart));
    gyre_status status = find_mark(&executor->marks, stream, &found);
    if (status == GYRE_SUCCESS) {
        found->stream = stream;
        GYRE_CUDA_TRY_GOTO(status, cudaEventRecord(found->event, stream), leave);
    }
leave:
    gyre_cuda_leave_apart(&apart);
    return status;
}

static gyre_status enqueue_put(struct gyre_cuda_executor *executor, const struct gyre_put *put,
                               cudaStream_t stream)
{
    uint64_t capture = 0;
    GYRE_TRY(gyre_cuda_find_capture(executor, stream, &capture));
    if (put->n_bytes > 0 && put->to != put->from)
        GYRE_CUDA_TRY(cudaMemcpyAsync(put->to, put->from, put->n_bytes, cudaMemcpyDefault, stream));
    if (put->signal != GYRE_NO_SIGNAL) {
        struct gyre_cuda_args_signal args = {
            .control = executor->control,
            .sent = put->counters[executor->rank] +
                    gyre_signal_index(executor->n_ranks, GYRE_SIGNALS_SENT, put->peer, put->signal),
            .arrived = put->counters[put->peer] + gyre_signal_index(executor->n_ranks,
                                                                    GYRE_SIGNALS_ARRIVED,
                                                                    executor->rank, put->signal),
        };
        const struct gyre_cuda_start start = {
            .kernel = gyre_cuda_kernel_signal, .args = &args, .n_blocks = 1, .n_threads = 1};
        GYRE_TRY(gyre_cuda_start_kernel(&start, stream, false));
    }
    return mark(executor, stream, capture);
}

gyre_status gyre_cuda_put(struct gyre_executor *base, const struct gyre_put *put,
                          gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    int previous = -1;
    /* A put to a rank that has left fails here: a stream cannot end with an error of gyre's. */
    if (gyre_load_acquire_u64(&executor->has_left[put->peer]) != 0)
        return gyre_fail_unreachable(put->peer, executor->rank);
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const gyre_status status = enqueue_put(executor, put, (cudaStream_t)stream);
    pthread_mutex_unlock(&executor->lock);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}

static gyre_status start_await(struct gyre_cuda_executor *executor, cudaStream_t stream)
{
    const struct gyre_cuda_start start = {.kernel = gyre_cuda_kernel_await,
                                          .args = &executor->args.await,
                                          .n_blocks = 1,
                                          .n_threads = GYRE_CUDA_AWAIT_THREADS};
    if (executor->args.await.n_entries == 0)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_start_kernel(&start, stream, false));
    executor->args.await.n_entries = 0;
    return GYRE_SUCCESS;
}

static gyre_status enqueue_await(struct gyre_cuda_executor *executor,
                                 const struct gyre_signals_await *await, cudaStream_t stream)
{
    struct gyre_cuda_args_await *args = &executor->args.await;
    uint64_t *own = await->counters[executor->rank];
    uint64_t capture = 0;
    GYRE_TRY(gyre_cuda_find_capture(executor, stream, &capture));
    gyre_cuda_fill_common(executor, GYRE_PROTO_SIMPLE, 1, &args->common);
    args->common.n_works = args->common.ends_works = 0;
    args->arrived = own + gyre_signal_index(executor->n_ranks, GYRE_SIGNALS_ARRIVED, 0, 0);
    args->awaited = own + gyre_signal_index(executor->n_ranks, GYRE_SIGNALS_AWAITED, 0, 0);
    args->has_left = executor->has_left;
    args->timeout_ns = await->timeout_ns;
    args->n_entries = args->pad = 0;
    for (int i = 0; i < await->n_waits; i++) {
        const gyre_signal_wait *wait = &await->waits[i];
        if (wait->count == 0)
            continue;
        if (args->n_entries == GYRE_CUDA_AWAIT_ENTRIES)
            GYRE_TRY(start_await(executor, stream));
        args->entries[args->n_entries++] = (struct gyre_cuda_await_entry){
            (uint32_t)(wait->peer * GYRE_N_SIGNALS + wait->signal), (uint32_t)wait->count};
    }
    GYRE_TRY(start_await(executor, stream));
    return mark(executor, stream, capture);
}

gyre_status gyre_cuda_await_signals(struct gyre_executor *base,
                                    const struct gyre_signals_await *await, gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    int previous = -1;
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const gyre_status status = enqueue_await(executor, await, (cudaStream_t)stream);
    pthread_mutex_unlock(&executor->lock);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}

void gyre_cuda_peer_left(struct gyre_executor *base, int rank)
{
    gyre_store_release_u64(&gyre_cuda_own(base)->has_left[rank], 1);
}
