/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of snapshots (algorithms/verify/snapshots.h).
 */
#include "algorithms/verify/snapshots.h"

#include <stdlib.h>
#include <string.h>

/* Entries that one iteration of a loop handles. The compiler makes vector instructions of a loop of
 * constant length, and without them the verifier takes four times as long for 1024 ranks. The
 * entries have a sign, because not every processor can compare vectors of unsigned numbers. */
#define STRIDE 32

/* Snapshots with a parent that may follow each other. More would save few vectors, and make it slow
 * to look up a time. */
#define MOST_LINKS 16

void gyre_snapshots_init(struct gyre_snapshots *snapshots, uint32_t n_entries, uint64_t max_time)
{
    memset(snapshots, 0, sizeof(*snapshots));
    snapshots->is_short = max_time <= INT16_MAX;
    snapshots->n_vector = (n_entries + STRIDE - 1) / STRIDE * STRIDE;
    snapshots->vector_bytes =
        snapshots->n_vector * (snapshots->is_short ? sizeof(int16_t) : sizeof(int32_t));
    snapshots->n_all = 1;
}

void gyre_snapshots_fini(struct gyre_snapshots *snapshots)
{
    for (uint32_t i = 1; i < snapshots->n_all; i++)
        free(snapshots->all[i].times);
    while (snapshots->free_times != NULL) {
        void *times = snapshots->free_times;
        memcpy(&snapshots->free_times, times, sizeof(times));
        free(times);
    }
    free(snapshots->all);
}

/* A snapshot without contents, or GYRE_NO_SNAPSHOT. */
static uint32_t take_number(struct gyre_snapshots *snapshots, uint32_t n_readers)
{
    uint32_t number = snapshots->first_free;
    if (number != GYRE_NO_SNAPSHOT) {
        snapshots->first_free = snapshots->all[number].n_readers;
    } else {
        if (snapshots->n_all >= snapshots->capacity) {
            const uint32_t capacity = snapshots->capacity == 0 ? 256 : snapshots->capacity * 2;
            struct gyre_snapshot *bigger = realloc(snapshots->all, capacity * sizeof(*bigger));
            if (bigger == NULL)
                return GYRE_NO_SNAPSHOT;
            snapshots->all = bigger;
            snapshots->capacity = capacity;
        }
        number = snapshots->n_all++;
    }
    snapshots->all[number] = (struct gyre_snapshot){.n_readers = n_readers, .entry = GYRE_NO_ENTRY};
    return number;
}

/* A vector without contents, or NULL when there is no memory. */
static void *take_times(struct gyre_snapshots *snapshots)
{
    void *times = snapshots->free_times;
    if (times != NULL)
        memcpy(&snapshots->free_times, times, sizeof(times));
    else
        times = malloc(snapshots->vector_bytes);
    snapshots->n_vectors += times != NULL;
    return times;
}

uint32_t gyre_snapshots_copy(struct gyre_snapshots *snapshots, uint32_t number, uint32_t n_readers)
{
    const uint32_t copy = take_number(snapshots, n_readers);
    if (copy == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    void *times = snapshots->all[copy].times = take_times(snapshots);
    if (times == NULL) {
        gyre_snapshots_release(snapshots, copy);
        return GYRE_NO_SNAPSHOT;
    }
    uint32_t origin = number;
    while (origin != GYRE_NO_SNAPSHOT && snapshots->all[origin].times == NULL)
        origin = snapshots->all[origin].parent;
    if (origin == GYRE_NO_SNAPSHOT)
        memset(times, 0, snapshots->vector_bytes);
    else
        memcpy(times, snapshots->all[origin].times, snapshots->vector_bytes);
    gyre_snapshots_raise_links(snapshots, number, times);
    return copy;
}

uint32_t gyre_snapshots_take(struct gyre_snapshots *snapshots, uint32_t parent,
                             const struct gyre_snapshot *own, uint32_t n_readers)
{
    const uint32_t n_links = parent == GYRE_NO_SNAPSHOT ? 1 : snapshots->all[parent].n_links + 1;
    const bool is_link = n_links <= MOST_LINKS;
    const uint32_t number = is_link ? take_number(snapshots, n_readers)
                                    : gyre_snapshots_copy(snapshots, parent, n_readers);
    if (number == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    struct gyre_snapshot *snapshot = &snapshots->all[number];
    snapshot->entry = own->entry;
    snapshot->time = own->time;
    snapshot->shown = own->shown;
    if (!is_link) {
        gyre_times_set(snapshots, snapshot->times, own->entry, own->shown);
        return number;
    }
    snapshot->parent = parent;
    snapshot->n_links = n_links;
    if (parent != GYRE_NO_SNAPSHOT)
        snapshots->all[parent].n_readers++;
    return number;
}

void gyre_snapshots_release(struct gyre_snapshots *snapshots, uint32_t number)
{
    while (number != GYRE_NO_SNAPSHOT && --snapshots->all[number].n_readers == 0) {
        struct gyre_snapshot *snapshot = &snapshots->all[number];
        const uint32_t parent = snapshot->parent;
        if (snapshot->times != NULL) {
            memcpy(snapshot->times, &snapshots->free_times, sizeof(snapshots->free_times));
            snapshots->free_times = snapshot->times;
            snapshots->n_vectors--;
        }
        snapshot->times = NULL;
        snapshot->n_readers = snapshots->first_free;
        snapshots->first_free = number;
        number = parent;
    }
}

uint32_t gyre_snapshots_raise_links(const struct gyre_snapshots *snapshots, uint32_t number,
                                    void *times)
{
    while (number != GYRE_NO_SNAPSHOT && snapshots->all[number].times == NULL) {
        const struct gyre_snapshot *link = &snapshots->all[number];
        if (gyre_times_get(snapshots, times, link->entry) < link->shown)
            gyre_times_set(snapshots, times, link->entry, link->shown);
        number = link->parent;
    }
    return number;
}

static void raise_short(uint32_t n, const int16_t *restrict known, int16_t *restrict times)
{
    for (uint32_t first = 0; first < n; first += STRIDE)
        for (uint32_t i = first; i < first + STRIDE; i++)
            times[i] = times[i] > known[i] ? times[i] : known[i];
}

static void raise_long(uint32_t n, const int32_t *restrict known, int32_t *restrict times)
{
    for (uint32_t first = 0; first < n; first += STRIDE)
        for (uint32_t i = first; i < first + STRIDE; i++)
            times[i] = times[i] > known[i] ? times[i] : known[i];
}

void gyre_times_raise(const struct gyre_snapshots *snapshots, const void *known, void *times)
{
    if (snapshots->is_short)
        raise_short(snapshots->n_vector, known, times);
    else
        raise_long(snapshots->n_vector, known, times);
}
