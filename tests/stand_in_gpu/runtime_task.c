/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing pool of threads. All blocks of a kernel may wait for each other, so each has a thread.
 * A watchdog ends the process if a task does not end.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A block's threads have their own (block.c). Those of the host need room for copies, calls, and
 * thread-local variables: the shared memory that kernels declare themselves. */
#define STACK_BYTES     ((1U << 20) + (256U << 10))
#define MOST_TOGETHER   512U /* blocks of a kernel at a time */
#define DEFAULT_LIMIT_S 120U
#define WATCHDOG_NAP_S  1

struct worker {
    struct worker *next_idle;
    pthread_cond_t wake;
    struct stand_in_task *task; /* that it is to work on */
};

static struct {
    struct stand_in_task *first; /* of the tasks that have not ended */
    struct stand_in_task *first_ready, *last_ready;
    struct worker *first_idle;
    pthread_cond_t has_ended; /* a task has */
    uint64_t n_tasks;
    uint32_t n_workers;
    bool is_watched;
} tasks = {.has_ended = PTHREAD_COND_INITIALIZER};

struct stand_in_op stand_in_op_copy(const struct stand_in_op *op)
{
    struct stand_in_op copy = *op;
    if (op->kind == STAND_IN_KERNEL) {
        void *args = stand_in_realloc(NULL, op->args_bytes);
        memcpy(args, op->launch.args, op->args_bytes);
        copy.launch.args = args;
    }
    return copy;
}

void stand_in_op_free(struct stand_in_op *op)
{
    if (op->kind == STAND_IN_KERNEL)
        free((void *)(uintptr_t)op->launch.args);
}

static void run_op(const struct stand_in_op *op, uint32_t part)
{
    switch (op->kind) {
    case STAND_IN_KERNEL:
        stand_in_run_block(&op->launch, part);
        break;
    case STAND_IN_COPY:
        for (size_t i = 0; i < op->n_rows; i++)
            memmove((unsigned char *)op->to + i * op->to_pitch_bytes,
                    (const unsigned char *)op->from + i * op->from_pitch_bytes, op->row_bytes);
        break;
    case STAND_IN_FILL:
        memset(op->to, op->value, op->row_bytes);
        break;
    case STAND_IN_CALL:
        op->function(op->argument);
        break;
    case STAND_IN_NOTHING:
        break;
    }
}

static void print_hanging(const struct stand_in_task *task, uint32_t limit_s)
{
    static const char *const names[] = {"a wait", "a kernel", "a copy", "a memset",
                                        "a function of the host"};
    const void *function = task->op.kind == STAND_IN_KERNEL ? task->op.launch.function : NULL;
    Dl_info place = {0};
    fprintf(stderr, "stand-in GPU %d: %s on stream %llu has not ended after %u s", task->op.gpu,
            names[task->op.kind], (unsigned long long)task->stream, limit_s);
    if (function != NULL && dladdr(function, &place) != 0)
        fprintf(stderr, ": %s+0x%zx%s%s", place.dli_fname,
                (size_t)((const char *)function - (const char *)place.dli_fbase),
                place.dli_sname != NULL ? " " : "", place.dli_sname != NULL ? place.dli_sname : "");
    fprintf(stderr, ", %u of %u blocks have ended\n", task->n_ended, task->n_parts);
}

/* Ends the process if tasks have run for too long. */
static void *watch(void *unused)
{
    const struct timespec nap = {WATCHDOG_NAP_S, 0};
    const uint32_t limit_s = stand_in_setting("STAND_IN_LIMIT_S", DEFAULT_LIMIT_S, 1U << 20);
    (void)unused;
    for (;;) {
        bool hangs = false;
        nanosleep(&nap, NULL);
        stand_in_enter();
        const uint64_t now_ns = stand_in_now_ns();
        for (const struct stand_in_task *task = tasks.first; task != NULL; task = task->next) {
            if (task->begin_ns == 0 || now_ns - task->begin_ns < limit_s * 1000000000ULL)
                continue;
            print_hanging(task, limit_s);
            hangs = true;
        }
        if (hangs)
            abort();
        (void)stand_in_leave(cudaSuccess);
    }
    return NULL;
}

static void start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const int error = pthread_create(&thread, &attributes, run, argument);
    if (error != 0) {
        fprintf(stderr, "stand-in GPU: thread %u cannot be made: %s\n", tasks.n_workers,
                strerror(error));
        abort();
    }
    pthread_attr_destroy(&attributes);
}

static void release(struct stand_in_task *task)
{
    if (--task->n_users > 0)
        return;
    stand_in_op_free(&task->op);
    free(task->followers);
    free(task);
}

static void run_ready(void);

static void add_ready(struct stand_in_task *task)
{
    if (tasks.first_ready == NULL)
        tasks.first_ready = task;
    else
        tasks.last_ready->next_ready = task;
    tasks.last_ready = task;
}

static void end_task(struct stand_in_task *task)
{
    task->has_ended = true;
    task->end_ns = stand_in_now_ns();
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        tasks.first = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    for (size_t i = 0; i < task->n_followers; i++)
        if (--task->followers[i]->n_awaited == 0)
            add_ready(task->followers[i]);
    pthread_cond_broadcast(&tasks.has_ended);
    release(task);
}

/* Until none is left that has not begun. True if the task ends by this. */
static bool run_parts(struct stand_in_task *task)
{
    bool has_ended = false;
    while (task->n_begun < task->n_parts) {
        const uint32_t part = task->n_begun++;
        (void)stand_in_leave(cudaSuccess);
        run_op(&task->op, part);
        stand_in_enter();
        has_ended = ++task->n_ended == task->n_parts;
    }
    return has_ended;
}

static void *work(void *argument)
{
    struct worker *own = argument;
    stand_in_enter();
    for (;;) {
        while (own->task == NULL)
            pthread_cond_wait(&own->wake, &stand_in_lock);
        struct stand_in_task *task = own->task;
        own->task = NULL;
        const bool has_ended = run_parts(task);
        /* Idle before followers start, so it runs the next one without a change of threads. */
        own->next_idle = tasks.first_idle;
        tasks.first_idle = own;
        if (has_ended) {
            end_task(task);
            run_ready();
        }
        release(task);
    }
    return NULL;
}

static void hand_out(struct stand_in_task *task)
{
    struct worker *worker = tasks.first_idle;
    task->n_users++;
    if (worker != NULL) {
        tasks.first_idle = worker->next_idle;
        worker->task = task;
        pthread_cond_signal(&worker->wake);
        return;
    }
    worker = stand_in_realloc(NULL, sizeof(*worker));
    *worker = (struct worker){.wake = PTHREAD_COND_INITIALIZER, .task = task};
    tasks.n_workers++;
    start_thread(work, worker);
    if (!tasks.is_watched)
        start_thread(watch, NULL);
    tasks.is_watched = true;
}

/* An empty task ends here, and may make others ready. */
static void run_ready(void)
{
    while (tasks.first_ready != NULL) {
        struct stand_in_task *task = tasks.first_ready;
        tasks.first_ready = task->next_ready;
        task->begin_ns = stand_in_now_ns();
        if (task->op.kind == STAND_IN_NOTHING) {
            end_task(task);
            continue;
        }
        for (uint32_t i = 0; i < task->n_parts && i < MOST_TOGETHER; i++)
            hand_out(task);
    }
}

struct stand_in_task *stand_in_task_new(const struct stand_in_op *op, uint64_t stream)
{
    struct stand_in_task *task = stand_in_realloc(NULL, sizeof(*task));
    *task = (struct stand_in_task){
        .op = stand_in_op_copy(op),
        .next = tasks.first,
        .number = ++tasks.n_tasks,
        .stream = stream,
        .n_users = 1, /* until it has ended */
        .n_awaited = 1,
        .n_parts = op->kind == STAND_IN_KERNEL ? op->launch.n_blocks : 1,
    };
    if (tasks.first != NULL)
        tasks.first->previous = task;
    tasks.first = task;
    return task;
}

void stand_in_task_follow(struct stand_in_task *task, struct stand_in_task *before)
{
    if (before == NULL || before == task || before->has_ended)
        return;
    if ((before->n_followers & (before->n_followers - 1)) == 0) /* all places are taken */
        before->followers =
            stand_in_realloc(before->followers, (before->n_followers * 2 + 1) * sizeof(task));
    before->followers[before->n_followers++] = task;
    task->n_awaited++;
}

void stand_in_task_follow_blocking(struct stand_in_task *task)
{
    for (struct stand_in_task *at = tasks.first; at != NULL; at = at->next)
        if (at->op.gpu == task->op.gpu && at->is_blocking)
            stand_in_task_follow(task, at);
}

void stand_in_task_start(struct stand_in_task *task)
{
    if (--task->n_awaited > 0)
        return;
    add_ready(task);
    run_ready();
}

void stand_in_task_set(struct stand_in_task **variable, struct stand_in_task *task)
{
    struct stand_in_task *before = *variable;
    if (task != NULL)
        task->n_users++;
    *variable = task;
    if (before != NULL)
        release(before);
}

/* Bounded by the watchdog. */
void stand_in_task_wait(struct stand_in_task *task)
{
    struct stand_in_task *kept = NULL;
    stand_in_task_set(&kept, task);
    while (kept != NULL && !kept->has_ended)
        pthread_cond_wait(&tasks.has_ended, &stand_in_lock);
    stand_in_task_set(&kept, NULL);
}

static bool has_tasks(int gpu, uint64_t last, bool only_blocking)
{
    for (const struct stand_in_task *task = tasks.first; task != NULL; task = task->next)
        if (task->op.gpu == gpu && task->number <= last && (task->is_blocking || !only_blocking))
            return true;
    return false;
}

void stand_in_gpu_wait(int gpu)
{
    const uint64_t last = tasks.n_tasks;
    while (has_tasks(gpu, last, false))
        pthread_cond_wait(&tasks.has_ended, &stand_in_lock);
}

bool stand_in_gpu_is_busy(int gpu)
{
    return has_tasks(gpu, tasks.n_tasks, true);
}
