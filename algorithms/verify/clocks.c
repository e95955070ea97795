/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks and the pool of their snapshots (algorithms/verify/clocks.h).
 */
#include "algorithms/verify/clocks.h"

#include "core/base/status.h"

#include <stdlib.h>
#include <string.h>

struct snapshot {
    uint32_t *times;
    uint32_t n_readers; /* or, of a free one, the next free one */
};

struct gyre_clocks {
    uint32_t n_workers;
    uint32_t *clocks; /* n_workers each */
    struct snapshot *snapshots;
    uint32_t n_snapshots, capacity; /* number 0 is GYRE_NO_SNAPSHOT */
    uint32_t first_free;
};

gyre_status gyre_clocks_open(uint32_t n_workers, struct gyre_clocks **clocks_out)
{
    struct gyre_clocks *clocks = calloc(1, sizeof(*clocks));
    if (clocks != NULL)
        clocks->clocks = calloc((size_t)n_workers * n_workers + 1, sizeof(uint32_t));
    if (clocks == NULL || clocks->clocks == NULL) {
        free(clocks);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the clocks of %u workers",
                         n_workers);
    }
    clocks->n_workers = n_workers;
    clocks->n_snapshots = 1;
    *clocks_out = clocks;
    return GYRE_SUCCESS;
}

void gyre_clocks_close(struct gyre_clocks *clocks)
{
    if (clocks == NULL)
        return;
    for (uint32_t i = 1; i < clocks->n_snapshots; i++)
        free(clocks->snapshots[i].times);
    free(clocks->snapshots);
    free(clocks->clocks);
    free(clocks);
}

uint32_t *gyre_clocks_of(struct gyre_clocks *clocks, uint32_t worker)
{
    return &clocks->clocks[(size_t)worker * clocks->n_workers];
}

/* A snapshot without contents, or GYRE_NO_SNAPSHOT. */
static uint32_t new_snapshot(struct gyre_clocks *clocks)
{
    if (clocks->n_snapshots >= clocks->capacity) {
        const uint32_t capacity = clocks->capacity == 0 ? 256 : clocks->capacity * 2;
        struct snapshot *bigger = realloc(clocks->snapshots, capacity * sizeof(*bigger));
        if (bigger == NULL)
            return GYRE_NO_SNAPSHOT;
        clocks->snapshots = bigger;
        clocks->capacity = capacity;
    }
    uint32_t *times = malloc(clocks->n_workers * sizeof(*times));
    if (times == NULL)
        return GYRE_NO_SNAPSHOT;
    clocks->snapshots[clocks->n_snapshots].times = times;
    return clocks->n_snapshots++;
}

uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const uint32_t *times, uint32_t n_readers)
{
    uint32_t id = clocks->first_free;
    if (id != GYRE_NO_SNAPSHOT)
        clocks->first_free = clocks->snapshots[id].n_readers;
    else
        id = new_snapshot(clocks);
    if (id == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    memcpy(clocks->snapshots[id].times, times, clocks->n_workers * sizeof(*times));
    clocks->snapshots[id].n_readers = n_readers;
    return id;
}

void gyre_clocks_receive(const struct gyre_clocks *clocks, uint32_t snapshot, uint32_t *times)
{
    const uint32_t *known = clocks->snapshots[snapshot].times;
    for (uint32_t i = 0; i < clocks->n_workers; i++)
        times[i] = times[i] > known[i] ? times[i] : known[i];
}

void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot)
{
    if (--clocks->snapshots[snapshot].n_readers > 0)
        return;
    clocks->snapshots[snapshot].n_readers = clocks->first_free;
    clocks->first_free = snapshot;
}
