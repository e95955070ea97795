/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Loops of constant length become vector instructions: 1024 ranks are four times as fast. Times
 * have a sign, because not every processor compares unsigned vectors. */
#define STRIDE 32

/* Parents in a row. More would save few vectors and slow down searches. */
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

static uint32_t take_number(struct gyre_snapshots *snapshots, uint32_t n_readers)
{
    uint32_t number = snapshots->first_free;
    if (number != GYRE_NO_SNAPSHOT) {
        snapshots->first_free = snapshots->all[number].n_readers;
    } else {
        if (!gyre_grow(&snapshots->all, &snapshots->capacity, snapshots->n_all + 1ULL,
                       sizeof(*snapshots->all)))
            return GYRE_NO_SNAPSHOT;
        number = snapshots->n_all++;
    }
    snapshots->all[number] = (struct gyre_snapshot){.n_readers = n_readers, .entry = GYRE_NO_ENTRY};
    return number;
}

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

struct join {
    uint32_t first, second, maximum; /* free if maximum is not set; else a reader of all three */
};

struct gyre_joins {
    struct gyre_snapshots *snapshots;
    struct join *table; /* open addressing, at most half full */
    uint32_t n_places;  /* a power of two */
    uint32_t n_most, n_used;
};

gyre_status gyre_joins_open(struct gyre_snapshots *snapshots, uint32_t n_most,
                            struct gyre_joins **joins_out)
{
    struct gyre_joins *joins = calloc(1, sizeof(*joins));
    if (joins != NULL) {
        joins->snapshots = snapshots;
        joins->n_most = n_most;
        joins->n_places = 2;
        while (joins->n_places < 2 * n_most)
            joins->n_places *= 2;
        joins->table = calloc(joins->n_places, sizeof(*joins->table));
    }
    if (joins == NULL || joins->table == NULL) {
        free(joins);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's clocks");
    }
    *joins_out = joins;
    return GYRE_SUCCESS;
}

void gyre_joins_close(struct gyre_joins *joins)
{
    if (joins == NULL)
        return;
    free(joins->table);
    free(joins);
}

void gyre_joins_forget(struct gyre_joins *joins)
{
    if (joins->n_used == 0)
        return;
    for (uint32_t i = 0; i < joins->n_places; i++) {
        struct join *join = &joins->table[i];
        if (join->maximum == GYRE_NO_SNAPSHOT)
            continue;
        gyre_snapshots_release(joins->snapshots, join->first);
        gyre_snapshots_release(joins->snapshots, join->second);
        gyre_snapshots_release(joins->snapshots, join->maximum);
        join->maximum = GYRE_NO_SNAPSHOT;
    }
    joins->n_used = 0;
}

/* It stays until gyre_joins_forget(). GYRE_NO_SNAPSHOT = no memory. */
static uint32_t find_maximum(struct gyre_joins *joins, uint32_t first, uint32_t second)
{
    struct gyre_snapshots *snapshots = joins->snapshots;
    const uint64_t hash = ((uint64_t)first << 32 | second) * 0x9e3779b97f4a7c15ULL;
    struct join *join;
    uint64_t at = hash >> 32;
    do
        join = &joins->table[at++ & (joins->n_places - 1)];
    while (join->maximum != GYRE_NO_SNAPSHOT && (join->first != first || join->second != second));
    if (join->maximum != GYRE_NO_SNAPSHOT)
        return join->maximum;
    if (joins->n_used >= joins->n_most)
        return GYRE_NO_SNAPSHOT;
    const uint32_t maximum = gyre_snapshots_copy(snapshots, first, 1);
    if (maximum == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    gyre_times_raise(snapshots, snapshots->all[second].times, snapshots->all[maximum].times);
    snapshots->all[first].n_readers++;
    snapshots->all[second].n_readers++;
    *join = (struct join){first, second, maximum};
    joins->n_used++;
    return maximum;
}

void gyre_joins_add(struct gyre_joins *joins, uint32_t *list, uint32_t n_entries, void *times)
{
    const struct gyre_snapshots *snapshots = joins->snapshots;
    if (joins->n_most - joins->n_used < n_entries)
        gyre_joins_forget(joins); /* not below, where its maxima are in use */
    for (uint32_t size = 1; size < n_entries; size *= 2)
        for (uint32_t i = 0; i + size < n_entries; i += 2 * size) {
            uint32_t *first = &list[i], *second = &list[i + size];
            if (*first == GYRE_NO_SNAPSHOT) {
                *first = *second;
            } else if (*second != GYRE_NO_SNAPSHOT && *second != *first) {
                const uint32_t maximum = find_maximum(joins, *first, *second);
                if (maximum == GYRE_NO_SNAPSHOT)
                    gyre_times_raise(snapshots, snapshots->all[*second].times, times);
                else
                    *first = maximum;
            }
            *second = GYRE_NO_SNAPSHOT;
        }
    if (list[0] != GYRE_NO_SNAPSHOT)
        gyre_times_raise(snapshots, snapshots->all[list[0]].times, times);
    list[0] = GYRE_NO_SNAPSHOT;
}
