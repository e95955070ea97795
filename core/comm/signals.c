/* SPDX-License-Identifier: Apache-2.0
 *
 * The board of signals, and the tasks that put, signal and wait.
 */
#include "core/comm/signals.h"

#include "core/base/sync.h"
#include "core/base/util.h"
#include "core/comm/comm.h"
#include "core/device/host_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A poll of a task may take about 100 us (host_stream.h): 256 KiB at 3 GB/s. */
#define PIECE_BYTES ((size_t)256 << 10)

/* A rank's users of the board. */
struct rank_state {
    pthread_mutex_t lock;
    struct gyre_fault *fault; /* of its communicator; NULL = that has ended; under lock */
    uint64_t n_tasks;         /* queued and not done; a task counts down, release */
};

struct gyre_signals {
    uint32_t n_holders; /* communicators and tasks; atomic */
    int n_ranks;
    struct rank_state *ranks;
    uint64_t counts[]; /* [receiver][sender][signal]: so far; the sender adds, release */
};

static uint64_t *count_of(struct gyre_signals *board, int receiver, int sender, int signal)
{
    const size_t pair = (size_t)receiver * (size_t)board->n_ranks + (size_t)sender;
    return &board->counts[pair * GYRE_N_SIGNALS + (size_t)signal];
}

/* Become a holder of a board that somebody still holds. */
static void hold_board(struct gyre_signals *board)
{
    gyre_fetch_add_u32(&board->n_holders, 1);
}

static void release_board(struct gyre_signals *board)
{
    if (gyre_fetch_add_u32(&board->n_holders, UINT32_MAX) != 1)
        return;
    for (int rank = 0; rank < board->n_ranks; rank++)
        pthread_mutex_destroy(&board->ranks[rank].lock);
    free(board->ranks);
    free(board);
}

static bool has_signals(const struct gyre_comm *comm)
{
    return comm->member.device_info.kind == GYRE_DEVICE_HOST;
}

/* Make this rank a holder of a board that does not go away meanwhile. */
static gyre_status take_board(struct gyre_comm *comm, struct gyre_signals *board)
{
    uint64_t *n_awaited = calloc((size_t)board->n_ranks * GYRE_N_SIGNALS, sizeof(*n_awaited));
    if (n_awaited == NULL)
        return gyre_fail_errno(ENOMEM, "signals");
    comm->signals.n_awaited = n_awaited;
    hold_board(board);
    gyre_registry_set_signals(comm, board);
    pthread_mutex_lock(&board->ranks[comm->member.rank].lock);
    board->ranks[comm->member.rank].fault = &comm->member.fault;
    pthread_mutex_unlock(&board->ranks[comm->member.rank].lock);
    return GYRE_SUCCESS;
}

gyre_status gyre_signals_offer(struct gyre_comm *comm, uint64_t *has_board_out)
{
    const size_t n = (size_t)comm->member.n_ranks;
    *has_board_out = comm->signals.board != NULL;
    if (comm->member.rank != 0 || !has_signals(comm) || comm->signals.board != NULL)
        return GYRE_SUCCESS;
    struct gyre_signals *board =
        calloc(1, sizeof(*board) + n * n * GYRE_N_SIGNALS * sizeof(board->counts[0]));
    struct rank_state *ranks = calloc(n, sizeof(*ranks));
    if (board == NULL || ranks == NULL) {
        free(board);
        free(ranks);
        return gyre_fail_errno(ENOMEM, "signals of %zu ranks", n);
    }
    board->n_ranks = comm->member.n_ranks;
    board->ranks = ranks;
    for (size_t rank = 0; rank < n; rank++)
        pthread_mutex_init(&ranks[rank].lock, NULL);
    *has_board_out = 1;
    board->n_holders = 1; /* until this rank holds it, so that a failure frees it */
    const gyre_status status = take_board(comm, board);
    release_board(board);
    return status;
}

gyre_status gyre_signals_take(struct gyre_comm *comm, uint64_t has_board)
{
    if (has_board == 0 || comm->signals.board != NULL)
        return GYRE_SUCCESS;
    struct gyre_signals *board = gyre_registry_hold_signals(comm, hold_board);
    if (board == NULL)
        return gyre_fail(GYRE_ERROR_REMOTE, "rank 0 has ended the communicator");
    const gyre_status status = take_board(comm, board);
    release_board(board);
    return status;
}

bool gyre_signals_is_idle(const struct gyre_comm *comm)
{
    return comm->signals.board == NULL ||
           gyre_load_acquire_u64(&comm->signals.board->ranks[comm->member.rank].n_tasks) == 0;
}

void gyre_signals_fini(struct gyre_comm *comm)
{
    struct gyre_signals *board = comm->signals.board;
    if (board == NULL)
        return;
    pthread_mutex_lock(&board->ranks[comm->member.rank].lock);
    board->ranks[comm->member.rank].fault = NULL;
    pthread_mutex_unlock(&board->ranks[comm->member.rank].lock);
    gyre_registry_set_signals(comm, NULL); /* from now on no other rank can take the board */
    release_board(board);
    free(comm->signals.n_awaited);
}

/* ---- tasks -------------------------------------------------------------------------------- */

/* The signals of one sending rank that a wait needs. */
struct goal {
    int sender;
    int signal;
    uint64_t count; /* as many must have come since the board was made */
};

struct signal_task {
    struct gyre_task task; /* first: the stream's */
    struct gyre_signals *board;
    int rank;
    uint64_t start_ns; /* of the first poll; 0 = there was none */
    uint64_t timeout_ns;
    int peer; /* put and signal */
    int signal;
    unsigned char *to; /* put: what is left */
    const unsigned char *from;
    size_t n_bytes;
    int n_goals; /* wait */
    struct goal goals[];
};

/* May the task go on? Its communicator may have failed, or have been destroyed. */
static gyre_status check_task(struct signal_task *task)
{
    struct rank_state *own = &task->board->ranks[task->rank];
    pthread_mutex_lock(&own->lock);
    const gyre_status status =
        own->fault != NULL
            ? gyre_fault_status(own->fault)
            : gyre_fail(GYRE_ERROR_ABORTED, "one-sided call: its communicator was destroyed");
    pthread_mutex_unlock(&own->lock);
    return status;
}

static enum gyre_task_state poll_put(struct gyre_task *base, gyre_status *status_out)
{
    struct signal_task *task = (struct signal_task *)base;
    const gyre_status status = check_task(task);
    if (status != GYRE_SUCCESS) {
        *status_out = status;
        return GYRE_TASK_DONE;
    }
    const size_t n_bytes = task->n_bytes < PIECE_BYTES ? task->n_bytes : PIECE_BYTES;
    if (n_bytes > 0)
        memmove(task->to, task->from, n_bytes);
    task->to += n_bytes;
    task->from += n_bytes;
    task->n_bytes -= n_bytes;
    if (task->n_bytes > 0)
        return GYRE_TASK_MOVING;
    if (task->signal >= 0)
        gyre_fetch_add_u64(count_of(task->board, task->peer, task->rank, task->signal), 1);
    return GYRE_TASK_DONE;
}

static enum gyre_task_state poll_wait(struct gyre_task *base, gyre_status *status_out)
{
    struct signal_task *task = (struct signal_task *)base;
    gyre_status status = check_task(task);
    while (status == GYRE_SUCCESS && task->n_goals > 0) {
        const struct goal *goal = &task->goals[task->n_goals - 1];
        const uint64_t n =
            gyre_load_acquire_u64(count_of(task->board, task->rank, goal->sender, goal->signal));
        if (n >= goal->count) {
            task->n_goals--;
            continue;
        }
        const uint64_t now_ns = gyre_now_ns();
        if (task->start_ns == 0)
            task->start_ns = now_ns;
        if (task->timeout_ns == 0 || now_ns - task->start_ns < task->timeout_ns)
            return GYRE_TASK_IDLE;
        status = gyre_fail(GYRE_ERROR_TIMEOUT,
                           "wait_signal on rank %d: %" PRIu64 " of %" PRIu64
                           " signals %d came from rank %d within the operation's timeout",
                           task->rank, n, goal->count, goal->signal, goal->sender);
    }
    if (status != GYRE_SUCCESS)
        *status_out = status;
    return GYRE_TASK_DONE;
}

static void release_task(struct gyre_task *base)
{
    struct signal_task *task = (struct signal_task *)base;
    gyre_fetch_add_u64(&task->board->ranks[task->rank].n_tasks, UINT64_MAX);
    release_board(task->board);
    free(task);
}

static struct signal_task *new_task(struct gyre_comm *comm, int n_goals)
{
    struct signal_task *task = calloc(1, sizeof(*task) + (size_t)n_goals * sizeof(task->goals[0]));
    if (task == NULL)
        return NULL;
    task->task.poll = n_goals > 0 ? poll_wait : poll_put;
    task->task.release = release_task;
    task->board = comm->signals.board;
    task->rank = comm->member.rank;
    task->timeout_ns = (uint64_t)comm->member.config.timeout_ms * 1000000;
    task->n_goals = n_goals;
    return task;
}

static gyre_status push(struct signal_task *task, gyre_stream stream)
{
    struct gyre_signals *board = task->board;
    const int rank = task->rank;
    gyre_fetch_add_u32(&board->n_holders, 1);
    gyre_fetch_add_u64(&board->ranks[rank].n_tasks, 1);
    const gyre_status status = gyre_host_stream_push(stream, &task->task);
    if (status != GYRE_SUCCESS)
        release_task(&task->task);
    return status;
}

/* ---- calls -------------------------------------------------------------------------------- */

static gyre_status check(const gyre_comm *comm, const char *name, int peer, int signal)
{
    if (!has_signals(comm))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: one-sided calls need ranks on the host; between GPUs use send and "
                         "recv",
                         name);
    if (comm->signals.board == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "%s: the communicator has had no window; register one first", name);
    if (peer < 0 || peer >= comm->member.n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: peer %d is not a rank of 0..%d", name,
                         peer, comm->member.n_ranks - 1);
    if (signal < 0 || signal >= GYRE_N_SIGNALS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: signal %d is not in 0..%d", name, signal,
                         GYRE_N_SIGNALS - 1);
    return GYRE_SUCCESS;
}

/* Where the peer's window has room for so many bytes. */
static gyre_status find_target(const gyre_comm *comm, const gyre_put_target *target,
                               uint64_t n_bytes, unsigned char **to_out)
{
    const struct gyre_window_entry *entry = comm->windows.newest;
    while (entry != NULL && entry->number != target->window)
        entry = entry->next;
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: window %u is none of this communicator",
                         target->window);
    if (target->offset_bytes > entry->n_bytes || n_bytes > entry->n_bytes - target->offset_bytes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "put: %" PRIu64 " bytes at offset %" PRIu64
                         " do not fit into window %u of %" PRIu64 " bytes",
                         n_bytes, (uint64_t)target->offset_bytes, target->window, entry->n_bytes);
    *to_out = (unsigned char *)entry->bases[target->peer] + target->offset_bytes;
    return GYRE_SUCCESS;
}

static gyre_status put(const void *local, size_t count, gyre_dtype dtype,
                       const gyre_put_target *target, gyre_comm *comm, gyre_stream stream)
{
    unsigned char *to = NULL;
    GYRE_TRY(
        check(comm, "put", target->peer, target->signal == GYRE_NO_SIGNAL ? 0 : target->signal));
    if ((unsigned)dtype >= GYRE_N_DTYPES || (local == NULL && count > 0))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: dtype %d, local %p", (int)dtype, local);
    const uint64_t element = gyre_dtype_bytes(dtype);
    if (count > (uint64_t)INT64_MAX / element)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: %zu elements are more than 2^63 bytes",
                         count);
    GYRE_TRY(find_target(comm, target, count * element, &to));
    struct signal_task *task = new_task(comm, 0);
    if (task == NULL)
        return gyre_fail_errno(ENOMEM, "put");
    task->peer = target->peer;
    task->signal = target->signal;
    task->to = to;
    task->from = local;
    task->n_bytes = count * element;
    return push(task, stream);
}

gyre_status gyre_put(const void *local, size_t count, gyre_dtype dtype,
                     const gyre_put_target *target, gyre_comm *comm, gyre_stream stream)
{
    if (target == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "put: target is NULL");
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = put(local, count, dtype, target, comm, stream);
    gyre_comm_end_call(comm);
    return status;
}

static gyre_status send_signal(int peer, int signal, gyre_comm *comm, gyre_stream stream)
{
    GYRE_TRY(check(comm, "signal", peer, signal));
    struct signal_task *task = new_task(comm, 0);
    if (task == NULL)
        return gyre_fail_errno(ENOMEM, "signal");
    task->peer = peer;
    task->signal = signal;
    return push(task, stream);
}

gyre_status gyre_signal(int peer, int signal, gyre_comm *comm, gyre_stream stream)
{
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = send_signal(peer, signal, comm, stream);
    gyre_comm_end_call(comm);
    return status;
}

static gyre_status wait_signals(const gyre_signal_wait *waits, int n_waits, gyre_comm *comm,
                                gyre_stream stream)
{
    for (int i = 0; i < n_waits; i++) {
        GYRE_TRY(check(comm, "wait_signal", waits[i].peer, waits[i].signal));
        if (waits[i].count < 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "wait_signal: count %d is negative",
                             waits[i].count);
    }
    struct signal_task *task = n_waits > 0 ? new_task(comm, n_waits) : NULL;
    if (task == NULL)
        return n_waits > 0 ? gyre_fail_errno(ENOMEM, "wait_signal") : GYRE_SUCCESS;
    for (int i = 0; i < n_waits; i++) {
        const size_t at = (size_t)waits[i].peer * GYRE_N_SIGNALS + (size_t)waits[i].signal;
        comm->signals.n_awaited[at] += (uint64_t)waits[i].count;
        task->goals[i] = (struct goal){waits[i].peer, waits[i].signal, comm->signals.n_awaited[at]};
    }
    const gyre_status status = push(task, stream);
    for (int i = 0; i < n_waits && status != GYRE_SUCCESS; i++)
        comm->signals.n_awaited[(size_t)waits[i].peer * GYRE_N_SIGNALS + (size_t)waits[i].signal] -=
            (uint64_t)waits[i].count;
    return status;
}

gyre_status gyre_wait_signal(const gyre_signal_wait *waits, int n_waits, gyre_comm *comm,
                             gyre_stream stream)
{
    if (n_waits < 0 || (n_waits > 0 && waits == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "wait_signal: no list of %d waits", n_waits);
    GYRE_TRY(gyre_comm_begin_call(comm));
    const gyre_status status = wait_signals(waits, n_waits, comm, stream);
    gyre_comm_end_call(comm);
    return status;
}
