/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "kernels/host/host_exec.h"

#include <stdlib.h>

/* The caller holds executor->lock. */
static void put_launch(struct gyre_host_launch *launch)
{
    for (uint32_t i = 0; i < launch->n_works; i++)
        gyre_host_loaded_release(launch->works[i].loaded);
    launch->n_works = 0;
    launch->next_free = launch->executor->free_launches;
    launch->executor->free_launches = launch;
}

static void release_launch(struct gyre_task *task)
{
    struct gyre_host_launch *launch = (struct gyre_host_launch *)task;
    struct gyre_host_executor *executor = launch->executor;
    pthread_mutex_lock(&executor->lock);
    put_launch(launch);
    gyre_host_drop_user_and_unlock(executor);
}

gyre_status gyre_host_ready(struct gyre_executor *executor, const struct gyre_ready *wanted,
                            struct gyre_ready **ready_out)
{
    const struct gyre_loaded *loaded = wanted->loaded;
    const struct gyre_ready_needs needs = {
        .n_channels = loaded->n_channels,
        .n_chunks = loaded->n_chunks,
        .most_tile_bytes =
            loaded->n_connections + loaded->n_scratch > 0 ? loaded->area_bytes : UINT64_MAX,
    };
    (void)executor;
    GYRE_TRY(gyre_ready_check(wanted, &needs));
    struct gyre_ready *ready = malloc(sizeof(*ready));
    if (ready == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a plan of %zu bytes", sizeof(*ready));
    *ready = *wanted;
    *ready_out = ready;
    return GYRE_SUCCESS;
}

static uint32_t count_runners(const struct gyre_work *work)
{
    return work->ready->split.count == 0 ? 0 : work->ready->loaded->n_runners;
}

/* From a pool, so repeated calls allocate nothing. The caller holds executor->lock. */
static struct gyre_host_launch *get_launch(struct gyre_host_executor *executor, uint32_t n_works,
                                           uint32_t n_runners)
{
    struct gyre_host_launch *launch = executor->free_launches;
    if (launch == NULL)
        launch = calloc(1, sizeof(*launch));
    else
        executor->free_launches = launch->next_free;
    if (launch == NULL)
        return NULL;
    launch->executor = executor;
    if (launch->max_works < n_works) {
        free(launch->works);
        launch->works = malloc(n_works * sizeof(*launch->works));
        launch->max_works = launch->works != NULL ? n_works : 0;
    }
    if (launch->max_runners < n_runners) {
        free(launch->runners);
        launch->runners = malloc(n_runners * sizeof(*launch->runners));
        launch->max_runners = launch->runners != NULL ? n_runners : 0;
    }
    if (launch->max_works >= n_works && launch->max_runners >= n_runners)
        return launch;
    put_launch(launch);
    return NULL;
}

static void begin_work(struct gyre_host_launch *launch, struct gyre_host_work *own)
{
    const struct gyre_loaded *loaded = own->loaded;
    const uint32_t n_places = own->n_live == 0 ? 0 : loaded->n_channels * loaded->n_workers;
    const uint64_t n_tiles = gyre_tile_count(&own->split);
    for (uint32_t i = 0; i < n_places; i++) {
        const uint32_t channel = i / loaded->n_workers;
        const struct gyre_worker *worker =
            &loaded->workers[channel % loaded->n_variants * loaded->n_workers +
                             i % loaded->n_workers];
        if (worker->n_steps == 0)
            continue;
        launch->runners[launch->n_runners++] = (struct gyre_host_runner){
            .work = own,
            .steps = loaded->steps + worker->first_step,
            .ends = loaded->ends + (size_t)channel * loaded->n_connections,
            .scratch = loaded->scratch + (size_t)channel * loaded->n_scratch * loaded->area_bytes,
            .n_tiles = n_tiles,
            .n_steps = worker->n_steps,
            .channel = channel,
            .worker = i % loaded->n_workers,
        };
    }
}

/* A fault, a caller or another task should not wait over about 100 us for a poll: 512 KiB at the 5
 * GB/s of a slow core. */
#define POLL_MAX_BYTES  (512 * 1024)
#define STEP_COST_BYTES 256

/* Under poll_lock: no transport is used after close. */
static bool help(const struct gyre_host_executor *executor, bool is_last)
{
    return executor->help != NULL && executor->help(executor->help_context, is_last);
}

/* The caller holds poll_lock. */
static enum gyre_task_state end_launch(const struct gyre_host_launch *launch)
{
    if (launch->executor->running == launch)
        launch->executor->running = NULL;
    return GYRE_TASK_DONE;
}

/* The caller holds poll_lock. */
static enum gyre_task_state advance_launch(struct gyre_host_launch *launch, gyre_status *status_out)
{
    struct gyre_host_executor *executor = launch->executor;
    if (executor->is_closed) {
        *status_out =
            gyre_fail(GYRE_ERROR_ABORTED, "rank %d ended while operation %llu was still enqueued",
                      executor->rank, (unsigned long long)launch->works[0].work.sequence);
        return end_launch(launch);
    }
    if (gyre_fault_is_raised(executor->fault)) {
        *status_out = gyre_fault_status(executor->fault);
        return end_launch(launch);
    }
    if (executor->running_ticket != launch->ticket)
        return GYRE_TASK_IDLE;
    if (executor->running != launch)
        gyre_host_trace_begin(launch);
    executor->running = launch;
    uint64_t n_done_bytes = 0;
    uint32_t n_waiting = 0;
    while (n_waiting < launch->n_runners && n_done_bytes < POLL_MAX_BYTES) {
        if (launch->next >= launch->n_runners)
            launch->next = 0;
        struct gyre_host_runner *runner = &launch->runners[launch->next];
        uint64_t n_bytes;
        uint64_t n_moved_bytes = 0;
        while (runner->tile < runner->n_tiles && n_done_bytes + n_moved_bytes < POLL_MAX_BYTES &&
               (launch->is_recorded ? gyre_host_trace_step(launch, runner, &n_bytes)
                                    : gyre_host_step_try(launch->executor, runner, &n_bytes)))
            n_moved_bytes += n_bytes + STEP_COST_BYTES;
        runner->is_next = false;
        n_waiting = n_moved_bytes > 0 ? 0 : n_waiting + 1;
        n_done_bytes += n_moved_bytes;
        if (runner->tile < runner->n_tiles) {
            launch->next++;
            continue;
        }
        struct gyre_host_work *work = runner->work;
        *runner = launch->runners[--launch->n_runners];
        if (--work->n_live == 0 && work->next != NULL)
            begin_work(launch, work->next);
    }
    const bool has_moved = n_done_bytes > 0;
    uint32_t n_new = 0;
    while (launch->n_finished < launch->n_works && launch->works[launch->n_finished].n_live == 0) {
        launch->n_finished++;
        n_new++;
    }
    if (n_new > 0)
        gyre_store_release_u64(&executor->progress->completed,
                               executor->progress->completed + n_new);
    if (launch->n_runners > 0)
        return has_moved || help(executor, false) ? GYRE_TASK_MOVING : GYRE_TASK_IDLE;
    gyre_host_trace_end(launch);
    (void)help(executor, true);
    executor->running_ticket++;
    return end_launch(launch);
}

static enum gyre_task_state poll_launch(struct gyre_task *task, gyre_status *status_out)
{
    struct gyre_host_launch *launch = (struct gyre_host_launch *)task;
    struct gyre_host_executor *executor = launch->executor;
    /* Another stream polls, or close runs. */
    if (pthread_mutex_trylock(&executor->poll_lock) != 0)
        return GYRE_TASK_IDLE;
    const enum gyre_task_state state = advance_launch(launch, status_out);
    pthread_mutex_unlock(&executor->poll_lock);
    return state;
}

/* Under executor->lock, so tickets have the order of pushes. */
static gyre_status launch_locked(struct gyre_host_executor *executor, const struct gyre_work *works,
                                 uint32_t n_works, gyre_stream stream)
{
    uint32_t n_runners = 0;
    for (uint32_t i = 0; i < n_works; i++)
        n_runners += count_runners(&works[i]);
    struct gyre_host_launch *launch = get_launch(executor, n_works, n_runners);
    if (launch == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                         "cannot allocate a launch of %u works, %u workers", n_works, n_runners);
    launch->task = (struct gyre_task){NULL, poll_launch, release_launch};
    launch->ticket = executor->n_tickets;
    launch->first_work = executor->base.n_launched;
    launch->n_finished = 0;
    launch->n_runners = 0;
    launch->next = 0;
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_work *work = &works[i];
        /* 0: with the launch. Works that move nothing never end, so they are skipped. */
        uint32_t before = work->follows;
        while (before > 0 && launch->works[before - 1].n_live == 0)
            before = launch->works[before - 1].work.follows;
        struct gyre_host_work *own = &launch->works[launch->n_works++];
        *own = (struct gyre_host_work){.work = *work,
                                       .loaded = work->ready->loaded,
                                       .split = work->ready->split,
                                       .reduction = work->ready->reduction,
                                       .n_live = count_runners(work)};
        own->reduction.scalar = work->scalar;
        own->loaded->n_users++;
        if (before == 0)
            begin_work(launch, own);
        else if (own->n_live > 0)
            launch->works[before - 1].next = own;
    }
    /* The launch may end before push returns. */
    uint64_t *n_launched = &executor->base.n_launched;
    gyre_store_release_u64(n_launched, *n_launched + n_works);
    const gyre_status status = gyre_host_stream_push(stream, &launch->task);
    if (status != GYRE_SUCCESS) {
        gyre_store_release_u64(n_launched, *n_launched - n_works);
        put_launch(launch);
        return status;
    }
    executor->n_tickets++;
    executor->n_users++;
    return GYRE_SUCCESS;
}

gyre_status gyre_host_enqueue(struct gyre_executor *base, const struct gyre_work *works,
                              int n_works, gyre_stream stream)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++) {
        if (works[i].ready->loaded->is_placed && works[i].placement == NULL)
            return gyre_fail(GYRE_ERROR_INTERNAL, "%s",
                             "a program that places data, and no placement");
        if (works[i].follows > (uint32_t)i)
            return gyre_fail(GYRE_ERROR_INTERNAL, "work %d of a launch follows work %u", i,
                             works[i].follows - 1);
    }
    pthread_mutex_lock(&executor->lock);
    const gyre_status status = launch_locked(executor, works, (uint32_t)n_works, stream);
    pthread_mutex_unlock(&executor->lock);
    return status;
}
