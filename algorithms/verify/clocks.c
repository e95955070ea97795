/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Beyond so many bytes workers add what they receive at once. */
#define WAITING_BYTES (96U << 20)

/* One maximum a worker for lists of all workers, and a few for lists that lack one. More would
 * leave the caches. */
#define JOINS_PER_WORKER 4

#define N_LATEST         8 /* searched entries of a list */

struct pending {
    uint32_t *snapshots;
    uint32_t n, capacity;
};

struct gyre_clocks {
    uint32_t n_workers;
    uint32_t n_entries;
    uint32_t *entry_of; /* GYRE_NO_ENTRY = it never sends */
    int32_t *own_times;
    uint32_t *known; /* snapshots */
    struct gyre_snapshots snapshots;
    struct gyre_joins *joins;
    uint32_t n_most_waiting;
    struct pending *pending;
    struct pending held; /* steps that may run at the same time */
    uint32_t *list;      /* as for gyre_joins_add() */
};

gyre_status gyre_clocks_open(const struct gyre_verify_network *network, uint64_t max_time,
                             struct gyre_clocks **clocks_out)
{
    const size_t n = (size_t)network->n_workers + 1;
    struct gyre_clocks *clocks = calloc(1, sizeof(*clocks));
    gyre_status status = GYRE_ERROR_OUT_OF_MEMORY;
    if (clocks != NULL) {
        clocks->n_workers = network->n_workers;
        clocks->entry_of = calloc(n, sizeof(*clocks->entry_of));
        clocks->own_times = calloc(n, sizeof(*clocks->own_times));
        clocks->known = calloc(n, sizeof(*clocks->known));
        clocks->pending = calloc(n, sizeof(*clocks->pending));
        clocks->list = calloc(n, sizeof(*clocks->list));
    }
    if (clocks != NULL && clocks->entry_of != NULL && clocks->own_times != NULL &&
        clocks->known != NULL && clocks->pending != NULL && clocks->list != NULL) {
        for (uint32_t i = 0; i < network->n_fifos; i++)
            clocks->entry_of[network->fifos[i].sender] = 1;
        for (uint32_t w = 0; w < network->n_workers; w++)
            clocks->entry_of[w] = clocks->entry_of[w] != 0 ? clocks->n_entries++ : GYRE_NO_ENTRY;
        gyre_snapshots_init(&clocks->snapshots, clocks->n_entries, max_time);
        clocks->n_most_waiting =
            clocks->n_workers + (uint32_t)(WAITING_BYTES / (clocks->snapshots.vector_bytes + 1));
        uint32_t n_joins = clocks->n_most_waiting / 2;
        if (n_joins / JOINS_PER_WORKER > clocks->n_workers)
            n_joins = clocks->n_workers * JOINS_PER_WORKER;
        status = gyre_joins_open(&clocks->snapshots, n_joins, &clocks->joins);
    }
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
    free(clocks->known);
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
}

/* The answer can be no even if it does. A snapshot shows a worker's time only if it comes from that
 * worker after all steps of that time. */
static bool shows_all(const struct gyre_clocks *clocks, uint32_t number, uint32_t other)
{
    const struct gyre_snapshot *snapshot = &clocks->snapshots.all[other];
    return number == other || other == GYRE_NO_SNAPSHOT ||
           (snapshot->entry != GYRE_NO_ENTRY &&
            gyre_snapshots_get(&clocks->snapshots, number, snapshot->entry) >= snapshot->time);
}

/* *known becomes a snapshot with a vector that has no other reader. */
static bool make_own(struct gyre_clocks *clocks, uint32_t *known)
{
    struct gyre_snapshots *snapshots = &clocks->snapshots;
    const struct gyre_snapshot *snapshot = &snapshots->all[*known];
    if (*known != GYRE_NO_SNAPSHOT && snapshot->times != NULL && snapshot->n_readers == 1 &&
        snapshot->entry == GYRE_NO_ENTRY)
        return true;
    const uint32_t own = gyre_snapshots_copy(snapshots, *known, 1);
    if (own == GYRE_NO_SNAPSHOT)
        return false;
    gyre_snapshots_release(snapshots, *known);
    *known = own;
    return true;
}

static void raise(const struct gyre_clocks *clocks, uint32_t number, uint32_t own)
{
    const struct gyre_snapshots *snapshots = &clocks->snapshots;
    const uint32_t origin =
        gyre_snapshots_raise_links(snapshots, number, snapshots->all[own].times);
    if (origin != GYRE_NO_SNAPSHOT)
        gyre_times_raise(snapshots, snapshots->all[origin].times, snapshots->all[own].times);
}

/* False = no memory. */
static bool add(struct gyre_clocks *clocks, uint32_t *known, uint32_t number)
{
    if (shows_all(clocks, *known, number))
        return true;
    if (shows_all(clocks, number, *known)) {
        gyre_snapshots_release(&clocks->snapshots, *known);
        *known = number;
        clocks->snapshots.all[number].n_readers++;
        return true;
    }
    if (!make_own(clocks, known))
        return false;
    raise(clocks, number, *known);
    return true;
}

/* A later snapshot of a worker shows all that an earlier one shows; if both are of one time, add
 * one to `own` instead. */
static void enter(struct gyre_clocks *clocks, uint32_t own, uint32_t number)
{
    const struct gyre_snapshot *snapshot = &clocks->snapshots.all[number];
    uint32_t *place = &clocks->list[snapshot->entry];
    if (shows_all(clocks, own, number) || *place == number)
        return;
    const struct gyre_snapshot *other = &clocks->snapshots.all[*place];
    if (*place == GYRE_NO_SNAPSHOT || other->time < snapshot->time)
        *place = number;
    else if (other->time == snapshot->time)
        raise(clocks, number, own);
}

/* False = no memory; the list is kept. */
static bool settle(struct gyre_clocks *clocks, uint32_t worker)
{
    struct pending *pending = &clocks->pending[worker];
    uint32_t *known = &clocks->known[worker];
    /* A short list is not worth the pass over all workers. */
    if (pending->n > 8 && pending->n > clocks->n_entries / 16) {
        if (!make_own(clocks, known))
            return false;
        /* Where programs send to one rank after the other, snapshots differ by rank, but not the
         * vectors behind them. So only the vectors' maximum is looked for. */
        void *times = clocks->snapshots.all[*known].times;
        for (uint32_t i = 0; i < pending->n; i++)
            enter(clocks, *known, pending->snapshots[i]);
        for (uint32_t i = 0; i < clocks->n_entries; i++)
            clocks->list[i] =
                gyre_snapshots_raise_links(&clocks->snapshots, clocks->list[i], times);
        gyre_joins_add(clocks->joins, clocks->list, clocks->n_entries, times);
    } else {
        for (uint32_t i = 0; i < pending->n; i++)
            if (!add(clocks, known, pending->snapshots[i]))
                return false;
    }
    for (uint32_t i = 0; i < pending->n; i++)
        gyre_snapshots_release(&clocks->snapshots, pending->snapshots[i]);
    pending->n = 0;
    return true;
}

static bool grow(struct pending *list)
{
    return gyre_grow(&list->snapshots, &list->capacity, list->n + 1ULL, sizeof(*list->snapshots));
}

/* Replaces an earlier snapshot of the worker, if it is easy to find. False = no memory. */
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
    if (!grow(pending))
        return false;
    pending->snapshots[pending->n++] = number;
    return true;
}

static bool learn(struct gyre_clocks *clocks, uint32_t worker, uint32_t number)
{
    if (!append(clocks, &clocks->pending[worker], number))
        return false;
    if (clocks->snapshots.n_vectors <= clocks->n_most_waiting)
        return true;
    gyre_joins_forget(clocks->joins);
    return settle(clocks, worker);
}

bool gyre_clocks_receive(struct gyre_clocks *clocks, struct gyre_view *view, uint32_t snapshot)
{
    if (!view->is_apart)
        return learn(clocks, view->worker, snapshot);
    view->snapshots[view->n_snapshots++] = snapshot;
    /* The view needs all snapshots, so append() does not do. */
    if (!grow(&clocks->held))
        return false;
    clocks->held.snapshots[clocks->held.n++] = snapshot;
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

static bool has_time(const struct gyre_clocks *clocks, const struct pending *pending, uint32_t n,
                     uint32_t entry, int32_t time)
{
    for (uint32_t i = pending->n; i > 0 && pending->n - i < n; i--)
        if (gyre_snapshots_get(&clocks->snapshots, pending->snapshots[i - 1], entry) >= time)
            return true;
    return false;
}

bool gyre_view_is_after(struct gyre_clocks *clocks, const struct gyre_view *view, uint32_t worker,
                        int32_t time)
{
    const struct gyre_snapshots *snapshots = &clocks->snapshots;
    const struct pending *pending = &clocks->pending[view->worker];
    const uint32_t *known = &clocks->known[view->worker];
    const uint32_t entry = clocks->entry_of[worker];
    if (entry == GYRE_NO_ENTRY)
        return false;
    for (uint32_t i = 0; i < view->n_snapshots; i++)
        if (gyre_snapshots_get(snapshots, view->snapshots[i], entry) >= time)
            return true;
    if (has_time(clocks, pending, N_LATEST, entry, time) ||
        gyre_snapshots_get(snapshots, *known, entry) >= time)
        return true;
    if (pending->n <= N_LATEST || !settle(clocks, view->worker))
        return has_time(clocks, pending, pending->n, entry, time);
    return gyre_snapshots_get(snapshots, *known, entry) >= time;
}

uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const struct gyre_view *view,
                              uint32_t n_readers)
{
    struct gyre_snapshots *snapshots = &clocks->snapshots;
    const struct gyre_snapshot own = {.entry = clocks->entry_of[view->worker],
                                      .time = view->time,
                                      .shown = clocks->own_times[view->worker]};
    if (!settle(clocks, view->worker))
        return GYRE_NO_SNAPSHOT;
    uint32_t known = clocks->known[view->worker], number = GYRE_NO_SNAPSHOT;
    if (view->n_snapshots == 0)
        return gyre_snapshots_take(snapshots, known, &own, n_readers);
    if (known != GYRE_NO_SNAPSHOT)
        snapshots->all[known].n_readers++;
    bool has_memory = true;
    for (uint32_t i = 0; i < view->n_snapshots && has_memory; i++)
        has_memory = add(clocks, &known, view->snapshots[i]);
    if (has_memory)
        number = gyre_snapshots_take(snapshots, known, &own, n_readers);
    gyre_snapshots_release(snapshots, known);
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
