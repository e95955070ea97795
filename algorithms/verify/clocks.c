/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks (algorithms/verify/clocks.h). Their vectors are in snapshots.c, and the maxima that
 * are remembered in joins.c.
 */
#include "algorithms/verify/clocks.h"

#include "algorithms/verify/joins.h"
#include "algorithms/verify/snapshots.h"
#include "core/base/status.h"

#include <stdlib.h>
#include <string.h>

/* Snapshots that wait in lists, and maxima that are remembered, may take so many bytes before
 * workers add what they receive to their clocks at once. */
#define WAITING_BYTES (96U << 20)

/* Maxima that are remembered. A list of all workers has one maximum for each worker, and a list
 * that lacks one worker has a few maxima of its own. More would only leave the caches. */
#define JOINS_PER_WORKER 4

#define NO_ENTRY         UINT32_MAX

#define N_LATEST         8 /* entries of a list that are searched; a whole list may be long */

/* The snapshots that a worker received and has not added to its clock. */
struct pending {
    uint32_t *snapshots;
    uint32_t n, capacity;
};

struct gyre_clocks {
    uint32_t n_workers;
    uint32_t n_entries; /* of a clock */
    uint32_t *entry_of; /* by worker; NO_ENTRY if it never sends */
    int32_t *own_times; /* by worker */
    char *clocks;       /* of all workers */
    struct gyre_snapshots snapshots;
    struct gyre_joins *joins;
    uint32_t n_most_waiting; /* snapshots */
    struct pending *pending; /* by worker */
    struct pending held;     /* of the steps that may run at the same time */
    uint32_t *list;          /* in the form of gyre_joins_add() */
};

static void *clock_of(const struct gyre_clocks *clocks, uint32_t worker)
{
    return &clocks->clocks[worker * clocks->snapshots.vector_bytes];
}

/* Number the workers that send. */
static gyre_status number_entries(struct gyre_clocks *clocks, const struct gyre_network *network)
{
    clocks->entry_of = calloc((size_t)network->n_workers + 1, sizeof(*clocks->entry_of));
    if (clocks->entry_of == NULL)
        return GYRE_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < network->n_fifos; i++)
        clocks->entry_of[network->fifos[i].sender] = 1;
    for (uint32_t w = 0; w < network->n_workers; w++)
        clocks->entry_of[w] = clocks->entry_of[w] != 0 ? clocks->n_entries++ : NO_ENTRY;
    return GYRE_SUCCESS;
}

static gyre_status open_arrays(struct gyre_clocks *clocks)
{
    const size_t vector_bytes = clocks->snapshots.vector_bytes, n = (size_t)clocks->n_workers + 1;
    clocks->n_most_waiting = (uint32_t)(WAITING_BYTES / (vector_bytes + 1));
    clocks->own_times = calloc(n, sizeof(*clocks->own_times));
    clocks->clocks = calloc(n, vector_bytes + 1);
    clocks->pending = calloc(n, sizeof(*clocks->pending));
    clocks->list = calloc(n, sizeof(*clocks->list));
    if (clocks->own_times == NULL || clocks->clocks == NULL || clocks->pending == NULL ||
        clocks->list == NULL)
        return GYRE_ERROR_OUT_OF_MEMORY;
    uint32_t n_joins = clocks->n_most_waiting / 2;
    if (n_joins / JOINS_PER_WORKER > clocks->n_workers)
        n_joins = clocks->n_workers * JOINS_PER_WORKER;
    return gyre_joins_open(&clocks->snapshots, n_joins, &clocks->joins);
}

gyre_status gyre_clocks_open(const struct gyre_network *network, uint64_t max_time,
                             struct gyre_clocks **clocks_out)
{
    struct gyre_clocks *clocks = calloc(1, sizeof(*clocks));
    gyre_status status = GYRE_ERROR_OUT_OF_MEMORY;
    if (clocks != NULL) {
        clocks->n_workers = network->n_workers;
        status = number_entries(clocks, network);
        gyre_snapshots_init(&clocks->snapshots, clocks->n_entries, max_time);
    }
    if (status == GYRE_SUCCESS)
        status = open_arrays(clocks);
    if (status != GYRE_SUCCESS) {
        gyre_clocks_close(clocks);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the clocks of %u workers",
                         network->n_workers);
    }
    *clocks_out = clocks;
    return GYRE_SUCCESS;
}

void gyre_clocks_close(struct gyre_clocks *clocks)
{
    if (clocks == NULL)
        return;
    for (uint32_t i = 0; i < clocks->n_workers && clocks->pending != NULL; i++)
        free(clocks->pending[i].snapshots);
    free(clocks->pending);
    free(clocks->held.snapshots);
    free(clocks->list);
    free(clocks->entry_of);
    free(clocks->own_times);
    free(clocks->clocks);
    gyre_joins_close(clocks->joins);
    gyre_snapshots_fini(&clocks->snapshots);
    free(clocks);
}

int32_t gyre_clocks_own_time(const struct gyre_clocks *clocks, uint32_t worker)
{
    return clocks->own_times[worker];
}

void gyre_clocks_set_time(struct gyre_clocks *clocks, uint32_t worker, int32_t time)
{
    clocks->own_times[worker] = time;
    if (clocks->entry_of[worker] != NO_ENTRY)
        gyre_times_set(&clocks->snapshots, clock_of(clocks, worker), clocks->entry_of[worker],
                       time);
}

/* Does a worker know all that is in the snapshot? A clock shows a step's time, or a later one, only
 * if it comes from that worker after all steps of that time. */
static bool is_known(const struct gyre_clocks *clocks, uint32_t worker,
                     const struct gyre_snapshot *snapshot)
{
    return gyre_times_get(&clocks->snapshots, clock_of(clocks, worker), snapshot->entry) >=
           snapshot->time;
}

/* Enter a snapshot in clocks->list. Of two of one worker, the one of the later time has all
 * that the other has; if both are of one time, add one to the worker's clock instead. */
static void enter(struct gyre_clocks *clocks, uint32_t worker, uint32_t number)
{
    const struct gyre_snapshot *snapshot = &clocks->snapshots.all[number];
    uint32_t *place = &clocks->list[snapshot->entry];
    if (is_known(clocks, worker, snapshot) || *place == number)
        return;
    const struct gyre_snapshot *other = &clocks->snapshots.all[*place];
    if (*place == GYRE_NO_SNAPSHOT || other->time < snapshot->time)
        *place = number;
    else if (other->time == snapshot->time)
        gyre_times_raise(&clocks->snapshots, snapshot->times, clock_of(clocks, worker));
}

/* Add all that a worker has received to its clock. */
static void settle(struct gyre_clocks *clocks, uint32_t worker)
{
    struct pending *pending = &clocks->pending[worker];
    struct gyre_snapshots *snapshots = &clocks->snapshots;
    /* A short list is not worth the pass over all workers. */
    const bool is_long = pending->n > 8 && pending->n > clocks->n_entries / 16;
    for (uint32_t i = 0; i < pending->n; i++) {
        const struct gyre_snapshot *snapshot = &snapshots->all[pending->snapshots[i]];
        if (is_long)
            enter(clocks, worker, pending->snapshots[i]);
        else if (!is_known(clocks, worker, snapshot))
            gyre_times_raise(snapshots, snapshot->times, clock_of(clocks, worker));
    }
    if (is_long)
        gyre_joins_add(clocks->joins, clocks->list, clocks->n_entries, clock_of(clocks, worker));
    for (uint32_t i = 0; i < pending->n; i++)
        gyre_snapshots_release(snapshots, pending->snapshots[i]);
    pending->n = 0;
}

/* Append a snapshot to a list. It takes the place of an earlier one of the same worker, if that is
 * easy to find. Returns false when there is no memory. */
static bool append(struct gyre_clocks *clocks, struct pending *pending, uint32_t number)
{
    struct gyre_snapshots *snapshots = &clocks->snapshots;
    for (uint32_t i = pending->n; i > 0 && i + N_LATEST > pending->n; i--) {
        uint32_t *place = &pending->snapshots[i - 1];
        if (snapshots->all[*place].entry != snapshots->all[number].entry ||
            snapshots->all[*place].time >= snapshots->all[number].time)
            continue;
        gyre_snapshots_release(snapshots, *place);
        *place = number;
        return true;
    }
    if (pending->n == pending->capacity) {
        const uint32_t capacity = pending->capacity == 0 ? 16 : pending->capacity * 2;
        uint32_t *bigger = realloc(pending->snapshots, capacity * sizeof(*bigger));
        if (bigger == NULL)
            return false;
        pending->snapshots = bigger;
        pending->capacity = capacity;
    }
    pending->snapshots[pending->n++] = number;
    return true;
}

/* Let a worker know a snapshot, of which it is a reader. */
static bool learn(struct gyre_clocks *clocks, uint32_t worker, uint32_t number)
{
    if (!append(clocks, &clocks->pending[worker], number))
        return false;
    if (clocks->snapshots.n_used > clocks->n_most_waiting) {
        gyre_joins_forget(clocks->joins);
        settle(clocks, worker);
    }
    return true;
}

bool gyre_clocks_receive(struct gyre_clocks *clocks, struct gyre_view *view, uint32_t snapshot)
{
    if (!view->is_apart)
        return learn(clocks, view->worker, snapshot);
    view->snapshots[view->n_snapshots++] = snapshot;
    /* Not by append(), because the view needs all of them. */
    struct pending *held = &clocks->held;
    if (held->n == held->capacity) {
        const uint32_t capacity = held->capacity == 0 ? 16 : held->capacity * 2;
        uint32_t *bigger = realloc(held->snapshots, capacity * sizeof(*bigger));
        if (bigger == NULL)
            return false;
        held->snapshots = bigger;
        held->capacity = capacity;
    }
    held->snapshots[held->n++] = snapshot;
    return true;
}

bool gyre_clocks_learn(struct gyre_clocks *clocks, uint32_t worker)
{
    bool has_memory = true;
    for (uint32_t i = 0; i < clocks->held.n && has_memory; i++)
        has_memory = learn(clocks, worker, clocks->held.snapshots[i]);
    clocks->held.n = 0;
    return has_memory;
}

static int32_t time_in(const struct gyre_clocks *clocks, uint32_t snapshot, uint32_t entry)
{
    return gyre_times_get(&clocks->snapshots, clocks->snapshots.all[snapshot].times, entry);
}

bool gyre_view_is_after(struct gyre_clocks *clocks, const struct gyre_view *view, uint32_t worker,
                        int32_t time)
{
    const struct pending *pending = &clocks->pending[view->worker];
    const void *clock = clock_of(clocks, view->worker);
    const uint32_t entry = clocks->entry_of[worker];
    if (entry == NO_ENTRY)
        return false;
    if (gyre_times_get(&clocks->snapshots, clock, entry) >= time)
        return true;
    for (uint32_t i = 0; i < view->n_snapshots; i++)
        if (time_in(clocks, view->snapshots[i], entry) >= time)
            return true;
    for (uint32_t i = pending->n; i > 0 && i + N_LATEST > pending->n; i--)
        if (time_in(clocks, pending->snapshots[i - 1], entry) >= time)
            return true;
    settle(clocks, view->worker);
    return gyre_times_get(&clocks->snapshots, clock, entry) >= time;
}

uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const struct gyre_view *view,
                              uint32_t n_readers)
{
    struct gyre_snapshots *snapshots = &clocks->snapshots;
    settle(clocks, view->worker);
    const uint32_t number =
        gyre_snapshots_take(snapshots, clock_of(clocks, view->worker), n_readers);
    if (number == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    struct gyre_snapshot *snapshot = &snapshots->all[number];
    for (uint32_t i = 0; i < view->n_snapshots; i++)
        gyre_times_raise(snapshots, snapshots->all[view->snapshots[i]].times, snapshot->times);
    snapshot->entry = clocks->entry_of[view->worker];
    snapshot->time = view->time;
    return number;
}

void gyre_clocks_share(struct gyre_clocks *clocks, uint32_t snapshot, uint32_t n_more)
{
    clocks->snapshots.all[snapshot].n_readers += n_more;
}

void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot)
{
    gyre_snapshots_release(&clocks->snapshots, snapshot);
}
