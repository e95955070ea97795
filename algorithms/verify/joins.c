/* SPDX-License-Identifier: Apache-2.0
 *
 * Maxima of two snapshots, found again by the numbers of the two (algorithms/verify/joins.h). What
 * is remembered is a reader of the two and of the maximum, so their numbers stay the same.
 */
#include "algorithms/verify/joins.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>
#include <string.h>

struct join {
    uint32_t first, second, maximum; /* snapshots; an entry is free if maximum is not set */
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

static struct join *find_join(const struct gyre_joins *joins, uint32_t first, uint32_t second)
{
    const uint64_t hash = ((uint64_t)first << 32 | second) * 0x9e3779b97f4a7c15ULL;
    for (uint64_t at = hash >> 32;; at++) {
        struct join *join = &joins->table[at & (joins->n_places - 1)];
        if (join->maximum == GYRE_NO_SNAPSHOT || (join->first == first && join->second == second))
            return join;
    }
}

/* The maximum of two snapshots, which stays until gyre_joins_forget(). Returns GYRE_NO_SNAPSHOT
 * when there is no memory. */
static uint32_t find_maximum(struct gyre_joins *joins, uint32_t first, uint32_t second)
{
    struct gyre_snapshots *snapshots = joins->snapshots;
    struct join *join = find_join(joins, first, second);
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
                if (maximum == GYRE_NO_SNAPSHOT) /* do without remembering it */
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
