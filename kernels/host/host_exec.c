/* SPDX-License-Identifier: Apache-2.0
 *
 * An abort closes an executor while launches are in streams, so each launch holds a reference.
 * After close, no poll touches a slot, a buffer or the fault.
 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

void gyre_host_drop_user_and_unlock(struct gyre_host_executor *executor)
{
    const bool is_last = --executor->n_users == 0;
    pthread_mutex_unlock(&executor->lock);
    if (!is_last)
        return;
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
    free(executor->line_ends);
    free(executor->unpacked);
    free(executor->has_left);
    free(executor);
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
    executor->has_left = calloc((size_t)config->n_ranks, sizeof(*executor->has_left));
    if (executor->ends == NULL || executor->progress == NULL || executor->has_left == NULL)
        goto fail_executor;
    memset(executor->progress, 0, sizeof(*executor->progress));
    executor->base.ops = &gyre_executor_host;
    executor->rank = config->rank;
    executor->n_ranks = (uint32_t)config->n_ranks;
    executor->spec = config->spec;
    executor->fault = config->fault;
    executor->trace = config->trace;
    executor->recorded = gyre_trace_use(config->trace, GYRE_TRACE_EXECUTOR);
    executor->help = config->help;
    executor->help_context = config->help_context;
    executor->n_users = 1;
    if (executor->spec.net_line_bytes > 0) {
        executor->line_payload_bytes =
            gyre_slot_payload_bytes(GYRE_PROTO_LL, executor->spec.net_line_bytes);
        executor->line_ends = calloc(n_ends, sizeof(*executor->line_ends));
        executor->unpacked =
            malloc((size_t)(GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS) * executor->line_payload_bytes);
        if (executor->line_ends == NULL || executor->unpacked == NULL)
            goto fail_executor;
    }
    const uint32_t n_per_peer = executor->spec.n_fifos * 2;
    for (uint32_t i = 0; i < n_ends; i++) {
        const struct gyre_connector *connector = &config->connectors[i];
        executor->ends[i] = (struct gyre_host_end){
            .slots = connector->slots[GYRE_PROTO_SIMPLE],
            .inbox = connector->inbox,
            .credit = connector->credit,
            .depth = connector->depth,
            .slot_bytes = connector->slot_bytes,
            .is_proxied = connector->is_proxied != 0,
            .peer = (uint16_t)(i / n_per_peer),
            .fifo = (uint16_t)(i % n_per_peer / 2),
        };
        if (executor->line_ends == NULL || connector->is_proxied == 0 ||
            connector->slots[GYRE_PROTO_LL] == NULL)
            continue;
        executor->line_ends[i] = executor->ends[i];
        executor->line_ends[i].slots = connector->slots[GYRE_PROTO_LL];
        executor->line_ends[i].proto = GYRE_PROTO_LL;
        executor->line_ends[i].slot_bytes = executor->spec.net_line_bytes;
    }
    pthread_mutex_init(&executor->poll_lock, NULL);
    pthread_mutex_init(&executor->lock, NULL);
    *executor_out = &executor->base;
    return GYRE_SUCCESS;
fail_executor:
    free(executor->has_left);
    free(executor->unpacked);
    free(executor->line_ends);
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
    pthread_mutex_lock(&executor->poll_lock);
    executor->is_closed = true;
    pthread_mutex_unlock(&executor->poll_lock);
    pthread_mutex_lock(&executor->lock);
    gyre_host_drop_user_and_unlock(executor);
}

/* Works poll the fault. */
static void host_abort(struct gyre_executor *base)
{
    (void)base;
}

static struct gyre_progress host_progress(const struct gyre_executor *base)
{
    const struct gyre_progress *own = ((const struct gyre_host_executor *)base)->progress;
    struct gyre_progress progress = {0};
    progress.completed = gyre_load_acquire_u64(&own->completed);
    progress.activity = gyre_load_relaxed_u64(&own->activity);
    progress.mismatch = gyre_load_acquire_u64(&own->mismatch);
    return progress;
}

static bool host_is_idle(struct gyre_executor *base)
{
    const struct gyre_host_executor *executor = (const struct gyre_host_executor *)base;
    return host_progress(base).completed >= gyre_load_acquire_u64(&base->n_launched) &&
           gyre_load_acquire_u64(&executor->n_one_sided) == 0;
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

/* The host's streams know (core/engine/call/observe.c). */
static gyre_status host_time_works(struct gyre_executor *executor)
{
    (void)executor;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "the host's executor keeps no times");
}

static bool host_time_next(struct gyre_executor *executor, gyre_stream stream)
{
    (void)executor;
    (void)stream;
    return false;
}

static bool host_span_of(struct gyre_executor *executor, uint64_t work,
                         struct gyre_launch_span *span_out)
{
    (void)executor;
    (void)work;
    (void)span_out;
    return false;
}

const struct gyre_executor_ops gyre_executor_host = {
    .name = "host",
    .helps = true,
    .queues = true,
    .open = host_open,
    .close = host_close,
    .progress = host_progress,
    .positions = gyre_host_positions,
    .side_state = gyre_host_side_state,
    .is_idle = host_is_idle,
    .abort = host_abort,
    .place = host_place,
    .unplace = host_unplace,
    .load = gyre_host_load,
    .ready = gyre_host_ready,
    .unload = gyre_host_unload,
    .time_works = host_time_works,
    .time_next = host_time_next,
    .span_of = host_span_of,
    .enqueue = gyre_host_enqueue,
    .put = gyre_host_put,
    .await_signals = gyre_host_await_signals,
    .peer_left = gyre_host_peer_left,
    .find_blocked = gyre_host_find_blocked,
};
