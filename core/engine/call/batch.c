/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"

#include "core/engine/health/health.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/host_stream.h"

#include <errno.h>
#include <stdlib.h>

enum { N_FEW = 8 }; /* for so many calls nothing is allocated */

/* Usage, arguments and unsupported calls fail everywhere. */
static void raise_failure(gyre_comm *comm, gyre_status status)
{
    if (status == GYRE_ERROR_OUT_OF_MEMORY || status == GYRE_ERROR_SYSTEM)
        gyre_fault_raise(&comm->self.fault, status, gyre_cause());
}

/* A host stream runs its launches in order, so a rank must not be called on a stream where another
 * rank of its communicator waits for it. */
static gyre_status take_stream(gyre_comm *comm, gyre_stream stream)
{
    gyre_stream own;
    if (comm->self.device_info.kind != GYRE_DEVICE_HOST ||
        (stream != NULL &&
         gyre_load_acquire_u64(&comm->stream) == (uint64_t)(uintptr_t)stream)) /* the usual case */
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_host_stream_resolve(stream, &own));
    if (gyre_load_acquire_u64(&comm->stream) == (uint64_t)(uintptr_t)own)
        return GYRE_SUCCESS;
    const int other = gyre_registry_take_stream(comm, own);
    if (other < 0)
        return GYRE_SUCCESS;
    return gyre_comm_give_up(
        comm, gyre_fail(GYRE_ERROR_INVALID_USAGE,
                        "rank %d of communicator %s was called on the stream where a call of rank "
                        "%d waits for it: on the host each rank of a communicator needs a stream "
                        "of its own (gyre_stream_create; NULL is one stream a thread)",
                        comm->self.rank, comm->self.name, other));
}

static gyre_status post(struct gyre_item *item, uint64_t work_index, struct gyre_work *work_out)
{
    gyre_comm *comm = item->comm;
    const struct gyre_call *call = &item->call;
    struct gyre_comparer *comparer = item->first->comparer;
    struct gyre_record record = gyre_batch_record(call);
    if (item->call.coll == GYRE_COLL_SEND_RECV) /* the call log numbers collectives */
        record.sequence = ++comm->n_p2p[call->root * 2 + call->is_send];
    const uint64_t index = gyre_call_log_post(&comm->call_log, &record);
    gyre_health_posted(comm->health, &record);
    if (item->call.coll != GYRE_COLL_SEND_RECV && gyre_compares_calls(comm))
        GYRE_TRY(comparer != NULL ? gyre_comparer_take(comparer)
                                  : gyre_compare_call(comm, &record));
    if (item->plan == NULL) /* fails again, and tells the cause */
        GYRE_TRY(gyre_plan_get(&comm->plans, call, &item->plan));
    gyre_plan_work(&comm->plans, item->plan, call, work_out);
    work_out->follows = item->follows;
    work_out->signature = gyre_record_signature(&record, comm->self.rank);
    work_out->sequence = record.sequence;
    gyre_call_log_launched(&comm->call_log, work_index, index);
    return GYRE_SUCCESS;
}

static gyre_status enqueue(struct gyre_item *const *items, int n_items, gyre_stream stream)
{
    gyre_comm *comm = items[0]->comm;
    struct gyre_executor *executor = comm->executor;
    struct gyre_work few[N_FEW];
    struct gyre_work *works = n_items <= N_FEW ? few : malloc((size_t)n_items * sizeof(*works));
    const uint64_t n_launched = executor->n_launched;
    const uint64_t begin_ns = comm->recorded != NULL ? gyre_now_ns() : 0;
    gyre_status status =
        works != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "group of %d calls", n_items);
    bool waits = false;
    for (int i = 0; i < n_items && status == GYRE_SUCCESS; i++) {
        status = post(items[i], n_launched + (uint64_t)i, &works[i]);
        waits = waits || (status == GYRE_SUCCESS && items[i]->plan->waits);
    }
    if (waits && status == GYRE_SUCCESS) {
        status = take_stream(comm, stream);
        if (status == GYRE_SUCCESS)
            gyre_store_release_u64(&comm->stream_works, n_launched + (uint64_t)n_items);
    }
    if (status == GYRE_SUCCESS) {
        struct gyre_metrics_span *span = NULL;
        struct gyre_observed_launch *observed = NULL;
        if (comm->metrics != NULL)
            span = gyre_metrics_begin(comm->metrics, items, n_items, stream);
        if (comm->observing != NULL)
            observed = gyre_observe_launching(items, n_items, stream);
        status = executor->ops->enqueue(executor, works, n_items, stream);
        if (observed != NULL)
            gyre_observe_launched(observed, status == GYRE_SUCCESS, stream);
        if (span != NULL)
            gyre_metrics_end(span, status == GYRE_SUCCESS, stream);
    }
    if (status == GYRE_SUCCESS && !executor->ops->helps)
        gyre_links_wake(&comm->links);
    /* A captured launch runs when its graph is launched, or never. */
    if (status == GYRE_SUCCESS && executor->n_launched == n_launched)
        comm->has_captured = true;
    else if (status == GYRE_SUCCESS && comm->recorded != NULL) {
        struct gyre_trace_event *event = gyre_trace_next(comm->recorded);
        event->kind = GYRE_TRACE_LAUNCH;
        event->begin_ns = begin_ns;
        event->end_ns = gyre_now_ns();
        event->call = n_launched;
        event->sequence = works[0].sequence;
        event->n_bytes = items[0]->call.count * gyre_dtype_bytes(items[0]->call.dtype);
        event->program = GYRE_TRACE_NO_PROGRAM;
        event->step = items[0]->call.coll;
        event->n_ins = 0;
        event->n_outs = 0;
    }
    raise_failure(comm, status);
    if (works != few)
        free(works);
    return status;
}

/* This thread holds the communicator, so its windows stay. The program is loaded here, so that
 * launches follow each other closely. */
static void plan(struct gyre_item *item)
{
    gyre_comm *comm = item->comm;
    if (comm->windows.newest != NULL)
        gyre_window_find(&comm->windows, (uint32_t)comm->self.n_ranks, &item->call);
    if (gyre_plan_get(&comm->plans, &item->call, &item->plan) != GYRE_SUCCESS)
        item->plan = NULL;
}

gyre_status gyre_batch_one(struct gyre_item *item)
{
    const struct gyre_float_env callers = gyre_float_begin();
    gyre_comm *comm = item->comm;
    struct gyre_item *items[] = {item};
    size_t n_messages = 1;
    gyre_status status = GYRE_SUCCESS;
    item->first = item;
    if (item->call.coll == GYRE_COLL_SEND_RECV)
        status = gyre_order_join_copies(comm->self.rank, items, &n_messages);
    if (status == GYRE_SUCCESS) {
        gyre_plan_table_sweep(&comm->plans.plans);
        plan(item);
        status = enqueue(items, 1, item->call.stream);
    }
    gyre_float_end(callers);
    if (item->call.observed != NULL)
        gyre_observed_release(item->call.observed);
    return status;
}

/* Communicators come in one order on all ranks, so ranks that share several enqueue alike. A send
 * between two collectives would wait for its receive, which another rank may have behind both. */
static int compare_items(const void *left, const void *right)
{
    const struct gyre_item *a = *(struct gyre_item *const *)left;
    const struct gyre_item *b = *(struct gyre_item *const *)right;
    const struct gyre_rank *of_a = &a->comm->self, *of_b = &b->comm->self;
    if (of_a->number != of_b->number)
        return of_a->number < of_b->number ? -1 : 1;
    if (of_a->job != of_b->job) /* both were made at the same time */
        return of_a->job < of_b->job ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if ((a->call.coll == GYRE_COLL_SEND_RECV) != (b->call.coll == GYRE_COLL_SEND_RECV))
        return b->call.coll == GYRE_COLL_SEND_RECV ? -1 : 1;
    return a < b ? -1 : 1;
}

/* @messages_out: where the communicator's messages begin. */
static size_t end_of(struct gyre_item *const *items, size_t n_items, size_t i, size_t *messages_out)
{
    const struct gyre_item *first = items[i]->first;
    while (i < n_items && items[i]->first == first && items[i]->call.coll != GYRE_COLL_SEND_RECV)
        i++;
    *messages_out = i;
    while (i < n_items && items[i]->first == first)
        i++;
    return i;
}

static gyre_status plan_all(struct gyre_item *items, size_t n_items, struct gyre_item **sorted,
                            size_t *n_sorted_out)
{
    size_t n_sorted = 0, n_left = 0, messages;
    for (size_t i = 0; i < n_items; i++)
        if (items[i].comm != NULL)
            sorted[n_sorted++] = &items[i];
    bool is_in_order = true;
    for (size_t i = 1; i < n_sorted && is_in_order; i++)
        is_in_order = compare_items(&sorted[i - 1], &sorted[i]) < 0;
    if (!is_in_order)
        qsort(sorted, n_sorted, sizeof(struct gyre_item *), compare_items);
    for (size_t i = 0, end; i < n_sorted; i = end) {
        end = end_of(sorted, n_sorted, i, &messages);
        size_t n_messages = end - messages;
        GYRE_TRY(
            gyre_order_join_copies(sorted[i]->comm->self.rank, &sorted[messages], &n_messages));
        for (size_t k = i; k < messages + n_messages; k++)
            sorted[n_left++] = sorted[k];
    }
    for (size_t i = 0; i < n_left; i++)
        plan(sorted[i]);
    *n_sorted_out = n_left;
    return GYRE_SUCCESS;
}

/* The calls' other streams come before the communicator's (@go_ahead), or after it. The first is
 * done before anything is enqueued, because communicators may share streams. */
static gyre_status order_streams(const struct gyre_item *items, size_t n_items, bool go_ahead)
{
    for (size_t i = 0; i < n_items; i++) {
        if (items[i].comm == NULL)
            continue;
        struct gyre_device *device = items[i].comm->self.device;
        const gyre_stream stream = items[i].first->call.stream;
        const gyre_stream other = items[i].call.stream;
        bool is_done = other == stream;
        for (size_t j = 0; j < i && !is_done; j++)
            is_done = items[j].comm == items[i].comm && items[j].call.stream == other;
        if (!is_done)
            GYRE_TRY(go_ahead ? device->ops->stream_follow(device, stream, other)
                              : device->ops->stream_follow(device, other, stream));
    }
    return GYRE_SUCCESS;
}

static gyre_status enqueue_part(struct gyre_item **items, size_t n_collectives, size_t n_items)
{
    const gyre_comm *comm = items[0]->comm;
    const gyre_stream stream = items[0]->first->call.stream;
    const struct gyre_order_place place = {
        .rank = comm->self.rank,
        .n_ranks = comm->self.n_ranks,
        .most_calls = comm->links.least_sms,
        .queues = comm->executor->ops->queues,
    };
    for (size_t i = 0; i < n_collectives; i++)
        GYRE_TRY(enqueue(&items[i], 1, stream));
    gyre_order_messages(&place, comm->latest, &items[n_collectives],
                        (int)(n_items - n_collectives));
    for (size_t i = n_collectives, end; i < n_items; i = end) {
        for (end = i + 1; end < n_items && items[end]->launch == items[i]->launch;)
            end++;
        GYRE_TRY(enqueue(&items[i], (int)(end - i), stream));
    }
    return GYRE_SUCCESS;
}

/* This thread holds the communicators. */
static void run_held(struct gyre_item *items, size_t n_items, bool has_streams,
                     struct gyre_failure *failure)
{
    struct gyre_item *few[N_FEW];
    struct gyre_item **sorted = n_items <= N_FEW ? few : malloc(n_items * sizeof(*sorted));
    size_t n_sorted = 0;
    gyre_status status = sorted != NULL ? plan_all(items, n_items, sorted, &n_sorted)
                                        : gyre_fail_errno(ENOMEM, "group of %zu calls", n_items);
    if (status == GYRE_SUCCESS && has_streams)
        status = order_streams(items, n_items, true);
    if (status == GYRE_SUCCESS) {
        size_t messages;
        const bool has_several = n_sorted > 0 && sorted[0]->first != sorted[n_sorted - 1]->first;
        for (size_t i = 0, end; i < n_sorted && has_several; i = end) {
            end = end_of(sorted, n_sorted, i, &messages);
            if (messages > i && gyre_compares_calls(sorted[i]->comm))
                /* A failure here ends the communicator, and its launches report that. */
                (void)gyre_comparer_start(sorted[i]->comm, &sorted[i], messages - i,
                                          &sorted[i]->first->comparer);
        }
        for (size_t i = 0, end; i < n_sorted; i = end) {
            end = end_of(sorted, n_sorted, i, &messages);
            /* Other ranks wait for this launch, whatever failed before. */
            gyre_failure_note(failure, enqueue_part(&sorted[i], messages - i, end - i));
        }
        for (size_t i = 0; i < n_sorted && has_several; i = end_of(sorted, n_sorted, i, &messages))
            gyre_comparer_finish(sorted[i]->first->comparer);
    } else
        for (struct gyre_item *first = items; first != NULL; first = first->next_first)
            if (first->comm != NULL)
                raise_failure(first->comm, status);
    gyre_failure_note(failure, status);
    /* Also after a failure, for enqueued calls. */
    if (has_streams)
        gyre_failure_note(failure, order_streams(items, n_items, false));
    if (sorted != few)
        free(sorted);
}

gyre_status gyre_batch_run(struct gyre_item *items, size_t n_items)
{
    struct gyre_failure failure;
    failure.status = GYRE_SUCCESS;
    /* All calls of a communicator are enqueued on its first call's stream, because on separate
     * streams a receive could wait for an earlier send. */
    struct gyre_item *last = &items[0];
    bool has_streams = false;
    items[0].first = &items[0];
    for (size_t i = 1; i < n_items; i++) {
        struct gyre_item *first = items[i - 1].first;
        if (first->comm != items[i].comm)
            for (first = &items[0]; first != NULL && first->comm != items[i].comm;)
                first = first->next_first;
        if (first == NULL)
            first = last = last->next_first = &items[i];
        items[i].first = first;
        has_streams = has_streams || items[i].call.stream != first->call.stream;
    }
    /* Ended and failed communicators are left out, but calls of others are enqueued, because their
     * ranks wait. */
    for (struct gyre_item *first = items; first != NULL; first = first->next_first) {
        const gyre_status status = gyre_comm_begin_launch(first->comm);
        gyre_failure_note(&failure, status);
        if (status == GYRE_SUCCESS) {
            gyre_plan_table_sweep(&first->comm->plans.plans);
            continue;
        }
        for (size_t i = 0; i < n_items; i++)
            if (items[i].first == first)
                items[i].comm = NULL;
    }
    run_held(items, n_items, has_streams, &failure);
    for (struct gyre_item *first = items; first != NULL; first = first->next_first)
        if (first->comm != NULL)
            gyre_comm_end_call(first->comm);
    return gyre_failure_tell(&failure);
}
