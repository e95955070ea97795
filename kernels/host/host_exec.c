/* SPDX-License-Identifier: Apache-2.0
 *
 * The host executor. A launch is one task on a host stream. The task runs all workers of all
 * channels of its works in turn. Launches take tickets and run in the order of their tickets, on
 * any streams. Tasks come from a pool, so a call like an earlier one allocates nothing.
 *
 * A task may outlive the executor: an abort closes the executor while launches are still in
 * streams. Each launch holds a reference to the executor. After close, no poll touches a slot, a
 * buffer or the fault.
 */
#include "kernels/host/host_exec.h"

#include "core/base/sync.h"
#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>

/* A poll should end within about 100 us, so that a fault, a caller or another task need not wait
 * longer. That is 512 KiB at the 5 GB/s of a slow core. A step without data takes about 50 ns. */
#define POLL_MAX_BYTES  (512 * 1024)
#define STEP_COST_BYTES 256

/* ---- opening and closing ------------------------------------------------------------------ */

static void free_executor(struct gyre_host_executor *executor)
{
    while (executor->free_launches != NULL) {
        struct gyre_host_launch *launch = executor->free_launches;
        executor->free_launches = launch->next_free;
        free(launch->works);
        free(launch->runners);
        free(launch);
    }
    pthread_mutex_destroy(&executor->poll_lock);
    pthread_mutex_destroy(&executor->lock);
    free(executor->progress);
    free(executor->ends);
    free(executor);
}

/* Release one reference. The caller holds the lock, which this unlocks. */
static void drop_user_and_unlock(struct gyre_host_executor *executor)
{
    const bool is_last = --executor->n_users == 0;
    pthread_mutex_unlock(&executor->lock);
    if (is_last)
        free_executor(executor);
}

static void fill_ends(struct gyre_host_executor *executor, const struct gyre_connector *connectors)
{
    const uint32_t n_per_peer = executor->spec.n_fifos * 2;
    for (uint32_t i = 0; i < executor->n_ranks * n_per_peer; i++) {
        struct gyre_host_end *end = &executor->ends[i];
        end->slots = connectors[i].slots[GYRE_PROTO_SIMPLE];
        end->inbox = connectors[i].inbox;
        end->credit = connectors[i].credit;
        end->depth = connectors[i].depth;
        end->slot_bytes = connectors[i].slot_bytes;
        end->peer = i / n_per_peer;
    }
}

static gyre_status host_open(const struct gyre_executor_config *config,
                             struct gyre_executor **executor_out)
{
    const size_t n_ends = (size_t)config->n_ranks * config->spec.n_fifos * 2;
    struct gyre_host_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        goto fail;
    executor->ends = calloc(n_ends > 0 ? n_ends : 1, sizeof(*executor->ends));
    executor->progress = aligned_alloc(GYRE_CACHE_LINE_BYTES, GYRE_CACHE_LINE_BYTES);
    if (executor->ends == NULL || executor->progress == NULL)
        goto fail_executor;
    memset(executor->progress, 0, sizeof(*executor->progress));
    executor->base.ops = &gyre_executor_host;
    executor->rank = config->rank;
    executor->n_ranks = (uint32_t)config->n_ranks;
    executor->spec = config->spec;
    executor->fault = config->fault;
    executor->help = config->help;
    executor->help_context = config->help_context;
    executor->n_users = 1;
    fill_ends(executor, config->connectors);
    pthread_mutex_init(&executor->poll_lock, NULL);
    pthread_mutex_init(&executor->lock, NULL);
    *executor_out = &executor->base;
    return GYRE_SUCCESS;
fail_executor:
    free(executor->progress);
    free(executor->ends);
    free(executor);
fail:
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                     "cannot allocate the executor of rank %d for %zu connectors", config->rank,
                     n_ends);
}

static void host_close(struct gyre_executor *base)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    if (executor == NULL)
        return;
    /* Wait for the end of a poll that is running. After that no poll touches slots. */
    pthread_mutex_lock(&executor->poll_lock);
    executor->is_closed = true;
    pthread_mutex_unlock(&executor->poll_lock);
    pthread_mutex_lock(&executor->lock);
    drop_user_and_unlock(executor);
}

/* An abort needs no action here, because the works poll the fault. */
static void host_abort(struct gyre_executor *base)
{
    (void)base;
}

static struct gyre_progress host_progress(const struct gyre_executor *base)
{
    const struct gyre_progress *own = ((const struct gyre_host_executor *)base)->progress;
    struct gyre_progress progress;
    progress.completed = gyre_load_acquire_u64(&own->completed);
    progress.activity = gyre_load_relaxed_u64(&own->activity);
    progress.mismatch = gyre_load_acquire_u64(&own->mismatch);
    return progress;
}

static bool host_is_idle(struct gyre_executor *base)
{
    return host_progress(base).completed >= gyre_load_acquire_u64(&base->n_launched);
}

/* ---- running ------------------------------------------------------------------------------ */

static void finish_runner(struct gyre_host_launch *launch, uint32_t i)
{
    struct gyre_host_runner *runner = &launch->runners[i];
    runner->work->n_live--;
    *runner = launch->runners[--launch->n_runners];
}

static void count_finished(struct gyre_host_launch *launch, struct gyre_progress *progress)
{
    uint32_t n_new = 0;
    while (launch->n_finished < launch->n_works && launch->works[launch->n_finished].n_live == 0) {
        launch->n_finished++;
        n_new++;
    }
    if (n_new > 0)
        gyre_store_release_u64(&progress->completed, progress->completed + n_new);
}

/* Run each runner as long as it moves data, until no runner moves or the budget of a poll is used.
 */
static bool run(struct gyre_host_launch *launch)
{
    uint64_t n_done_bytes = 0;
    uint32_t n_waiting = 0; /* runners in succession that could not move */
    while (n_waiting < launch->n_runners && n_done_bytes < POLL_MAX_BYTES) {
        if (launch->next >= launch->n_runners)
            launch->next = 0;
        struct gyre_host_runner *runner = &launch->runners[launch->next];
        uint64_t n_bytes;
        uint64_t n_moved_bytes = 0;
        while (runner->tile < runner->n_tiles && n_done_bytes + n_moved_bytes < POLL_MAX_BYTES &&
               gyre_host_step_try(launch->executor, runner, &n_bytes))
            n_moved_bytes += n_bytes + STEP_COST_BYTES;
        n_waiting = n_moved_bytes > 0 ? 0 : n_waiting + 1;
        n_done_bytes += n_moved_bytes;
        if (runner->tile == runner->n_tiles)
            finish_runner(launch, launch->next);
        else
            launch->next++;
    }
    return n_done_bytes > 0;
}

/* Called under poll_lock, so that no transport is used after close. */
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
    executor->running = launch;
    const bool has_moved = run(launch);
    count_finished(launch, executor->progress);
    if (launch->n_runners > 0)
        return has_moved || help(executor, false) ? GYRE_TASK_MOVING : GYRE_TASK_IDLE;
    (void)help(executor, true);
    executor->running_ticket++;
    return end_launch(launch);
}

static enum gyre_task_state poll_launch(struct gyre_task *task, gyre_status *status_out)
{
    struct gyre_host_launch *launch = (struct gyre_host_launch *)task;
    struct gyre_host_executor *executor = launch->executor;
    /* The lock is taken if another stream polls a launch of this executor, or close runs. */
    if (pthread_mutex_trylock(&executor->poll_lock) != 0)
        return GYRE_TASK_IDLE;
    const enum gyre_task_state state = advance_launch(launch, status_out);
    pthread_mutex_unlock(&executor->poll_lock);
    return state;
}

/* ---- launching ---------------------------------------------------------------------------- */

/* Put a launch back into the pool. The caller holds executor->lock. */
static void put_launch(struct gyre_host_launch *launch)
{
    for (uint32_t i = 0; i < launch->n_works; i++)
        gyre_host_loaded_release(launch->works[i].work.loaded);
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
    drop_user_and_unlock(executor);
}

static gyre_status check_work(const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    const struct gyre_work_needs needs = {
        .n_channels = loaded->n_channels,
        .n_chunks = loaded->n_chunks,
        .most_tile_bytes =
            loaded->n_connections + loaded->n_scratch > 0 ? loaded->area_bytes : UINT64_MAX,
        .is_placed = loaded->is_placed,
    };
    return gyre_work_check(work, &needs);
}

static uint32_t count_runners(const struct gyre_work *work)
{
    return gyre_tile_count(&work->split) == 0 ? 0 : work->loaded->n_runners;
}

/* Get a launch that is large enough, from the pool or newly allocated. The caller holds the lock.
 */
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

static void add_work(struct gyre_host_launch *launch, const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_host_work *own = &launch->works[launch->n_works++];
    own->work = *work;
    own->n_live = count_runners(work);
    own->work.loaded->n_users++;
    const uint32_t n_places = own->n_live == 0 ? 0 : loaded->n_channels * loaded->n_workers;
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
            .n_tiles = gyre_tile_count(&work->split),
            .n_steps = worker->n_steps,
            .channel = channel,
            .worker = i % loaded->n_workers,
        };
    }
}

/* The caller holds executor->lock, so tickets have the order in which launches are pushed. */
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
    launch->n_finished = 0;
    launch->n_runners = 0;
    launch->next = 0;
    for (uint32_t i = 0; i < n_works; i++)
        add_work(launch, &works[i]);
    /* Count the launch before the push, because the stream may finish it before push returns. */
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

static gyre_status host_launch(struct gyre_executor *base, const struct gyre_work *works,
                               int n_works, gyre_stream stream)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++)
        GYRE_TRY(check_work(&works[i]));
    pthread_mutex_lock(&executor->lock);
    const gyre_status status = launch_locked(executor, works, (uint32_t)n_works, stream);
    pthread_mutex_unlock(&executor->lock);
    return status;
}

static gyre_status host_place(struct gyre_executor *executor, struct gyre_placement *placement)
{
    (void)executor;
    placement->device_bases = NULL;
    return GYRE_SUCCESS;
}

static void host_unplace(struct gyre_executor *executor, struct gyre_placement *placement)
{
    (void)executor;
    (void)placement;
}

const struct gyre_executor_ops gyre_executor_host = {
    .name = "host",
    .helps = true,
    .open = host_open,
    .close = host_close,
    .progress = host_progress,
    .positions = gyre_host_positions,
    .end_state = gyre_host_end_state,
    .is_idle = host_is_idle,
    .abort = host_abort,
    .place = host_place,
    .unplace = host_unplace,
    .load = gyre_host_load,
    .prepare = gyre_host_prepare,
    .unload = gyre_host_unload,
    .launch = host_launch,
};
