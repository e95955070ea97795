/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of vectors of times (algorithms/verify/snapshots.h).
 */
#include "algorithms/verify/snapshots.h"

#include "algorithms/verify/clocks.h"

#include <stdlib.h>
#include <string.h>

/* Entries that one iteration of a loop handles. The compiler makes vector instructions of a loop of
 * constant length, and without them the verifier takes four times as long for 1024 ranks. The
 * entries have a sign, because not every processor can compare vectors of unsigned numbers. */
#define STRIDE 32

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
    free(snapshots->all);
}

/* A vector without contents, or GYRE_NO_SNAPSHOT. */
static uint32_t make_vector(struct gyre_snapshots *snapshots)
{
    if (snapshots->n_all >= snapshots->capacity) {
        const uint32_t capacity = snapshots->capacity == 0 ? 256 : snapshots->capacity * 2;
        struct gyre_snapshot *bigger = realloc(snapshots->all, capacity * sizeof(*bigger));
        if (bigger == NULL)
            return GYRE_NO_SNAPSHOT;
        snapshots->all = bigger;
        snapshots->capacity = capacity;
    }
    void *times = malloc(snapshots->vector_bytes);
    if (times == NULL)
        return GYRE_NO_SNAPSHOT;
    snapshots->all[snapshots->n_all].times = times;
    return snapshots->n_all++;
}

uint32_t gyre_snapshots_take(struct gyre_snapshots *snapshots, const void *times,
                             uint32_t n_readers)
{
    uint32_t number = snapshots->first_free;
    if (number != GYRE_NO_SNAPSHOT)
        snapshots->first_free = snapshots->all[number].n_readers;
    else
        number = make_vector(snapshots);
    if (number == GYRE_NO_SNAPSHOT)
        return GYRE_NO_SNAPSHOT;
    memcpy(snapshots->all[number].times, times, snapshots->vector_bytes);
    snapshots->all[number].n_readers = n_readers;
    snapshots->n_used++;
    return number;
}

void gyre_snapshots_release(struct gyre_snapshots *snapshots, uint32_t snapshot)
{
    if (--snapshots->all[snapshot].n_readers > 0)
        return;
    snapshots->all[snapshot].n_readers = snapshots->first_free;
    snapshots->first_free = snapshot;
    snapshots->n_used--;
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
