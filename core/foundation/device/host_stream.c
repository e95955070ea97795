/* SPDX-License-Identifier: Apache-2.0
 *
 * `lock` guards the queue, for a few instructions. The holder of `run_lock` may poll the first
 * task. A thread that synchronises counts itself in `n_callers` and takes `run_lock`, which the
 * helper thread gives up once it sees a caller. Pushing and synchronising make no system call: the
 * helper's sleeps are short until 10 ms passed without work.
 *
 * One thread may use streams of several ranks that depend on each other. Having waited a moment, it
 * wakes the helpers of the others that it filled.
 */
#include "core/foundation/device/host_stream.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The helper naps after a push, because the caller may be about to synchronise. FIRST becomes SHORT
 * when the helper had to run the queue, and doubles up to LONG while callers do. */
#define NAP_SHORT_NS        50000
#define NAP_FIRST_NS        200000
#define NAP_LONG_NS         1600000
#define DEEP_SLEEP_AFTER_NS 10000000

/* A short spin if the peer has another core; yields if it needs this one; sleeps after a
 * millisecond. */
#define N_SPINS     64
#define N_YIELDS    2000
#define IDLE_NAP_NS 50000

struct host_stream {
    pthread_mutex_t run_lock;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct gyre_task *head;
    struct gyre_task *tail;
    uint64_t n_pushed;    /* written under lock */
    uint64_t n_completed; /* by run_lock's holder, with release, after has_failed */
    uint32_t n_callers;
    uint32_t has_failed; /* written under lock */
    gyre_status failure;
    char cause[GYRE_CAUSE_MAX_BYTES];
    bool has_helper; /* under lock, as those below */
    bool is_asleep;
    bool is_wanted;
    bool is_closing;
    pthread_t helper;
    pthread_t pusher;
    uint32_t generation;      /* its maker's gyre_fork_generation() */
    struct host_stream *next; /* under all_streams.lock */
};

/* A holder of this lock may take a stream's `lock`, not the other way round. */
static struct {
    pthread_mutex_t lock;
    struct host_stream *newest;
} all_streams = {PTHREAD_MUTEX_INITIALIZER, NULL};

GYRE_WATCH_FORKS(&all_streams.lock, NULL)

/* A forked child would do its parent's work a second time. */
static gyre_status refuse_inherited(const char *which)
{
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "%s belongs to the process that pid %d was forked from, which alone can carry "
                     "out its work; a forked process has to make streams of its own",
                     which, (int)getpid());
}

static bool is_empty(const struct host_stream *stream)
{
    return gyre_load_acquire_u64(&stream->n_completed) == gyre_load_acquire_u64(&stream->n_pushed);
}

static void wait_a_little(uint32_t n_idle_polls)
{
    const struct timespec nap = {0, IDLE_NAP_NS};
    if (n_idle_polls < N_SPINS)
        gyre_cpu_relax();
    else if (n_idle_polls < N_SPINS + N_YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* The caller holds run_lock and has seen the queue filled, with acquire. Only it changes `head`,
 * which it reads without `lock`. */
static enum gyre_task_state poll_head(struct host_stream *stream)
{
    gyre_status status = GYRE_SUCCESS;
    struct gyre_task *task = stream->head;
    const enum gyre_task_state state = task->poll(task, &status);
    if (state != GYRE_TASK_DONE)
        return state;
    pthread_mutex_lock(&stream->lock);
    stream->head = task->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    if (status != GYRE_SUCCESS && gyre_load_relaxed_u32(&stream->has_failed) == 0) {
        stream->failure = status;
        snprintf(stream->cause, sizeof(stream->cause), "%s", gyre_cause());
        gyre_store_release_u32(&stream->has_failed, 1);
    }
    pthread_mutex_unlock(&stream->lock);
    task->release(task);
    gyre_store_release_u64(&stream->n_completed, stream->n_completed + 1);
    return state;
}

static void *helper_main(void *argument)
{
    struct host_stream *stream = argument;
    uint64_t nap_ns = NAP_FIRST_NS;
    uint64_t idle_ns = 0;
    pthread_mutex_lock(&stream->lock);
    while (!stream->is_closing) {
        const uint64_t n_pushed = stream->n_pushed;
        const uint64_t n_completed = gyre_load_acquire_u64(&stream->n_completed);
        const bool was_empty = n_pushed == n_completed;
        if (!stream->is_wanted)
            gyre_cond_wait_until(&stream->wake, &stream->lock, gyre_now_ns() + nap_ns);
        const bool is_wanted = stream->is_wanted;
        stream->is_wanted = false;
        if (was_empty && n_pushed == stream->n_pushed) {
            idle_ns += nap_ns;
            stream->is_asleep = idle_ns >= DEEP_SLEEP_AFTER_NS;
            while (stream->is_asleep && is_empty(stream) && !stream->is_closing)
                pthread_cond_wait(&stream->wake, &stream->lock);
            stream->is_asleep = false;
            continue;
        }
        idle_ns = 0;
        if (!is_wanted && (n_completed != gyre_load_acquire_u64(&stream->n_completed) ||
                           gyre_load_acquire_u32(&stream->n_callers) != 0)) {
            nap_ns = gyre_min_u64(2 * nap_ns, NAP_LONG_NS);
            continue;
        }
        if ((was_empty && !is_wanted) || pthread_mutex_trylock(&stream->run_lock) != 0)
            continue;
        nap_ns = NAP_SHORT_NS;
        pthread_mutex_unlock(&stream->lock);
        uint32_t n_idle_polls = 0;
        while (!is_empty(stream) && gyre_load_acquire_u32(&stream->n_callers) == 0) {
            if (poll_head(stream) != GYRE_TASK_IDLE)
                n_idle_polls = 0;
            else
                wait_a_little(n_idle_polls++);
        }
        pthread_mutex_unlock(&stream->run_lock);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Of streams that this thread filled. False = a lock was taken, and not all streams were seen. */
static bool wake_other_helpers(const struct host_stream *own)
{
    bool is_whole = true;
    if (pthread_mutex_trylock(&all_streams.lock) != 0)
        return false;
    for (struct host_stream *stream = all_streams.newest; stream != NULL; stream = stream->next) {
        if (stream == own || stream->generation != gyre_fork_generation() || is_empty(stream) ||
            gyre_load_acquire_u32(&stream->n_callers) != 0)
            continue;
        if (pthread_mutex_trylock(&stream->lock) != 0) {
            is_whole = false;
            continue;
        }
        if (pthread_equal(stream->pusher, pthread_self())) {
            stream->is_wanted = true;
            pthread_cond_signal(&stream->wake);
        }
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&all_streams.lock);
    return is_whole;
}

static void drain(struct host_stream *stream)
{
    const uint64_t target = gyre_load_acquire_u64(&stream->n_pushed);
    if (gyre_load_acquire_u64(&stream->n_completed) >= target)
        return;
    gyre_fetch_add_u32(&stream->n_callers, 1);
    pthread_mutex_lock(&stream->run_lock);
    const struct gyre_float_env callers = gyre_float_begin();
    uint32_t n_idle_polls = 0;
    bool has_woken = false;
    while (gyre_load_relaxed_u64(&stream->n_completed) < target) {
        if (poll_head(stream) != GYRE_TASK_IDLE) {
            n_idle_polls = 0;
            continue;
        }
        if (n_idle_polls >= N_SPINS && !has_woken)
            has_woken = wake_other_helpers(stream);
        wait_a_little(n_idle_polls++);
    }
    gyre_float_end(callers);
    pthread_mutex_unlock(&stream->run_lock);
    gyre_fetch_add_u32(&stream->n_callers, UINT32_MAX);
}

gyre_status gyre_host_stream_create(gyre_stream *stream_out)
{
    struct host_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate a host stream");
    stream->generation = gyre_fork_generation();
    gyre_cond_init(&stream->wake);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_mutex_init(&stream->run_lock, NULL);
    GYRE_LOCKED(&all_streams.lock);
    stream->next = all_streams.newest;
    all_streams.newest = stream;
    *stream_out = stream;
    return GYRE_SUCCESS;
}

gyre_status gyre_host_stream_destroy(gyre_stream handle)
{
    if (handle == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the default stream (NULL) cannot be destroyed; it ends with its thread");
    struct host_stream *stream = handle;
    if (stream->generation != gyre_fork_generation())
        return refuse_inherited("the stream");
    drain(stream);
    pthread_mutex_lock(&all_streams.lock);
    struct host_stream **at = &all_streams.newest;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&all_streams.lock);
    pthread_mutex_lock(&stream->lock);
    stream->is_closing = true;
    pthread_cond_signal(&stream->wake);
    const bool has_helper = stream->has_helper;
    pthread_mutex_unlock(&stream->lock);
    if (has_helper)
        pthread_join(stream->helper, NULL);
    pthread_mutex_destroy(&stream->run_lock);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->wake);
    free(stream);
    return GYRE_SUCCESS;
}

/* Default streams end with their threads. Written once, under once_control. */
static pthread_once_t once_control = PTHREAD_ONCE_INIT;
static pthread_key_t default_key;
static int default_key_errno;

static void close_default(void *stream)
{
    (void)gyre_host_stream_destroy(stream);
}

static void create_default_key(void)
{
    default_key_errno = pthread_key_create(&default_key, close_default);
}

static struct host_stream *get_default(void)
{
    pthread_once(&once_control, create_default_key);
    return default_key_errno != 0 ? NULL : pthread_getspecific(default_key);
}

gyre_status gyre_host_stream_resolve(gyre_stream handle, gyre_stream *stream_out)
{
    struct host_stream *stream = handle != NULL ? handle : get_default();
    if (handle != NULL && stream->generation != gyre_fork_generation())
        return refuse_inherited("the stream");
    if (stream == NULL || stream->generation != gyre_fork_generation()) {
        gyre_stream made = NULL;
        if (default_key_errno != 0)
            return gyre_fail_errno(default_key_errno, "pthread_key_create for default streams");
        GYRE_TRY(gyre_host_stream_create(&made));
        const int error_number = pthread_setspecific(default_key, made);
        if (error_number != 0) {
            (void)gyre_host_stream_destroy(made);
            return gyre_fail_errno(error_number, "pthread_setspecific for the default stream");
        }
        stream = made;
    }
    *stream_out = stream;
    return GYRE_SUCCESS;
}

/* NULL = none. A default stream with the parent's work is refused until the child uses its own. */
static gyre_status find(gyre_stream handle, struct host_stream **stream_out)
{
    struct host_stream *stream = handle != NULL ? handle : get_default();
    *stream_out = stream;
    if (stream == NULL || stream->generation == gyre_fork_generation())
        return GYRE_SUCCESS;
    *stream_out = NULL;
    if (handle == NULL && is_empty(stream))
        return GYRE_SUCCESS;
    return refuse_inherited(handle != NULL ? "the stream"
                                           : "the work on this thread's default stream");
}

gyre_status gyre_host_stream_push(gyre_stream handle, struct gyre_task *task)
{
    gyre_stream resolved = NULL;
    GYRE_TRY(gyre_host_stream_resolve(handle, &resolved));
    struct host_stream *stream = resolved;
    task->next = NULL;
    GYRE_LOCKED(&stream->lock);
    if (!stream->has_helper) {
        GYRE_TRY(
            gyre_thread_start(&stream->helper, 0, helper_main, stream, "a host stream's helper"));
        stream->has_helper = true;
    }
    if (stream->tail != NULL)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
    stream->pusher = pthread_self();
    gyre_store_release_u64(&stream->n_pushed, stream->n_pushed + 1);
    if (stream->is_asleep)
        pthread_cond_signal(&stream->wake);
    return GYRE_SUCCESS;
}

gyre_status gyre_host_stream_synchronize(gyre_stream handle)
{
    struct host_stream *stream = NULL;
    GYRE_TRY(find(handle, &stream));
    if (stream == NULL)
        return GYRE_SUCCESS;
    drain(stream);
    if (gyre_load_acquire_u32(&stream->has_failed) == 0)
        return GYRE_SUCCESS;
    GYRE_LOCKED(&stream->lock);
    if (stream->has_failed == 0)
        return GYRE_SUCCESS;
    gyre_set_cause(stream->cause);
    gyre_store_release_u32(&stream->has_failed, 0);
    return stream->failure;
}

gyre_status gyre_host_stream_query(gyre_stream handle)
{
    struct host_stream *stream = NULL;
    GYRE_TRY(find(handle, &stream));
    if (stream == NULL || is_empty(stream))
        return GYRE_SUCCESS;
    if (pthread_mutex_trylock(&stream->run_lock) == 0) {
        const struct gyre_float_env callers = gyre_float_begin();
        if (!is_empty(stream))
            (void)poll_head(stream);
        gyre_float_end(callers);
        pthread_mutex_unlock(&stream->run_lock);
    }
    return is_empty(stream) ? GYRE_SUCCESS : GYRE_IN_PROGRESS;
}

struct mark_task {
    struct gyre_task task; /* first: the queue points to it */
    struct mark *mark;
};

struct mark {
    struct mark_task reached;
    struct mark_task awaited;
    uint32_t is_reached;
    uint32_t n_tasks; /* unreleased; the last release frees the mark */
};

static void release_mark(struct gyre_task *task)
{
    struct mark *mark = ((struct mark_task *)(void *)task)->mark;
    if (gyre_fetch_add_u32(&mark->n_tasks, UINT32_MAX) == 1)
        free(mark);
}

static enum gyre_task_state poll_reached(struct gyre_task *task, gyre_status *status_out)
{
    (void)status_out;
    gyre_store_release_u32(&((struct mark_task *)(void *)task)->mark->is_reached, 1);
    return GYRE_TASK_DONE;
}

static enum gyre_task_state poll_awaited(struct gyre_task *task, gyre_status *status_out)
{
    const struct mark *mark = ((struct mark_task *)(void *)task)->mark;
    (void)status_out;
    return gyre_load_acquire_u32(&mark->is_reached) != 0 ? GYRE_TASK_DONE : GYRE_TASK_IDLE;
}

gyre_status gyre_host_stream_follow(gyre_stream stream, gyre_stream other)
{
    struct mark *mark = calloc(1, sizeof(*mark));
    if (mark == NULL)
        return gyre_fail_errno(ENOMEM, "a stream behind another");
    mark->reached = (struct mark_task){{NULL, poll_reached, release_mark}, mark};
    mark->awaited = (struct mark_task){{NULL, poll_awaited, release_mark}, mark};
    mark->n_tasks = 2;
    gyre_status status = gyre_host_stream_push(other, &mark->reached.task);
    if (status != GYRE_SUCCESS) {
        free(mark);
        return status;
    }
    status = gyre_host_stream_push(stream, &mark->awaited.task);
    if (status != GYRE_SUCCESS)
        release_mark(&mark->awaited.task);
    return status;
}
