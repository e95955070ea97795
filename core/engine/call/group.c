/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread's calls until the outermost group end, which runs them as one batch or only predicts
 * their time.
 */
#include "core/engine/call/batch.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { N_FEW_ITEMS = 4 };

/* Its calls run where they lie, so none may be added while they do. */
struct group {
    int depth;
    bool has_background;
    int n_tasks;
    uint32_t max_tasks;
    struct gyre_group_task **tasks;
    size_t n_items;
    size_t max_items;        /* 0 = `few` */
    struct gyre_item *items; /* NULL = `few` */
    struct gyre_item few[N_FEW_ITEMS];
};

static _Thread_local struct group group;

/* Not inline: a compiler that knows the variable looks up its address at each use. */
static __attribute__((noinline)) struct group *own_group(void)
{
    return &group;
}

static struct gyre_item *items_of(struct group *own)
{
    return own->items != NULL ? own->items : own->few;
}

static void clear_group(struct group *own)
{
    free(own->tasks);
    free(own->items);
    memset(own, 0, offsetof(struct group, few));
}

/* A forked child does not have the communicators of an open group's calls. */
static void drop_inherited(void)
{
    clear_group(&group);
}

GYRE_WATCH_FORKS(NULL, drop_inherited)

bool gyre_group_is_open(void)
{
    return group.depth > 0;
}

gyre_status gyre_group_add_call(const struct gyre_item *item)
{
    struct group *own = own_group();
    if (own->n_items >= N_FEW_ITEMS && own->n_items >= own->max_items) {
        const size_t more = own->n_items * 2;
        struct gyre_item *items = realloc(own->items, more * sizeof(*items));
        if (items == NULL) {
            gyre_observed_release(item->call.observed);
            /* Without this call, this rank's sequence of calls would differ from the other
             * ranks'. */
            return gyre_comm_give_up(item->comm,
                                     gyre_fail_errno(ENOMEM, "group of %zu calls", more));
        }
        if (own->items == NULL)
            memcpy(items, own->few, sizeof(own->few));
        own->items = items;
        own->max_items = more;
    }
    items_of(own)[own->n_items++] = *item;
    return GYRE_SUCCESS;
}

gyre_status gyre_group_add(struct gyre_group_task *task)
{
    if (!gyre_grow(&group.tasks, &group.max_tasks, (uint64_t)group.n_tasks + 1,
                   sizeof(struct gyre_group_task *))) {
        task->finish(task); /* the group's end does not know the task */
        return gyre_fail_errno(ENOMEM, "group of %d inits", group.n_tasks + 1);
    }
    group.tasks[group.n_tasks++] = task;
    return GYRE_SUCCESS;
}

void gyre_group_note_background(void)
{
    group.has_background = group.depth > 0;
}

gyre_status gyre_group_start(void)
{
    group.depth++;
    return GYRE_SUCCESS;
}

static gyre_status finish_tasks(struct group *own)
{
    struct gyre_failure failure;
    failure.status = GYRE_SUCCESS;
    for (int i = 0; i < own->n_tasks; i++)
        gyre_failure_note(&failure, own->tasks[i]->finish(own->tasks[i]));
    own->n_tasks = 0;
    return gyre_failure_tell(&failure);
}

static gyre_status end_group(struct group *own, gyre_status status)
{
    const bool has_background = own->has_background;
    for (size_t i = 0; i < own->n_items; i++)
        gyre_observed_release(items_of(own)[i].call.observed);
    clear_group(own);
    return status == GYRE_SUCCESS && has_background ? GYRE_IN_PROGRESS : status;
}

gyre_status gyre_group_end(void)
{
    struct group *own = own_group();
    if (own->depth == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "group_end without group_start on this thread");
    if (--own->depth > 0)
        return GYRE_SUCCESS;
    gyre_status status = finish_tasks(own);
    if (status == GYRE_SUCCESS && own->n_items > 0) {
        const struct gyre_float_env callers = gyre_float_begin();
        status = gyre_batch_run(items_of(own), own->n_items);
        gyre_float_end(callers);
    }
    return end_group(own, status);
}

static gyre_status check_outermost(const char *function, const char *verb)
{
    if (group.depth == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s without group_start on this thread",
                         function);
    if (group.depth > 1)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s inside another group: only the outermost %s",
                         function, verb);
    return GYRE_SUCCESS;
}

gyre_status gyre_group_cancel(void)
{
    GYRE_TRY(check_outermost("group_cancel", "ends"));
    struct group *own = own_group();
    own->depth = 0;
    return end_group(own, finish_tasks(own));
}

/* All calls of a communicator, at its first one; else 0. */
static gyre_status predict_comm(const struct gyre_item *items, size_t n_items, size_t first,
                                double *time_ns_out)
{
    *time_ns_out = 0;
    for (size_t i = 0; i < n_items; i++) {
        struct gyre_plan_cache *plans = &items[i].comm->plans;
        const struct gyre_call *call = &items[i].call;
        const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
        struct gyre_choice choice;
        double time_ns;
        if (items[i].comm != items[first].comm)
            continue;
        if (i < first)
            return GYRE_SUCCESS;
        if (call->coll == GYRE_COLL_SEND_RECV)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "group_simulate_end: the group has sends or receives; only "
                             "collectives can be predicted");
        if (call->count == 0 || items[i].comm->self.n_ranks == 1)
            continue;
        GYRE_TRY(gyre_plan_choice(plans, call, &choice));
        GYRE_TRY(gyre_tuner_predict(gyre_plan_facts(plans), gyre_plan_cost(plans), call->coll,
                                    &choice, n_bytes, &time_ns));
        *time_ns_out += time_ns;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_group_simulate_end(double *time_us_out)
{
    struct group *own = own_group();
    double longest_ns = 0, time_ns;
    if (time_us_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "group_simulate_end: time_us_out is NULL");
    GYRE_TRY(check_outermost("group_simulate_end", "knows all"));
    own->depth = 0;
    gyre_status status = finish_tasks(own);
    const struct gyre_float_env callers = gyre_float_begin();
    for (size_t i = 0; i < own->n_items && status == GYRE_SUCCESS; i++) {
        status = predict_comm(items_of(own), own->n_items, i, &time_ns);
        longest_ns = status == GYRE_SUCCESS && time_ns > longest_ns ? time_ns : longest_ns;
    }
    const double longest_us = longest_ns / 1e3;
    gyre_float_end(callers);
    own->has_background = false; /* the status is that of the prediction */
    status = end_group(own, status);
    if (status == GYRE_SUCCESS)
        *time_us_out = longest_us;
    return status;
}
