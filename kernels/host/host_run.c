/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"

/* A fault, a caller or another task should not wait over about 100 us for a poll: 512 KiB at the 5
 * GB/s of a slow core. */
#define POLL_MAX_BYTES  (512 * 1024)
#define STEP_COST_BYTES 256

static void finish_runner(struct gyre_host_launch *launch, uint32_t i)
{
    struct gyre_host_runner *runner = &launch->runners[i];
    struct gyre_host_work *work = runner->work;
    *runner = launch->runners[--launch->n_runners];
    if (--work->n_live == 0 && work->next != NULL)
        gyre_host_begin_work(launch, work->next);
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

static bool try_step(struct gyre_host_launch *launch, struct gyre_host_runner *runner,
                     uint64_t *n_bytes_out)
{
    return launch->is_recorded ? gyre_host_trace_step(launch, runner, n_bytes_out)
                               : gyre_host_step_try(launch->executor, runner, n_bytes_out);
}

static bool run(struct gyre_host_launch *launch)
{
    uint64_t n_done_bytes = 0;
    uint32_t n_waiting = 0;
    while (n_waiting < launch->n_runners && n_done_bytes < POLL_MAX_BYTES) {
        if (launch->next >= launch->n_runners)
            launch->next = 0;
        struct gyre_host_runner *runner = &launch->runners[launch->next];
        uint64_t n_bytes;
        uint64_t n_moved_bytes = 0;
        while (runner->tile < runner->n_tiles && n_done_bytes + n_moved_bytes < POLL_MAX_BYTES &&
               try_step(launch, runner, &n_bytes))
            n_moved_bytes += n_bytes + STEP_COST_BYTES;
        runner->is_next = false;
        n_waiting = n_moved_bytes > 0 ? 0 : n_waiting + 1;
        n_done_bytes += n_moved_bytes;
        if (runner->tile == runner->n_tiles)
            finish_runner(launch, launch->next);
        else
            launch->next++;
    }
    return n_done_bytes > 0;
}

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
    const bool has_moved = run(launch);
    count_finished(launch, executor->progress);
    if (launch->n_runners > 0)
        return has_moved || help(executor, false) ? GYRE_TASK_MOVING : GYRE_TASK_IDLE;
    gyre_host_trace_end(launch);
    (void)help(executor, true);
    executor->running_ticket++;
    return end_launch(launch);
}

enum gyre_task_state gyre_host_poll_launch(struct gyre_task *task, gyre_status *status_out)
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
