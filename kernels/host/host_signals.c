/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided operations are tasks of a stream. They may outlive the executor, so they hold a
 * reference and look under poll_lock whether it is open.
 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A poll may take about 100 us (host_stream.h): 256 KiB at 3 GB/s. */
#define PIECE_BYTES ((size_t)256 << 10)

struct goal {
    int sender;
    int signal;
    uint64_t count;
};

struct gyre_one_sided_task {
    struct gyre_task task; /* must be first */
    struct gyre_host_executor *executor;
    uint64_t *const *counters;
    uint64_t start_ns; /* 0 = not waiting */
    uint64_t timeout_ns;
    const struct gyre_remote_puts *remote;
    gyre_stream stream; /* NULL = the thread's default */
    pthread_t thread;
    bool has_ended;                       /* under poll_lock */
    struct gyre_one_sided_task *previous; /* under the executor's lock */
    struct gyre_one_sided_task *next;
    struct gyre_put put;
    int n_goals;
    struct goal goals[];
};

static uint64_t *arrived_of(const struct gyre_one_sided_task *task, int receiver, int sender,
                            int signal)
{
    return task->counters[receiver] +
           gyre_signal_index((int)task->executor->n_ranks, GYRE_SIGNALS_ARRIVED, sender, signal);
}

/* The caller holds poll_lock. */
static gyre_status check_open(const struct gyre_one_sided_task *task)
{
    if (task->executor->is_closed)
        return gyre_fail(GYRE_ERROR_ABORTED, "one-sided call: its communicator was destroyed");
    return gyre_fault_status(task->executor->fault);
}

static bool is_late(struct gyre_one_sided_task *task)
{
    const uint64_t now_ns = gyre_now_ns();
    if (task->start_ns == 0)
        task->start_ns = now_ns;
    return task->timeout_ns != 0 && now_ns - task->start_ns >= task->timeout_ns;
}

static void advance(struct gyre_put *put, size_t n_bytes)
{
    put->from = (const unsigned char *)put->from + n_bytes;
    put->to = put->to != NULL ? (unsigned char *)put->to + n_bytes : NULL;
    put->offset_bytes += n_bytes;
    put->n_bytes -= n_bytes;
}

/* The caller holds poll_lock. */
static enum gyre_task_state go_on_putting(struct gyre_one_sided_task *task)
{
    struct gyre_put *put = &task->put;
    const size_t n_bytes = put->n_bytes < PIECE_BYTES ? put->n_bytes : PIECE_BYTES;
    if (n_bytes > 0) {
        gyre_copy(put->to, put->from, n_bytes);
        advance(put, n_bytes);
    }
    if (put->n_bytes > 0)
        return GYRE_TASK_MOVING;
    if (put->signal >= 0)
        gyre_fetch_add_u64(arrived_of(task, put->peer, task->executor->rank, put->signal), 1);
    return GYRE_TASK_DONE;
}

/* By messages. */
static enum gyre_task_state go_on_sending(struct gyre_one_sided_task *task, gyre_status *status_out)
{
    struct gyre_put *put = &task->put;
    struct gyre_put piece = *put;
    const bool is_last = put->n_bytes <= put->remote->most_bytes;
    if (!is_last) {
        piece.n_bytes = put->remote->most_bytes;
        piece.signal = GYRE_NO_SIGNAL;
    }
    if ((piece.n_bytes > 0 || piece.signal >= 0) &&
        !put->remote->post(put->remote->context, &piece)) {
        if (!is_late(task))
            return GYRE_TASK_IDLE;
        *status_out = gyre_fail(GYRE_ERROR_TIMEOUT,
                                "a one-sided call of rank %d: rank %d took no message within the "
                                "operation's timeout; %zu bytes are left",
                                task->executor->rank, task->put.peer, task->put.n_bytes);
        return GYRE_TASK_DONE;
    }
    task->start_ns = 0;
    if (piece.n_bytes > 0)
        advance(put, piece.n_bytes);
    return is_last ? GYRE_TASK_DONE : GYRE_TASK_MOVING;
}

/* The caller holds poll_lock. */
static enum gyre_task_state go_on_waiting(struct gyre_one_sided_task *task, gyre_status *status_out)
{
    const int rank = task->executor->rank;
    while (task->n_goals > 0) {
        const struct goal *goal = &task->goals[task->n_goals - 1];
        /* Read first, so that the counter has all signals of a rank that has left. */
        const bool has_left = gyre_load_acquire_u32(&task->executor->has_left[goal->sender]) != 0;
        const uint64_t n =
            gyre_load_acquire_u64(arrived_of(task, rank, goal->sender, goal->signal));
        if (n >= goal->count) {
            task->n_goals--;
            continue;
        }
        if (has_left) {
            *status_out = gyre_fail(
                GYRE_ERROR_REMOTE,
                "rank %d destroyed its communicator; the signal that rank %d waits for can no "
                "longer come (signal %d: %" PRIu64 " of %" PRIu64 " came)",
                goal->sender, rank, goal->signal, n, goal->count);
            return GYRE_TASK_DONE;
        }
        if (!is_late(task))
            return GYRE_TASK_IDLE;
        *status_out = gyre_fail(GYRE_ERROR_TIMEOUT,
                                "wait_signal on rank %d: %" PRIu64 " of %" PRIu64
                                " signals %d came from rank %d within the operation's timeout",
                                rank, n, goal->count, goal->signal, goal->sender);
        return GYRE_TASK_DONE;
    }
    return GYRE_TASK_DONE;
}

/* The caller holds poll_lock. */
static void note_end(struct gyre_one_sided_task *task, enum gyre_task_state state)
{
    if (state != GYRE_TASK_DONE)
        return;
    task->has_ended = true;
    task->executor->n_ended++;
}

static enum gyre_task_state poll_put(struct gyre_task *base, gyre_status *status_out)
{
    struct gyre_one_sided_task *task = (struct gyre_one_sided_task *)base;
    enum gyre_task_state state = GYRE_TASK_DONE;
    pthread_mutex_lock(&task->executor->poll_lock);
    gyre_status status = check_open(task);
    if (status == GYRE_SUCCESS &&
        gyre_load_acquire_u32(&task->executor->has_left[task->put.peer]) != 0)
        status = gyre_fail_unreachable(task->put.peer, task->executor->rank);
    if (status == GYRE_SUCCESS)
        state = task->put.remote != NULL ? go_on_sending(task, status_out) : go_on_putting(task);
    else
        *status_out = status;
    note_end(task, state);
    pthread_mutex_unlock(&task->executor->poll_lock);
    return state;
}

static enum gyre_task_state poll_wait(struct gyre_task *base, gyre_status *status_out)
{
    struct gyre_one_sided_task *task = (struct gyre_one_sided_task *)base;
    enum gyre_task_state state = GYRE_TASK_DONE;
    pthread_mutex_lock(&task->executor->poll_lock);
    const gyre_status status = check_open(task);
    if (status == GYRE_SUCCESS && task->remote != NULL)
        task->remote->help(task->remote->context);
    if (status == GYRE_SUCCESS)
        state = go_on_waiting(task, status_out);
    else
        *status_out = status;
    note_end(task, state);
    pthread_mutex_unlock(&task->executor->poll_lock);
    return state;
}

static void release_task(struct gyre_task *base)
{
    struct gyre_one_sided_task *task = (struct gyre_one_sided_task *)base;
    struct gyre_host_executor *executor = task->executor;
    gyre_fetch_add_u64(&executor->n_one_sided, UINT64_MAX);
    pthread_mutex_lock(&executor->lock);
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        executor->one_sided = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    gyre_host_drop_user_and_unlock(executor);
    free(task);
}

/* Holds a reference to the executor; NULL = no memory. */
static struct gyre_one_sided_task *new_task(struct gyre_host_executor *executor,
                                            uint64_t *const *counters, int n_goals,
                                            gyre_stream stream)
{
    struct gyre_one_sided_task *task =
        calloc(1, sizeof(*task) + (size_t)n_goals * sizeof(task->goals[0]));
    if (task == NULL)
        return NULL;
    task->task.release = release_task;
    task->executor = executor;
    task->counters = counters;
    task->n_goals = n_goals;
    gyre_fetch_add_u64(&executor->n_one_sided, 1);
    task->stream = stream;
    task->thread = pthread_self();
    pthread_mutex_lock(&executor->lock);
    executor->n_users++;
    task->next = executor->one_sided;
    if (task->next != NULL)
        task->next->previous = task;
    executor->one_sided = task;
    pthread_mutex_unlock(&executor->lock);
    return task;
}

static gyre_status push(struct gyre_one_sided_task *task)
{
    const gyre_status status = gyre_host_stream_push(task->stream, &task->task);
    if (status != GYRE_SUCCESS)
        release_task(&task->task);
    return status;
}

gyre_status gyre_host_put(struct gyre_executor *base, const struct gyre_put *put,
                          gyre_stream stream)
{
    struct gyre_one_sided_task *task =
        new_task((struct gyre_host_executor *)base, put->counters, 0, stream);
    if (task == NULL)
        return gyre_fail_errno(ENOMEM, "a one-sided call");
    task->task.poll = poll_put;
    task->timeout_ns = put->timeout_ns;
    task->put = *put;
    return push(task);
}

gyre_status gyre_host_await_signals(struct gyre_executor *base,
                                    const struct gyre_signals_await *await, gyre_stream stream)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    struct gyre_one_sided_task *task = new_task(executor, await->counters, await->n_waits, stream);
    uint64_t *own = await->counters[executor->rank];
    if (task == NULL)
        return gyre_fail_errno(ENOMEM, "wait_signal");
    task->task.poll = poll_wait;
    task->timeout_ns = await->timeout_ns;
    task->remote = await->remote;
    for (int i = 0; i < await->n_waits; i++) {
        const gyre_signal_wait *wait = &await->waits[i];
        uint64_t *taken = own + gyre_signal_index((int)executor->n_ranks, GYRE_SIGNALS_AWAITED,
                                                  wait->peer, wait->signal);
        *taken += (uint64_t)wait->count;
        task->goals[i] = (struct goal){wait->peer, wait->signal, *taken};
    }
    const gyre_status status = push(task);
    for (int i = 0; i < await->n_waits && status != GYRE_SUCCESS; i++)
        own[gyre_signal_index((int)executor->n_ranks, GYRE_SIGNALS_AWAITED, await->waits[i].peer,
                              await->waits[i].signal)] -= (uint64_t)await->waits[i].count;
    return status;
}

void gyre_host_peer_left(struct gyre_executor *base, int rank)
{
    gyre_store_release_u32(&((struct gyre_host_executor *)base)->has_left[rank], 1);
}

static bool is_same_stream(const struct gyre_one_sided_task *a, const struct gyre_one_sided_task *b)
{
    return a->stream == b->stream && (a->stream != NULL || pthread_equal(a->thread, b->thread));
}

/* At the head of their streams. False: too many. */
static bool find_waits(struct gyre_host_executor *executor, struct gyre_blocked *blocked,
                       const struct gyre_one_sided_task **waits_out)
{
    for (const struct gyre_one_sided_task *task = executor->one_sided; task != NULL;
         task = task->next) {
        /* A poll sets start_ns when it misses a signal. The caller holds poll_lock. */
        if (task->task.poll != poll_wait || task->has_ended || task->start_ns == 0 ||
            task->n_goals == 0)
            continue;
        const struct goal *goal = &task->goals[task->n_goals - 1];
        if (gyre_load_acquire_u64(
                arrived_of(task, task->executor->rank, goal->sender, goal->signal)) >= goal->count)
            continue;
        if (blocked->n_senders == GYRE_BLOCKED_SENDERS)
            return false;
        blocked->senders[blocked->n_senders] = (uint32_t)task->goals[task->n_goals - 1].sender;
        waits_out[blocked->n_senders++] = task;
    }
    return blocked->n_senders > 0;
}

static bool are_all_blocked(const struct gyre_host_executor *executor,
                            const struct gyre_one_sided_task *const *waits, uint32_t n_waits)
{
    for (const struct gyre_one_sided_task *task = executor->one_sided; task != NULL;
         task = task->next) {
        uint32_t i = 0;
        while (i < n_waits && !is_same_stream(task, waits[i]))
            i++;
        if (i == n_waits && !task->has_ended)
            return false;
    }
    return true;
}

bool gyre_host_find_blocked(struct gyre_executor *base, struct gyre_blocked *blocked_out)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    const struct gyre_one_sided_task *waits[GYRE_BLOCKED_SENDERS];
    struct gyre_blocked blocked;
    memset(&blocked, 0, sizeof(blocked));
    if (base->ops->progress(base).completed < gyre_load_acquire_u64(&base->n_launched))
        return false;
    pthread_mutex_lock(&executor->poll_lock);
    pthread_mutex_lock(&executor->lock);
    const bool is_blocked = find_waits(executor, &blocked, waits) &&
                            are_all_blocked(executor, waits, blocked.n_senders);
    blocked.n_ended = executor->n_ended + 1;
    pthread_mutex_unlock(&executor->lock);
    pthread_mutex_unlock(&executor->poll_lock);
    if (is_blocked)
        *blocked_out = blocked;
    return is_blocked;
}
